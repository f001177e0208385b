"""False changes in autocorrelated noise, and steps in it: python benchmarks/autocorrelation.py.

Twenty series of 500 observations of AR(1) noise for each coefficient, by the segments that
`detect` chooses, by lines, and by lines with a lag; then the same with a step of three standard
deviations.
"""

import numpy as np

import switchpoint as sp

LENGTH, SERIES, STEP, TOLERANCE = 500, 20, 3.0, 5


def autoregression(phi: float, seed: int) -> np.ndarray:
    """AR(1) noise with unit innovations, stationary from the start."""
    values = np.random.default_rng(seed).normal(size=LENGTH)
    values[0] /= np.sqrt(1 - phi**2)
    for t in range(1, LENGTH):
        values[t] += phi * values[t - 1]
    return values


def main() -> None:
    for phi in (0.5, 0.7, 0.9):
        noise = [autoregression(phi, seed) for seed in range(SERIES)]
        for segment in (None, "trend", "autocorrelated"):
            results = [sp.detect(values, segment=segment) for values in noise]
            counts = [len(result.changepoints) for result in results]
            warned = sum(bool(result.warnings) for result in results)
            found = 0
            for values in noise:
                stepped = values.copy()
                stepped[LENGTH // 2 :] += STEP / np.sqrt(1 - phi**2)
                positions = sp.detect(stepped, segment=segment).changepoints
                found += bool((np.abs(positions - LENGTH // 2) <= TOLERANCE).any())
            print(
                f"phi {phi}, {segment or 'chosen'}: {min(counts)} to {max(counts)} false changes, "
                f"{sum(counts) / SERIES:.2f} a series; {warned} of {SERIES} warn; "
                f"step found in {found} of {SERIES}",
                flush=True,
            )


if __name__ == "__main__":
    main()
