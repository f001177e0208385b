"""Results of every study, invented but of the shape that experiments save."""

import numpy as np
import xarray as xr

import switchpoint.evaluation

SOURCES = ["ptw", "lin", "regular", "uniform"]
NETWORKS = ["rnn", "lstm", "stack-rnn", "stack-lstm", "transformer"]
OPTIMA = {"ptw": 12.2, "lin": 28.3, "regular": 25.0, "uniform": 13.1}
EXACT = {  # the regret of each exact predictor on each source
    "kt": {"ptw": 36.0, "lin": 70.0, "regular": 66.0, "uniform": 27.0},
    "oracle": {"ptw": 9.9, "lin": 24.9, "regular": 25.0, "uniform": 9.2},
    "ptw": {"ptw": 12.2, "lin": 34.4, "regular": 50.1, "uniform": 19.3},
    "lin": {"ptw": 16.3, "lin": 28.3, "regular": 47.4, "uniform": 15.3},
    "regular": {"ptw": 40.1, "lin": 61.0, "regular": 25.0, "uniform": 42.0},
    "uniform": {"ptw": 15.9, "lin": 31.0, "regular": 48.3, "uniform": 13.1},
    "optimum": OPTIMA,
}
SPREAD = {"rnn": 0.9, "lstm": 0.06, "stack-rnn": 0.5, "stack-lstm": 0.05, "transformer": 0.25}


def all_studies(length=32, seeds=3):
    """Every study by its name."""
    make = _Maker(length, seeds)
    return {
        "trajectory": make.trajectory(),
        "mean-regret": make.mean_regret(),
        "on-distribution": make.on_distribution(),
        "off-distribution": make.off_distribution(),
        "longer-lengths": make.longer_lengths(),
        "other-lengths": make.other_lengths(),
        "ablations": make.ablations(),
        "priors": make.priors(),
        "regret-by-index": make.regret_by_index(),
        "length-512": make.length_512(),
        "memory": make.memory(),
    }


def save_all(studies, directory):
    """Save studies as `switchpoint reproduce` does."""
    results = directory / "results"
    results.mkdir(parents=True, exist_ok=True)
    for name, dataset in studies.items():
        switchpoint.evaluation.save(dataset, results / f"{name}.nc")


def over_seeds(kind, values, error, dims):
    """A variable of each seed with what is saved about the mean over seeds."""
    few = values.shape[-1] < 2
    variables = {
        kind: ((*dims, "seed"), values),
        f"{kind}_error": ((*dims, "seed"), np.full_like(values, error)),
        f"{kind}_mean": (dims, values.mean(-1)),
        f"{kind}_mean_error": (dims, np.full(values.shape[:-1], error)),
        f"{kind}_minimum": (dims, values.min(-1)),
        f"{kind}_median": (dims, np.median(values, -1)),
    }
    variables[f"{kind}_deviation"] = (
        dims,
        np.full(values.shape[:-1], np.nan) if few else values.std(-1, ddof=1),
    )
    return variables


