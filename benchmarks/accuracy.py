"""How far float32 is from float64, on sequences made to hurt.

    python benchmarks/accuracy.py         # the table, about a minute on 2 cores

float32 runs on the default device, float64 on the CPU.
"""

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import switchpoint as sp


def hard_sequences(length: int) -> np.ndarray:
    """Constant, alternating, late-switching, blocked and random sequences."""
    times = np.arange(length)
    random = np.random.default_rng(0).integers(0, 2, length)
    rows = [0 * times, 0 * times + 1, times % 2, times >= length - length // 16, times // 37 % 2]
    return np.stack([*rows, random]).astype(np.int32)


def main() -> None:
    table = Table(title="float32 against float64, largest errors")
    for column in ("prior", "length", "probability", "log probability", "sum of probabilities"):
        table.add_column(column, justify="left" if column == "prior" else "right")
    for length in (256, 4096):
        symbols = hard_sequences(length)
        priors = [
            sp.PTW(length.bit_length() - 1),
            sp.PTW(30, 0.2),
            sp.LIN(),
            sp.RandomUniform(length),
            sp.Geometric(1e-3),
        ]
        for prior in priors:
            predictor = sp.bayes_optimal(sp.Source(prior))
            single = np.asarray(predictor.log_probs(symbols), np.float64)
            with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
                double = np.asarray(predictor.log_probs(symbols))
            probs = np.exp(single)
            errors = (probs - np.exp(double), single - double, probs.sum(-1) - 1)
            cells = [f"{np.abs(error).max():.1e}" for error in errors]
            table.add_row(repr(prior), str(length), *cells)
    console = Console()
    console.print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}")
    console.print(table)


if __name__ == "__main__":
    main()
