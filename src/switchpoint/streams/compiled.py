"""Any other predictor: its own compiled `update` and `predict`, observation by observation."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from switchpoint import _checks
from switchpoint._tensors import DamagedError
from switchpoint.predictor import Predictor
from switchpoint.streams.engine import Engine, Runs


class CompiledEngine(Engine):
    """The state of a predictor, such as a Transformer or one of your own."""

    name = "compiled"

    def __init__(self, predictor: Predictor[Any]) -> None:
        self.predictor = predictor
        self.state = predictor.init()

    def predict(self) -> Any:
        prediction = self.predictor.predict(self.state)
        if not hasattr(prediction, "log_density"):
            return np.asarray(prediction, np.float64)
        return prediction

    def update(self, x: Any) -> float:
        missing = _checks.is_missing(x)
        prediction = self.predict()
        symbols = isinstance(prediction, np.ndarray)
        if missing and symbols and not hasattr(self.predictor, "posterior"):
            name = type(self.predictor).__name__
            raise ValueError(f"a missing symbol cannot be read by a {name}, got {x}")
        self.state = self.predictor.update(self.state, np.nan if missing else x)
        self.position += 1
        if missing:
            return 0.0
        logs = prediction[int(x)] if symbols else prediction.log_density(np.asarray(x, np.float64))
        self.log_evidence += float(logs)
        return float(logs)

    def extend(self, xs: Any) -> Float[np.ndarray, " time"]:
        if hasattr(xs, "columns") and hasattr(xs, "to_numpy"):  # whose iterator gives names
            xs = xs.to_numpy()
            xs = xs[:, 0] if xs.shape[1] == 1 else xs
        before = self.state, self.position, self.log_evidence
        try:
            return np.array([self.update(x) for x in xs], np.float64)
        except BaseException:
            self.state, self.position, self.log_evidence = before
            raise

    def _runs(self) -> Runs:
        raise no_posterior(self.predictor)

    def levels(self, since: int) -> tuple[Any, Any]:
        del since
        raise no_posterior(self.predictor)

    def arrays(self) -> dict[str, np.ndarray]:
        leaves = jax.tree.leaves(self.state)
        return {f"state_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        leaves, structure = jax.tree.flatten(self.predictor.init())
        if {f"state_{i}" for i in range(len(leaves))} != set(arrays):
            raise DamagedError("its arrays are not those of its predictor")
        found = [arrays[f"state_{i}"] for i in range(len(leaves))]
        for i, (leaf, array) in enumerate(zip(leaves, found, strict=True)):
            if leaf.dtype != array.dtype or leaf.ndim != array.ndim:  # memories grow
                raise DamagedError(f"its array state_{i} is {array.dtype} of shape {array.shape}")
        self.state = jax.tree.unflatten(structure, [jnp.asarray(array) for array in found])


def no_posterior(predictor: Predictor[Any]) -> TypeError:
    """An error that says that a predictor, or its compiled stream, has no posterior."""
    if hasattr(predictor, "posterior"):
        return TypeError(
            f"a stream of {predictor!r} runs by its compiled update, which keeps no posterior: use "
            "predictor.posterior(values)"
        )
    return TypeError(
        f"a {type(predictor).__name__} has no posterior over switching points: use the exact "
        "predictor of a source, switchpoint.bayes_optimal(source)"
    )
