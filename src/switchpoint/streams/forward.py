"""The forward recursion on the host: hypotheses about the start of the current segment.

Arrays have a slot for every hypothesis, and are changed in place. For symbols, weights are
probabilities, which take neither logarithms nor exponentials: sums, products and quotients alone,
with NumPy's pairwise sums, whose order depends on the length alone. For values, weights are
logarithms, since a single value can rule a hypothesis out by any factor.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from switchpoint._tensors import DamagedError
from switchpoint.exact import ForwardPredictor, PTWPredictor
from switchpoint.streams.engine import Engine, SymbolEngine, ValueEngine, check_arrays
from switchpoint.streams.families import Family, SymbolFamily, allocate
from switchpoint.streams.laws import make_law
from switchpoint.streams.predictive import Predictive

Exact: TypeAlias = ForwardPredictor | PTWPredictor
Slots: TypeAlias = Float[np.ndarray, " slots"]

_FIRST_CAPACITY = 16
_NONE = (2**62, 0.0)  # no slot


class Hypotheses(Engine):
    """Slots for hypotheses: their starts, their weights, and the statistics since the start."""

    nothing: float
    """The weight of a slot that is not used."""

    def __init__(self, predictor: Exact, family: Family) -> None:
        self.prior = predictor.prior
        self.law = make_law(predictor.prior)
        self.family = family
        self.first = family.initial()
        most = getattr(predictor, "max_hypotheses", None)
        bounds = [bound for bound in (most, predictor.prior.max_length) if bound is not None]
        self.most = min(bounds, default=math.inf)
        self.limit = predictor.prior.max_sequence or math.inf
        self.starts = np.zeros(0)
        self.weights = np.zeros(0)
        self.table = allocate(family, 0)
        self._grow()
        self.used = 1
        self.joint = self.weights.copy()
        """Proportional to P(the current segment started there | all observations)."""
        self.replaced = _NONE
        """The slot that the last new segment took, and the start it had for `joint`."""

    def _grow(self) -> None:
        capacity = len(self.weights)
        more = int(min(max(capacity, _FIRST_CAPACITY), self.most - capacity))
        self.starts = np.append(self.starts, np.zeros(more))
        self.weights = np.append(self.weights, np.full(more, self.nothing))
        fresh = allocate(self.family, more)
        self.table = [np.append(a, b, axis=-1) for a, b in zip(self.table, fresh, strict=True)]

    def _enter(self, weight: float) -> float:
        """Find a slot for a segment that starts now: the weight that is dropped for want of one.

        That of the lightest hypothesis, or its own; none if a slot is free, or can be added.
        """
        self.replaced = _NONE
        if weight <= self.nothing:
            return self.nothing
        slot, dropped = self.used, self.nothing
        if slot < len(self.weights):
            self.used += 1
        else:
            slot = int(self.weights.argmin())
            dropped = float(self.weights[slot])
            if dropped > self.nothing and len(self.weights) < self.most:
                slot, dropped = len(self.weights), self.nothing
                self._grow()
                self.used += 1
        if weight <= dropped:
            return weight
        self.replaced = (slot, float(self.starts[slot]))
        self.weights[slot] = weight
        self.starts[slot] = self.position
        for array, first in zip(self.table, self.first, strict=True):
            array[..., slot] = first
        return dropped

    def _check_length(self) -> None:
        if self.position >= self.limit:
            self.prior.check_length(self.position + 1)

    def runs(self) -> tuple[Slots, Slots]:
        return self.position - self._last_starts(), self.joint / self.joint.sum()

    def _last_starts(self) -> Slots:
        """The starts that `joint` is about."""
        starts = self.starts[: len(self.joint)].copy()
        slot, start = self.replaced
        if slot < len(starts):
            starts[slot] = start
        return starts

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "starts": self.starts[: self.used],
            "weights": self.weights[: self.used],
            "last_starts": self._last_starts()[: self.used],
            "joint": self.joint[: self.used],
            **{
                f"statistics_{i}": array[..., : self.used].astype(np.float64)
                for i, array in enumerate(self.table)
            },
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        shapes: dict[str, tuple[int | None, ...]] = {
            f"statistics_{i}": (*first.shape, None) for i, first in enumerate(self.first)
        }
        own = dict.fromkeys(("starts", "weights", "last_starts", "joint"), (None,))
        check_arrays(arrays, {**own, **shapes})
        count = len(arrays["weights"])
        sizes = {array.shape[-1] for name, array in arrays.items() if name in shapes}
        if sizes != {count} or len(arrays["starts"]) != count or not 0 < count <= self.most:
            raise DamagedError(f"its arrays are of {sizes} hypotheses, not of {count}")
        while len(self.weights) < count:
            self._grow()
        self.used = count
        self.starts[:count], self.weights[:count] = arrays["starts"], arrays["weights"]
        for i, array in enumerate(self.table):
            array[..., :count] = arrays[f"statistics_{i}"]
        # A new segment took at most one slot since, and that is the one whose start differs.
        self.joint = arrays["joint"].copy()
        last = arrays["last_starts"]
        changed = np.flatnonzero(last != self.starts[: len(last)])
        self.replaced = (int(changed[0]), float(last[changed[0]])) if len(changed) else _NONE


class SymbolHypotheses(Hypotheses, SymbolEngine):
    """The recursion over symbols, whose weights are probabilities."""

    name = "symbols"
    nothing = 0.0

    def __init__(self, predictor: Exact, family: SymbolFamily) -> None:
        SymbolEngine.__init__(self, predictor.alphabet)
        Hypotheses.__init__(self, predictor, family)
        self.symbol_family = family
        self.weights[0] = 1.0
        self.joint = self.weights.copy()
        self._sums: list[float] | None = None  # of the joint probabilities, once computed

    def _grow(self) -> None:
        super()._grow()
        # Two, since `joint` is a row of the one that was used last.
        shape = (2, self.alphabet, len(self.weights))
        self._buffers = [*np.zeros(shape)]

    def _mix(self) -> list[float]:
        """P(the next symbol is k) for each k, but for a common factor."""
        self._buffers.reverse()
        self.symbol_family.joint(self.table, self.weights, self._buffers[0])
        self._sums = np.add.reduce(self._buffers[0], 1).tolist()
        return self._sums

    def predict(self) -> Float[np.ndarray, " alphabet"]:
        sums = self._sums or self._mix()
        total = math.fsum(sums)
        if len(sums) > 8:
            return np.log(np.array(sums) / total)
        return np.array([math.log(each / total) for each in sums])

    def step(self, symbol: int) -> float:
        if self.position >= self.limit:
            self._check_length()
        if symbol < 0:
            log_prob, joint, norm = 0.0, self.weights.copy(), float(self.weights.sum())
            self.family.skip(self.table)
        else:
            sums = self._sums or self._mix()
            joint, norm = self._buffers[0][symbol], sums[symbol]
            log_prob = math.log(norm / math.fsum(sums))
            self.symbol_family.count(self.table, symbol)
        self._sums = None
        self.joint = joint
        self.position = time = self.position + 1
        ends, stays = self.law(time, self.starts)
        if isinstance(ends, float):
            np.multiply(joint, np.array(stays / norm), self.weights)
            self._enter(ends)
        else:
            np.multiply(joint, stays, self.weights)
            np.multiply(self.weights, np.array(1 / norm), self.weights)
            self._enter(float(np.add.reduce(joint * ends)) / norm)
        return log_prob

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().restore(arrays)
        self._sums = None


class ValueHypotheses(Hypotheses, ValueEngine):
    """The recursion over values, whose weights are logarithms."""

    name = "values"
    nothing = -math.inf

    def __init__(self, predictor: Exact, family: Family, columns: tuple[str, ...] | None) -> None:
        ValueEngine.__init__(self, predictor.segment, columns)
        Hypotheses.__init__(self, predictor, family)
        self.weights[0] = 0.0
        self.joint = np.exp(self.weights)
        self.norm = 0.0
        """The logarithm of the sum of the weights."""

    def predict(self) -> Predictive:
        return Predictive(self.family, self.weights.copy(), [each.copy() for each in self.table])

    def step(self, x: Any) -> float:
        if self.position >= self.limit:
            self._check_length()
        weights = self.weights
        missing = np.isnan(x).all() if self.segment.event else x != x
        if missing:
            self.family.skip(self.table)
        else:
            np.add(weights, self.family.absorb(self.table, x), weights)
        top = weights.item(weights.argmax())
        joint = np.exp(weights - top)
        total = float(np.add.reduce(joint))
        evidence = top + math.log(total)
        self.joint = joint
        self.position = time = self.position + 1
        ends, stays = self.law(time, self.starts)
        if isinstance(ends, float):
            np.subtract(weights, np.array(evidence - _log(float(stays))), weights)
            dropped = self._enter(math.log(ends))
        else:
            with np.errstate(divide="ignore"):
                weights += np.log(stays) - evidence
            dropped = self._enter(_log(float(np.add.reduce(joint * ends)) / total))
        log_density = 0.0 if missing else evidence - self.norm
        self.norm = math.log1p(-math.exp(dropped))
        return log_density

    def arrays(self) -> dict[str, np.ndarray]:
        return {**super().arrays(), "norm": np.array(self.norm)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        rest = dict(arrays)
        check_arrays({"norm": rest.pop("norm", np.zeros(1))}, {"norm": ()})
        super().restore(rest)
        self.norm = float(arrays["norm"])


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf
