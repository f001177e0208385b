"""Observations a second, one at a time: predict and update, beside other packages.

    python benchmarks/streams.py [observations]
    python benchmarks/streams.py long [observations]
    python benchmarks/streams.py chunks [observations]
    python benchmarks/streams.py many [keys]
    python benchmarks/streams.py ray [keys]

Rates are by CPU time, so that other work on the machine matters little: of `predict` and `update`,
of `update` with `change_probability` and `run_length` read after each, and for values the median
time of `predict().quantile(0.9)`. Other packages are
measured where they are installed: changepoint (Rust), river's ADWIN and fast-bocpd. With `long`,
many bits go through PTW(40) and a pruned Geometric in chunks: time per symbol, memory and weights
at the beginning and at the end. With `chunks`, `predictor.extend` takes one after another, beside
a sequence as long as a chunk and the whole sequence at once. With `many`, `Streams` observes a
value of every key at once: updates a second by the clock and by CPU time, and memory; with `ray`,
by the actors of a Ray cluster on this machine.
"""

import functools
import importlib
import importlib.util
import logging
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import switchpoint as sp
from switchpoint.segments import StudentT, namespace

BARS = {
    "PTW(40)": 120_000,
    "Geometric, 100 hypotheses": 100_000,
    "LIN, 100 hypotheses": 100_000,
    "KT": 500_000,
    "NormalGamma, 100 hypotheses": 60_000,
    "Poisson, 100 hypotheses": 100_000,
    "Exponential, 100 hypotheses": 100_000,
    "two NormalGammas, 100 hypotheses": 100_000,
    "NormalGamma and Poisson, 100 hypotheses": 100_000,
    "a family of one's own, 100 hypotheses": 20_000,
    "lstm-ptw": 4_000,
}


def bits(count: int) -> list[int]:
    """Bits whose probability changes every 500 or so."""
    draw = sp.Source(sp.Geometric(0.002)).sample(jax.random.key(0), 1, count)
    return np.asarray(draw.symbols[0]).tolist()


