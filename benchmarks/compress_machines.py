"""Whether another machine decodes what this one has encoded, and how its predictions differ.

    python benchmarks/compress_machines.py --write codes.npz     # here
    python benchmarks/compress_machines.py --read codes.npz      # there

On one machine, NumPy and OpenBLAS can be told to use other instructions:

    NPY_DISABLE_CPU_FEATURES=X86_V3 OPENBLAS_CORETYPE=Prescott python ... --read codes.npz
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import switchpoint as sp
from switchpoint.neural import Network
from switchpoint.streams.coding import EXACT, NETWORK, Grid, decode, encode

LENGTH, NETWORK_LENGTH, SEGMENT = 30_000, 10_000, 300
NETWORKS = ("lstm-ptw", "rnn-ptw", "stack-rnn-ptw", "stack-lstm-ptw")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--read", type=Path)
    options = parser.parse_args()
    if options.write is not None:
        written: dict[str, Any] = {}
        for name, (predictor, symbols) in cases().items():
            written[f"{name}.code"] = np.frombuffer(
                encode(sp.Stream(predictor), symbols, grid_of(predictor)), np.uint8
            )
            written[f"{name}.probs"] = predictions(predictor, symbols)
        np.savez(options.write, **written)
    if options.read is not None:
        written = dict(np.load(options.read))
        for name, (predictor, symbols) in cases().items():
            code = written[f"{name}.code"].tobytes()
            found = decode(sp.Stream(predictor), code, len(symbols), grid_of(predictor))
            result = "the same symbols" if np.array_equal(found, symbols) else "OTHER SYMBOLS"
            difference = np.abs(predictions(predictor, symbols) - written[f"{name}.probs"]).max()
            print(
                f"{name:16} {len(symbols)} symbols: {result}; probabilities differ by up to "
                f"{difference:.1e}, the tolerance is {grid_of(predictor).tolerance:.1e}",
                flush=True,
            )


def cases() -> dict[str, tuple[sp.Predictor, np.ndarray]]:
    rng = np.random.default_rng(0)
    law = np.repeat(rng.beta(0.5, 0.5, LENGTH // SEGMENT), SEGMENT)
    bits = (rng.random(LENGTH) < law).astype(np.int32)
    symbols = rng.choice(256, 3000, p=rng.dirichlet(np.ones(256))).astype(np.int32)
    bytes_source = sp.Source(sp.PTW(20), sp.Categorical(256))
    return {
        "ptw": (sp.bayes_optimal(sp.Source(sp.PTW(40))), bits),
        "lin": (sp.bayes_optimal(sp.Source(sp.LIN()), 100), bits),
        "geometric": (sp.bayes_optimal(sp.Source(sp.Geometric(0.01)), 100), bits),
        "bytes": (sp.bayes_optimal(bytes_source), symbols),
        **{name: (sp.load(name), bits[:NETWORK_LENGTH]) for name in NETWORKS},
    }


def grid_of(predictor: sp.Predictor) -> Grid:
    return NETWORK if isinstance(predictor, Network) else EXACT


def predictions(predictor: sp.Predictor, symbols: np.ndarray) -> np.ndarray:
    """P(x_t = k | x_<t) as a stream computes it."""
    stream, found = sp.Stream(predictor), []
    for symbol in symbols.tolist():
        found.append(np.exp(stream.predict()))
        stream.update(symbol)
    return np.array(found)


if __name__ == "__main__":
    main()
