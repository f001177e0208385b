"""What other tools say about the series of docs/gallery.md.

    pip install ruptures statsmodels && python benchmarks/gallery.py

Each runs as its documentation shows it: ruptures' Pelt with an rbf kernel and penalty 10, its
KernelCPD with a linear kernel and penalty 2 ln n on values in units of their noise (the standard
deviation of differences / sqrt 2), and statsmodels' MarkovRegression with two regimes of level and
variance. Missing values are left out first, since none of them takes any.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ruptures
from statsmodels.tsa.regime_switching.markov_regression import MarkovRegression

import switchpoint as sp

EXAMPLES = Path(__file__).parents[1] / "examples"

CYCLES = sp.Regression(slope=False, lags=2, level=6.0, level_scale=3.0)
LOGARITHMS = {"lynx"}

# The column of the values and the options of `detect` in docs/gallery.md.
SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "nile": ("flow", {}),
    "coal": ("disasters", {"segment": "counts"}),
    "drivers": ("drivers", {"season": 12}),
    "beaver": ("temperature", {}),
    "economy": ("inflation", {}),
    "puerto-rico": ("deaths", {}),
    "measles": ("cases_per_100000", {}),
    "gdp": ("growth", {}),
    "approval": ("approval", {"segment": "trend"}),
    "temperature": ("anomaly", {}),
    "marathon": ("minutes", {}),
    "lynx": ("trapped", {"source": sp.Source(sp.Geometric(1 / 200), CYCLES)}),
    "mile": ("seconds", {}),
}


def pelt(values: np.ndarray) -> list[int]:
    signal = (values - values.mean()) / values.std()
    return ruptures.Pelt(model="rbf").fit(signal).predict(pen=10)[:-1]


def kernel(values: np.ndarray) -> list[int]:
    signal = values / (np.diff(values).std() / np.sqrt(2))
    return ruptures.KernelCPD(kernel="linear").fit(signal).predict(pen=2 * np.log(len(signal)))[:-1]


def markov(values: np.ndarray) -> list[int]:
    signal = (values - values.mean()) / values.std()
    model = MarkovRegression(signal, k_regimes=2, switching_variance=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        states = model.fit(search_reps=10).smoothed_marginal_probabilities[:, 1] > 0.5
    return (np.flatnonzero(np.diff(states.astype(int))) + 1).tolist()


def main() -> None:
    np.random.seed(0)  # statsmodels draws its starting points from the global generator
    for name, (column, options) in SERIES.items():
        frame = pd.read_csv(EXAMPLES / f"{name}.csv")
        times, whole = frame[frame.columns[0]], frame[column]
        whole = np.log(whole) if name in LOGARITHMS else whole
        seen = whole.notna().to_numpy()
        labels = times[seen].astype(str).tolist()
        print(name)
        found = sp.detect(whole, times, **options)
        print("  switchpoint     ", *times[found.changepoints])
        for title, method in (
            ("Pelt, rbf       ", pelt),
            ("KernelCPD       ", kernel),
            ("MarkovRegression", markov),
        ):
            positions = method(whole[seen].to_numpy(float))
            shown = [labels[each] for each in positions]
            print(f"  {title} {len(shown)}:", *shown[:12], *["..."] * (len(shown) > 12))


if __name__ == "__main__":
    main()