def values(count: int) -> list[float]:
    """Normal values whose mean changes every 500 or so."""
    rng = np.random.default_rng(0)
    level = np.repeat(rng.normal(0, 3, count // 500 + 1), 500)[:count]
    return (level + rng.normal(size=count)).tolist()


def counts(count: int) -> list[int]:
    """Counts whose rate changes every 500 or so."""
    rng = np.random.default_rng(1)
    return rng.poisson(np.repeat(rng.gamma(2, 3, count // 500 + 1), 500)[:count]).tolist()


def waits(count: int) -> list[float]:
    """Waiting times whose rate changes every 500 or so."""
    rng = np.random.default_rng(2)
    return rng.exponential(np.repeat(rng.gamma(2, 3, count // 500 + 1), 500)[:count]).tolist()


def pairs(count: int) -> list[tuple[float, int]]:
    """Normal values, and counts."""
    return list(zip(values(count), counts(count), strict=True))


class Volatility(sp.Segment):
    """Noise around 0, whose precision is drawn from Gamma(1, 1): a family of one's own."""

    def statistic(self, x: Any) -> Any:
        return namespace(x).ones_like(x), x**2

    def predictive(self, statistics: Any) -> StudentT:
        count, squares = statistics
        shape, rate = 1 + count / 2, 1 + squares / 2
        return StudentT(2 * shape, 0.0, rate / shape)


def streams() -> dict[str, tuple[Any, Callable[[int], list[Any]], int]]:
    """The predictors, what they observe, and how many for each that is asked for."""

    def optimal(prior: sp.Prior, segment: sp.Segment, **options: Any) -> Any:
        return sp.bayes_optimal(sp.Source(prior, segment), **options)

    bernoulli, few = sp.Bernoulli(), {"max_hypotheses": 100}
    families: dict[str, tuple[sp.Segment, Callable[[int], list[Any]]]] = {
        "NormalGamma": (sp.NormalGamma(), values),
        "Poisson": (sp.Poisson(), counts),
        "Exponential": (sp.Exponential(), waits),
        "two NormalGammas": (sp.Independent(sp.NormalGamma(), sp.NormalGamma()), pairs),
        "NormalGamma and Poisson": (sp.Independent(sp.NormalGamma(), sp.Poisson()), pairs),
        "a family of one's own": (Volatility(), values),
    }
    return {
        "PTW(40)": (optimal(sp.PTW(40), bernoulli), bits, 1),
        "Geometric, 100 hypotheses": (optimal(sp.Geometric(0.002), bernoulli, **few), bits, 1),
        "LIN, 100 hypotheses": (optimal(sp.LIN(), bernoulli, **few), bits, 1),
        "KT": (sp.KT(), bits, 1),
        **{
            f"{name}, 100 hypotheses": (optimal(sp.Geometric(0.002), segment, **few), draw, 1)
            for name, (segment, draw) in families.items()
        },
        "lstm-ptw": (sp.load("lstm-ptw"), bits, 10),
    }


def rate(run: Callable[[], object], count: int, repeats: int = 3) -> float:
    """Observations a second of the best of a few runs."""
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        run()
        best = min(best, time.process_time() - begun)
    return count / best


def one_at_a_time(predictor: Any, observations: list[Any]) -> None:
    """Predict and observe, one after another."""
    stream = sp.Stream(predictor)
    predict, update = stream.predict, stream.update
    for x in observations:
        predict()
        update(x)


def both_read(predictor: Any, observations: list[Any]) -> None:
    """Observe, and read both properties of the posterior, one after another."""
    stream = sp.Stream(predictor)
    for x in observations:
        stream.update(x)
        _ = stream.change_probability(10), stream.run_length


def quantile_time(predictor: Any, observations: list[Any]) -> float:
    """The median time of a prediction and its quantile, in milliseconds."""
    stream, times = sp.Stream(predictor), []
    for x in observations[:2000]:
        stream.update(x)
        begun = time.perf_counter()
        stream.predict().quantile(0.9)
        times.append(time.perf_counter() - begun)
    return 1000 * float(np.median(times[500:]))


def others(count: int) -> dict[str, float]:
    """The rates of other packages on the same observations, where they are installed."""
    found = {}
    coins, numbers = bits(count), values(count)
    if importlib.util.find_spec("changepoint"):
        changepoint = importlib.import_module("changepoint")

        def rust(observations: list[Any], prior: Any) -> None:
            detector = changepoint.Bocpd(prior, 500.0)
            for x in observations:
                detector.step(x)

        few = min(count, 1000)  # it keeps all hypotheses: the longer, the slower
        flags, prior = [bool(x) for x in coins[:few]], changepoint.BetaBernoulli(0.5, 0.5)
        found[f"changepoint (Rust), BetaBernoulli, first {few:,}"] = rate(
            lambda: rust(flags, prior), few
        )
        gamma = changepoint.NormalGamma(0.0, 1.0, 1.0, 1.0)
        found[f"changepoint (Rust), NormalGamma, first {few:,}"] = rate(
            lambda: rust(numbers[:few], gamma), few
        )
    if importlib.util.find_spec("river"):
        drift = importlib.import_module("river.drift")

        def adwin() -> None:
            detector = drift.ADWIN()
            for x in coins:
                detector.update(x)

        found["river's ADWIN (detects only)"] = rate(adwin, count)
    if importlib.util.find_spec("fast_bocpd"):
        fast_bocpd = importlib.import_module("fast_bocpd")

        def fast() -> None:
            detector = fast_bocpd.BOCPD(
                fast_bocpd.GaussianNIG(0.0, 1.0, 1.0, 1.0),
                fast_bocpd.ConstantHazard(500.0),
                max_run_length=450,
            )
            for x in numbers:
                detector.update(x)

        found["fast-bocpd, 450 run lengths"] = rate(fast, count)
    return found


def long(count: int, chunk: int = 100_000) -> None:
    """Many bits in chunks, through two predictors whose state is bounded."""
    source = sp.Source(sp.Geometric(0.0005))
    for name, predictor in {
        "PTW(40)": sp.bayes_optimal(sp.Source(sp.PTW(40))),
        "Geometric, 100 hypotheses": sp.bayes_optimal(source, max_hypotheses=100),
    }.items():
        stream = sp.Stream(predictor)
        rates, finite, off = [], True, 0.0
        for i in range(count // chunk):
            data = np.asarray(source.sample(jax.random.key(i), 1, chunk).symbols[0])
            begun = time.process_time()
            logs = stream.extend(data)
            rates.append(chunk / (time.process_time() - begun))
            finite = finite and bool(np.isfinite(logs).all())
            weights = stream._engine.runs().probabilities
            off = max(off, abs(weights.sum() - 1), abs(np.exp(stream.predict()).sum() - 1))
            if i == 0:
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
        tenth = max(1, len(rates) // 10)
        first, last = np.median(rates[:tenth]), np.median(rates[-tenth:])
        print(
            f"{name:28} {stream.position:,} bits; a second, first tenth {first:,.0f}, "
            f"last tenth {last:,.0f}; memory grown by {grown:.1f} MiB; finite "
            f"{finite}; sums within {off:.1g} of 1; {stream.code_length / count:.4f} bits a bit",
            flush=True,
        )


def chunks(count: int, chunk: int = 1000) -> None:
    """Chunks from a state, and the whole sequence, by compiled programs of the predictor."""

    def optimal(prior: sp.Prior, segment: sp.Segment) -> Any:
        return sp.bayes_optimal(sp.Source(prior, segment))

    predictors = {
        "PTW(40), bits": (optimal(sp.PTW(40), sp.Bernoulli()), bits),
        "PTW(40), NormalGamma": (optimal(sp.PTW(40), sp.NormalGamma()), values),
        "Geometric, bits": (optimal(sp.Geometric(0.002), sp.Bernoulli()), bits),
        "Geometric, NormalGamma": (optimal(sp.Geometric(0.002), sp.NormalGamma()), values),
        **{name: streams()[name][:2] for name in ("Geometric, 100 hypotheses", "KT", "lstm-ptw")},
    }
    title = f"observations a second, {count:,} in all"
    columns = f"chunks of {chunk:,}", f"{chunk:,} alone", f"{count:,} at once"
    print(f"{title:40}", *(f"{column:>16}" for column in columns))
    for name, (predictor, observations) in predictors.items():
        data = np.array(observations(count))

        def in_chunks(predictor: Any = predictor, data: np.ndarray = data) -> None:
            state = predictor.init(len(data))
            for begin in range(0, len(data), chunk):
                state, _ = predictor.extend(state, data[begin : begin + chunk])
            jax.block_until_ready(state)

        def whole(length: int, predictor: Any = predictor, data: np.ndarray = data) -> None:
            predict = getattr(predictor, "log_density", None) or predictor.log_probs
            jax.block_until_ready(predict(data[:length]))

        in_chunks()  # compiled now
        found = [rate(in_chunks, count)]
        for length in (chunk, count):
            whole(length)
            found.append(rate(functools.partial(whole, length), length, repeats=9))
        print(f"{name:40}", *(f"{each:16,.0f}" for each in found), flush=True)


def many(count: int) -> None:
    """One observation of each of many keys at once, and saving their states."""

    def optimal(prior: sp.Prior, segment: sp.Segment, most: int | None = None) -> Any:
        return sp.bayes_optimal(sp.Source(prior, segment), max_hypotheses=most)

    rng = np.random.default_rng(0)
    predictors = {
        "PTW(20), bits": optimal(sp.PTW(20), sp.Bernoulli()),
        "NormalGamma, 30 hypotheses": optimal(sp.Geometric(0.005), sp.NormalGamma(), 30),
    }
    keys = [f"host-{i}" for i in rng.permutation(count)]
    for name, predictor in predictors.items():
        finite = predictor.segment.finite
        data = rng.integers(0, 2, (40, count)) if finite else rng.normal(size=(40, count))
        streams = sp.Streams(predictor, alarm=sp.Alarm())
        for row in data[:35]:  # until most hypotheses are in use
            streams.update(keys, row)
        clock, cpu = [], []
        for row in data[35:]:
            begun = time.perf_counter(), time.process_time()
            streams.update(keys, row)
            clock.append(count / (time.perf_counter() - begun[0]))
            cpu.append(count / (time.process_time() - begun[1]))
        with tempfile.TemporaryDirectory() as directory:
            saved = []
            for some in (keys, keys[: count // 100]):
                streams.update(some, data[0, : len(some)])
                begun = time.perf_counter(), 0.0
                streams.save(Path(directory) / "states")
                saved.append(time.perf_counter() - begun[0])
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{name:28} {count:,} keys: {max(clock):,.0f} updates a second, {max(cpu):,.0f} by CPU "
            f"time; saved in {saved[0]:.2f} s, 1% of them in {saved[1]:.2f} s; {memory:.2f} GiB",
            flush=True,
        )


def on_ray(count: int) -> None:
    """Batches of one value of every key, over 1, 2 and 4 actors of a Ray cluster here."""
    import ray

    from switchpoint.adapters.ray import RayStreams

    source = sp.Source(sp.Geometric(0.005), sp.NormalGamma())
    predictor = sp.bayes_optimal(source, max_hypotheses=30)
    data = np.random.default_rng(0).normal(size=(24, count))
    keys = [f"host-{i}" for i in range(count)]
    ray.init(num_cpus=4, log_to_driver=False, logging_level=logging.ERROR)
    for actors in (1, 2, 4):
        with tempfile.TemporaryDirectory() as directory:
            streams = RayStreams(predictor, directory, actors=actors, snapshot_every=1000)
            rates = []
            for offset, values in enumerate(data):
                begun = time.perf_counter()
                streams.update(offset, keys, values, float(offset))
                rates.append(count / (time.perf_counter() - begun))
            begun = time.perf_counter()
            streams.close()
            print(
                f"{actors} actors, {count:,} keys: {max(rates):,.0f} updates a second; a snapshot "
                f"of all in {time.perf_counter() - begun:.2f} s",
                flush=True,
            )


def main(count: int) -> None:
    columns = "per second", "bar", "both read", "quantile, ms"
    print(f"{'one at a time, predict and update':44}", *(f"{each:>12}" for each in columns))
    for name, (predictor, observations, share) in streams().items():
        data = observations(count)[: count // share]
        found = rate(functools.partial(one_at_a_time, predictor, data), len(data))
        line = f"{name:44} {found:12,.0f} {BARS[name]:12,}"
        if hasattr(predictor, "segment"):
            line += f" {rate(functools.partial(both_read, predictor, data), len(data)):12,.0f}"
            if not predictor.segment.finite:
                line += f" {quantile_time(predictor, data):12.3f}"
        print(line, flush=True)
    for name, found in others(count).items():
        print(f"{name:44} {found:12,.0f}", flush=True)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["long"]:
        long(int(arguments[1]) if len(arguments) > 1 else 10**7)
    elif arguments[:1] == ["many"]:
        many(int(arguments[1]) if len(arguments) > 1 else 100_000)
    elif arguments[:1] == ["ray"]:
        on_ray(int(arguments[1]) if len(arguments) > 1 else 20_000)
    elif arguments[:1] == ["chunks"]:
        chunks(int(arguments[1]) if len(arguments) > 1 else 10_000)
    else:
        main(int(arguments[0]) if arguments else 40_000)