class _Maker:
    def __init__(self, length, seeds):
        self.length, self.seeds = length, seeds
        self.random = np.random.default_rng(7)
        self.depth = int(np.log2(length))

    def dataset(self, study, variables, coords, **attrs):
        labels = {
            "ptw": f"PTW_{self.depth}",
            "lin": "LIN",
            "regular": "Regular(20)",
            "uniform": f"Random Uniform({self.length})",
        }
        attrs = {
            "study": study,
            "title": study.replace("-", " ").capitalize(),
            "paper": "Figure 3",
            "question": f"What does the study {study} ask?",
            "scale": "quick",
            "length": self.length,
            "sequences": 10_000,
            "labels": labels,
            "description": {"length": self.length, "seeds": self.seeds, "steps": {"lstm": 1500}},
            "provenance": {
                "switchpoint": "0.1.0",
                "jax": "0.10.0",
                "python": "3.12.1",
                "platform": "Linux",
                "device": "cpu",
                "seed": 0,
                "wall_seconds": 12.3,
                "training_seconds": 40.1,
                "command": "switchpoint reproduce --scale quick",
            },
            **attrs,
        }
        return xr.Dataset(variables, coords, attrs)

    def excess(self, *shape):
        """Excesses over networks (the last but one axis) and seeds."""
        size = np.array([SPREAD[name] for name in NETWORKS])[:, None]
        return size * self.random.gamma(2.0, 0.5, (*shape, len(NETWORKS), self.seeds))

    def sequence(self, length, switches):
        """A true bias that changes at switches, symbols, and a prediction that follows them."""
        bias = np.repeat(
            self.random.beta(0.5, 0.5, len(switches) + 1), np.diff([0, *switches, length])
        )
        symbols = (self.random.random(length) < bias).astype(np.int8)
        guess, ones, seen = np.empty(length), 0.5, 1.0
        for t, symbol in enumerate(symbols):
            guess[t] = ones / seen
            ones, seen = 0.95 * ones + symbol, 0.95 * seen + 1
        return bias, symbols, np.clip(guess, 0.01, 0.99)

    def regret(self, bias, guess):
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [p * np.log2(p / q) for p, q in ((bias, guess), (1 - bias, 1 - guess))]
        return np.nansum(parts, axis=0)

    def trajectory(self):
        predictors = ["optimum", "oracle", "lstm"]
        shape = (len(SOURCES), self.length)
        symbols, switched = np.zeros(shape, np.int8), np.zeros(shape, np.int8)
        probability = np.zeros(shape)
        prediction = np.zeros((len(SOURCES), 3, self.length))
        regret = np.zeros_like(prediction)
        for i in range(len(SOURCES)):
            switches = [self.length // 4, self.length // 2, 3 * self.length // 4]
            switched[i, switches] = 1
            probability[i], symbols[i], guess = self.sequence(self.length, switches)
            for j in range(3):
                prediction[i, j] = np.clip(
                    guess + self.random.normal(0, 0.02 * j, self.length), 0.01, 0.99
                )
                regret[i, j] = self.regret(probability[i], prediction[i, j])
        three = ("source", "predictor", "time")
        return self.dataset(
            "trajectory",
            {
                "symbols": (("source", "time"), symbols),
                "probability": (("source", "time"), probability),
                "switches": (("source", "time"), switched),
                "prediction": (three, prediction),
                "regret": (three, regret),
                "cumulative_regret": (three, regret.cumsum(-1)),
            },
            {"source": SOURCES, "predictor": predictors, "time": np.arange(self.length)},
        )

    def mean_regret(self):
        ends = {"lstm": 12.3, "ptw": 12.2, "lin": 16.3, "oracle": 9.9}
        rise = np.log2(2 + np.arange(self.length)) / np.log2(1 + self.length)
        curves = np.stack([end * rise for end in ends.values()])
        return self.dataset(
            "mean-regret",
            {
                "cumulative_regret": (("predictor", "time"), curves),
                "cumulative_regret_error": (("predictor", "time"), 0.006 * curves),
            },
            {"predictor": list(ends), "time": np.arange(self.length)},
        )

    def exact(self, names, dim):
        regret = np.array([[EXACT[name][source] for name in names] for source in SOURCES])
        excess = regret - np.array([[OPTIMA[source]] for source in SOURCES])
        dims = (dim, "exact")
        return {
            "exact_regret": (dims, regret),
            "exact_regret_error": (dims, np.full_like(regret, 0.08)),
            "exact_excess": (dims, excess),
            "exact_excess_error": (dims, np.where(excess == 0, 0.0, 0.05)),
        }

    def on_distribution(self):
        dims = ("source", "architecture")
        excess = self.excess(len(SOURCES))
        regret = excess + np.array([OPTIMA[source] for source in SOURCES])[:, None, None]
        names = ["kt", "oracle", "ptw", "lin", "optimum"]
        return self.dataset(
            "on-distribution",
            {
                **over_seeds("excess", excess, 0.01, dims),
                **over_seeds("regret", regret, 0.08, dims),
                **self.exact(names, "source"),
            },
            {
                "source": SOURCES,
                "architecture": NETWORKS,
                "seed": np.arange(self.seeds),
                "exact": names,
            },
        )

    def off_distribution(self):
        dims = ("train_source", "test_source", "architecture")
        away = np.array(
            [[EXACT[train][test] - OPTIMA[test] for test in SOURCES] for train in SOURCES]
        )
        excess = self.excess(len(SOURCES), len(SOURCES)) + 0.9 * away[:, :, None, None]
        regret = excess + np.array([OPTIMA[source] for source in SOURCES])[:, None, None]
        return self.dataset(
            "off-distribution",
            {
                **over_seeds("excess", excess, 0.05, dims),
                **over_seeds("regret", regret, 0.08, dims),
                "penalty": (dims, excess.mean(-1)),
                "penalty_error": (dims, np.full(excess.shape[:-1], 0.05)),
                **self.exact(list(EXACT), "test_source"),
            },
            {
                "train_source": SOURCES,
                "test_source": SOURCES,
                "architecture": NETWORKS,
                "seed": np.arange(self.seeds),
                "exact": list(EXACT),
            },
        )

    def longer_lengths(self):
        lengths = self.length * 2 ** np.arange(5)
        growth = (1 + 9 * np.log2(lengths / self.length))[:, None, None]
        return self.dataset(
            "longer-lengths",
            {
                **over_seeds("excess", growth * self.excess(5), 0.05, ("length", "architecture")),
                "optimum_regret": ("length", 1.5 * np.log2(lengths)),
                "optimum_regret_error": ("length", np.full(5, 0.1)),
            },
            {"length": lengths, "architecture": NETWORKS, "seed": np.arange(self.seeds)},
        )

    def other_lengths(self):
        lengths = self.length * 2.0 ** np.arange(-2, 3)
        away = (1 + 3 * np.abs(np.arange(-2, 3)))[:, None, None]
        dims = ("length", "architecture")
        own = self.excess(5)
        return self.dataset(
            "other-lengths",
            {
                **over_seeds("own", own, 0.05, dims),
                **over_seeds("transferred", own * away, 0.05, dims),
                "optimum_regret": ("length", 1.5 * np.log2(lengths)),
                "optimum_regret_error": ("length", np.full(5, 0.1)),
            },
            {
                "length": lengths.astype(np.int32),
                "architecture": NETWORKS,
                "seed": np.arange(self.seeds),
            },
            base_length=self.length,
        )

    def ablations(self):
        whole = {"hidden": -1, "readout": -1, "stack_depth": -1, "stack_width": -1}
        whole |= {"layers": -1, "context": -1, "positions": "-"}
        rows = [
            whole | {"model": model, "part": "core", "hidden": hidden, "readout": readout}
            for model in ("rnn", "lstm", "stack-rnn", "stack-lstm")
            for hidden in (64, 128, 256)
            for readout in (0, 1, 2)
        ]
        rows += [
            whole | {"model": model, "part": "stack", "stack_depth": depth, "stack_width": width}
            for model in ("stack-rnn", "stack-lstm")
            for depth in (1, 8, self.length)
            for width in (1, 2, 8)
        ]
        transformer = whole | {"model": "transformer"}
        rows += [
            transformer | {"part": "positions", "positions": positions, "layers": layers}
            for positions in ("sincos", "alibi", "relative")
            for layers in (2, 4, 8, 16)
        ]
        rows += [
            transformer | {"part": "context", "positions": "relative", "context": context}
            for context in (8, 16, 32, -1)
        ]
        size = [
            max(row["hidden"], 16 * max(row["layers"], 4)) ** 2
            * (4 if "lstm" in row["model"] else 1)
            + 20_000 * max(row["readout"], 0)
            for row in rows
        ]
        excess = 100 / np.sqrt(size)[:, None] * self.random.gamma(9, 1 / 9, (len(rows), self.seeds))
        regret = excess + OPTIMA["ptw"]
        dims = ("configuration",)
        return self.dataset(
            "ablations",
            {
                **{name: (dims, [row[name] for row in rows]) for name in rows[0]},
                "parameters": (dims, np.array(size, np.int32)),
                **over_seeds("excess", excess, 0.01, dims),
                **over_seeds("regret", regret, 0.08, dims),
                "optimum_regret": ((), OPTIMA["ptw"]),
                "optimum_regret_error": ((), 0.08),
            },
            {
                "configuration": [f"{row['model']} {i}" for i, row in enumerate(rows)],
                "seed": np.arange(self.seeds),
            },
        )

    def priors(self):
        most = 64
        laws = [np.eye(most + 1)[0]]
        for _ in range(9):
            both = np.convolve(laws[-1], laws[-1])[:most]
            laws.append(0.5 * np.eye(most + 1)[0] + 0.5 * np.append(0, both))
        law = np.array(laws)
        limit = np.cumprod(np.append(0.5, [(2 * k - 1) / (2 * k + 2) for k in range(1, most + 1)]))
        draws = self.random.poisson(10_000 * law) / 10_000
        at = np.arange(1, self.length)
        valuation = np.array([self.depth - (int(t) & -int(t)).bit_length() + 1 for t in at])
        place = {
            "ptw": 0.5**valuation,
            "lin": 1 / (2 * np.sqrt(at)),
            "regular": (at % 20 == 0).astype(float),
            "uniform": np.full(len(at), 1 / self.length),
        }
        probability = np.stack([np.append(0, place[source]) for source in SOURCES])
        counts = np.arange(self.length)
        number = np.stack(
            [
                np.append(law[min(self.depth, 9)], np.zeros(self.length))[: self.length],
                np.exp(-((counts - 8) ** 2) / 18) / 7.5,
                (counts == (self.length - 1) // 20).astype(float),
                0.5 ** (counts + 1),
            ]
        )
        frequency = self.random.binomial(10_000, probability) / 10_000
        numbers = self.random.poisson(10_000 * number) / 10_000
        grid = ("depth", "switches")
        return self.dataset(
            "priors",
            {
                "switch_probability": (("source", "time"), probability),
                "switch_frequency": (("source", "time"), frequency),
                "switch_frequency_error": (
                    ("source", "time"),
                    np.sqrt(probability * (1 - probability) / 10_000),
                ),
                "count_law": (("source", "count"), number),
                "count_frequency": (("source", "count"), numbers),
                "count_frequency_error": (("source", "count"), np.sqrt(number / 10_000)),
                "ptw_count_law": (grid, law),
                "ptw_count_limit": (("switches",), limit),
                "ptw_count_sampled": (grid, draws),
                "ptw_count_sampled_deviation": (grid, np.sqrt(law / 1000)),
                "ptw_count_sampled_error": (grid, np.sqrt(law / 10_000)),
            },
            {
                "source": SOURCES,
                "time": np.arange(self.length),
                "count": counts,
                "depth": np.arange(10),
                "switches": np.arange(most + 1),
            },
        )

    def regret_by_index(self):
        times = np.arange(self.length)
        optimum = 0.3 / np.sqrt(1 + times % (self.length // 2)) + 0.01
        bumps = 0.01 * (times[None] % (self.length // 4) < 3)
        size = np.array([SPREAD[name] for name in NETWORKS])[:, None]
        difference = size * bumps + self.random.normal(0, 0.0005, (len(NETWORKS), self.length))
        dims = ("architecture", "time")
        return self.dataset(
            "regret-by-index",
            {
                "regret": (dims, optimum + difference),
                "regret_error": (dims, np.full_like(difference, 0.002)),
                "optimum_regret": ("time", optimum),
                "optimum_regret_error": ("time", np.full_like(optimum, 0.002)),
                "difference": (dims, difference),
                "difference_error": (dims, np.full_like(difference, 0.0005)),
            },
            {"architecture": NETWORKS, "time": times},
        )

    def length_512(self):
        length, sequences = 2 * self.length, 100
        predictors = ["optimum", *NETWORKS]
        bias, symbols, guess = self.sequence(length, [])
        noise = self.random.normal(0, 0.02, (len(predictors), length))
        prediction = np.clip(guess + noise, 0.01, 0.99)
        regret = np.stack([self.regret(bias, row) for row in prediction])
        counts = np.sort(self.random.geometric(0.4, sequences) - 1)
        difference = self.random.normal(0, 0.05, (len(NETWORKS), sequences, length))
        difference[:, counts == 0, self.length] -= 0.5
        difference[:, counts > 0, self.length] += 0.5
        return self.dataset(
            "length-512",
            {
                "symbols": ("time", symbols),
                "probability": ("time", bias),
                "prediction": (("predictor", "time"), prediction),
                "regret": (("predictor", "time"), regret),
                "cumulative_regret": (("predictor", "time"), regret.cumsum(-1)),
                "difference": (
                    ("architecture", "sequence", "time"),
                    difference.astype(np.float32),
                ),
                "switch_count": ("sequence", counts.astype(np.int32)),
            },
            {
                "time": np.arange(length),
                "predictor": predictors,
                "architecture": NETWORKS,
                "sequence": np.arange(sequences),
            },
            test_length=length,
        )

    def memory(self):
        orders, bounds = np.array([0, 1, 2, 4, 8, 16]), np.arange(11)
        dims = ("source", "order")
        optima = np.array([OPTIMA[source] for source in SOURCES])
        bound = optima[:, None] * (1 + 4 * 0.75**bounds)
        trained = optima[:, None] * (1.02 + 4 * 0.75**orders)
        regret = trained[:, :, None] + self.random.gamma(2, 0.2, (4, len(orders), self.seeds))
        return self.dataset(
            "memory",
            {
                **over_seeds("regret", regret, 0.08, dims),
                **over_seeds("excess", regret - optima[:, None, None], 0.08, dims),
                "bound": (("source", "bound_order"), bound),
                "optimum_regret": ("source", optima),
                "optimum_regret_error": ("source", np.full(4, 0.08)),
            },
            {
                "source": SOURCES,
                "order": orders,
                "bound_order": bounds,
                "seed": np.arange(self.seeds),
            },
        )
