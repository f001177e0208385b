"""The forward recursion on the host: hypotheses about the start of the current segment.

Arrays have a slot for every hypothesis, and are changed in place. For independent symbols, weights
are probabilities, which take neither logarithms nor exponentials: products, quotients and sums
alone. Sums are products of matrices and vectors, the fastest of all, whose order depends on the
machine's BLAS; they decide only the prediction and the weights of new hypotheses, so that rounding
does not accumulate.
For all other families, weights are logarithms, since a single value can rule a hypothesis out by
any factor.

A full table loses its lightest hypothesis to each new one. In a run of missing observations that
would go wrong: nothing favours a start over the next, so that each new one is the lightest in its
turn, and the segment before the gap never ends. But starts with nothing observed between them have
equal statistics, and predict the same for ever. They are merged into one slot, which has the range
of these starts and the sum of their weights. With a constant hazard no prediction is changed by
that. With another one, the merged starts have the hazard of their middle, and those are merged for
which this changes least; as do the statistics of `Trend`, which count missing observations.
"""

import math
import weakref
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Float

from switchpoint._tensors import DamagedError
from switchpoint.exact import ExactPredictor
from switchpoint.segments.dirichlet import as_dirichlet
from switchpoint.streams import engine
from switchpoint.streams.engine import (
    Floats,
    HostEngine,
    Runs,
    Slots,
    SymbolEngine,
    check_arrays,
    log_ratios,
    sum_of_products,
)
from switchpoint.streams.host import Table, host_family, make_law
from switchpoint.streams.outliers import with_outlier
from switchpoint.streams.predictive import Predictive

Exact: TypeAlias = ExactPredictor[Any]

_FIRST_CAPACITY = 16
_SMALL = 1e-60  # a sum of weights below which they are rescaled
_LEAST = 1e-200  # a sum of exponentials that has lost digits
_FEW_SYMBOLS = 4  # of which each has an array to add
_LARGE = 100.0  # the logarithm of a sum of weights beyond which they are rescaled
_ONE = np.array(1.0)  # an array, which NumPy adds faster than a number
_add, _multiply, _divide, _add_up = np.add, np.multiply, np.divide, np.add.reduce
_exp = np.exp  # found faster than in a module


_PER_SLOT = ("starts", "spreads", "joint", "last_starts", "last_spreads")
_NONE = (2**62, 0.0, 0.0)  # no slot


class _Hypotheses(NamedTuple):
    """Hypotheses given all observations, before that of a segment that starts with the next."""

    starts: Floats
    spreads: dict[int, float]
    joint: Floats


class Hypotheses(HostEngine):
    """Floats for hypotheses: their starts, their weights, and the statistics since the start."""

    nothing: float
    """The weight of a slot that is not used."""
    add_weights: np.ufunc
    """The sum of two probabilities, as weights are."""

    # No engine has more than 30 attributes: beyond that CPython is slower with each of them.

    def _begin(self, predictor: Exact, first: Table) -> tuple[float, float]:
        """Begin with one hypothesis: the hazard and the survival if constant, otherwise 0."""
        self.prior = predictor.prior
        self.law = make_law(predictor.prior)
        ends, stays = 0.0, 0.0
        if predictor.prior.memoryless:
            ends, stays = (each.item() for each in self.law(np.zeros(1), np.ones(1)))
        self.memoryless = stays > 0
        """Whether all hypotheses survive an observation with one probability."""
        most = getattr(predictor, "max_hypotheses", None)
        bounds = [bound for bound in (most, predictor.prior.max_length) if bound is not None]
        self.most = min(bounds, default=math.inf)
        self.limit = predictor.prior.max_sequence or math.inf
        self.first = first
        self.table: Table = [np.repeat(each[None], 0, axis=0) for each in first]
        self.starts = np.zeros(0)
        self.weights = np.zeros(0)
        self._grow()
        self.used = 1
        self.spreads: dict[int, float] = {}
        """By slot, how far the starts that share it reach to either side of the one in `starts`.

        Never changed in place.
        """
        self.gap = (0, 0)
        """Begin and end of the last run of missing observations."""
        self.joint = np.zeros(len(self.weights))
        """The joint probabilities of the observations and each hypothesis, but for a factor."""
        self.joint[0] = 1.0
        self.replaced = _NONE
        """The slot that the last new segment took, and the start and weight that it had before."""
        self._last: _Hypotheses | None = None  # where `replaced` does not tell
        return ends, stays

    def _grow(self) -> None:
        """Double the number of slots."""
        capacity = len(self.weights)
        more = int(min(max(capacity, _FIRST_CAPACITY), self.most - capacity))
        self.starts = np.append(self.starts, np.zeros(more))
        self.weights = np.append(self.weights, np.full(more, self.nothing))
        self._room = np.empty(len(self.weights))  # for the joint probabilities
        fresh = (np.repeat(each[None], more, axis=0) for each in self.first)
        self._hold([np.append(a, b, axis=0) for a, b in zip(self.table, fresh, strict=True)])

    def _hold(self, table: Table) -> None:
        """Take over the statistics of as many hypotheses as there are slots."""
        self.table = table

    def _enter(self, weight: float) -> float:
        """Find a slot for a segment that starts now: the weight evicted if no slot is free.

        That of the lightest hypothesis, or its own; none if a slot is free, or can be added.
        """
        if weight <= self.nothing:
            return self.nothing
        weights = self.weights
        slot, dropped = self.used, self.nothing
        if slot < len(weights):
            self.used += 1
        else:
            slot = int(weights.argmin())
            dropped = weights.item(slot)
            if dropped > self.nothing and len(weights) < self.most:
                slot, dropped = len(weights), self.nothing
                self._grow()
                self.used += 1
        if weight <= dropped:
            return weight
        self._put(slot, weight)
        return dropped

    def _put(self, slot: int, weight: float) -> None:
        """Store a segment that starts now."""
        self.replaced = (slot, self.starts.item(slot), self.weights.item(slot))
        self.weights[slot] = weight
        self.starts[slot] = self.position
        if slot in self.spreads:
            self.spreads = {each: by for each, by in self.spreads.items() if each != slot}
        for array, first in zip(self.table, self.first, strict=True):
            array[slot] = first

    def _enter_unobserved(self, weight: float) -> float:
        """`_enter` after a missing observation: no start of the gap is dropped, but merged."""
        end = self.position
        begin = self.gap[0] if self.gap[1] == end - 1 else end - 1
        self.gap = (begin, end)
        full = self.used == len(self.weights) == self.most
        if weight <= self.nothing or not full or self.weights.min() <= self.nothing:
            return self._enter(weight)
        starts = np.append(self.starts, end)
        probabilities = self._relative(np.append(self.weights, weight))
        # The start at 0 is no switch, and merged with none.
        equal = starts - _by_slot(self.spreads, len(starts)) >= max(begin, 1)
        in_gap = np.flatnonzero(equal)
        in_gap = in_gap[starts[in_gap].argsort()]
        lightest = int(np.where(equal, np.inf, probabilities)[:-1].argmin())
        if len(in_gap) < 2:
            # Together, the starts of the gap may weigh more than a start before it.
            if probabilities[-1] * (end - begin) < probabilities[lightest]:
                return self._enter(weight)
        else:
            older, newer = in_gap[:-1], in_gap[1:]
            lengths = end + 1 - starts
            losses = np.minimum(probabilities[older], probabilities[newer])
            losses *= 1 - lengths[newer] / lengths[older]
            best = losses.argmin()
            if equal[lightest] or losses[best] < probabilities[lightest]:
                self._merge(int(older[best]), int(newer[best]), weight)
                return self.nothing
        dropped = self.weights.item(lightest)
        self._put(lightest, weight)
        return dropped

    def _merge(self, older: int, newer: int, weight: float) -> None:
        """Put two hypotheses into one slot, and the new one of this weight into the other.

        `newer` may be the new one, which is the one after the last slot.
        """
        entering = newer == len(self.weights)
        first = self.starts.item(older) - self.spreads.get(older, 0.0)
        last, other = float(self.position), weight
        if not entering:
            last = self.starts.item(newer) + self.spreads.get(newer, 0.0)
            other = self.weights.item(newer)
        one = self.weights.item(older)
        shares = self._relative(np.array([one, other]))
        share = shares[1] / shares.sum()
        for array, initial in zip(self.table, self.first, strict=True):
            other_cell = initial if entering else array[newer]
            array[older] = array[older] + share * (other_cell - array[older])
        self.weights[older] = self.add_weights(one, other)
        self.starts[older] = (first + last) / 2
        self.spreads = {**self.spreads, older: (last - first) / 2}
        if not entering:
            self._put(newer, weight)

    @abstractmethod
    def _relative(self, weights: Floats) -> Floats:
        """Probabilities with these weights, but for a common factor."""

    def _hazards(self, runs: Floats) -> tuple[Floats, Floats]:
        """P(a segment ends here | it lasted until here) of each hypothesis, and P(it does not)."""
        if self.spreads:
            return self.law(np.ceil(self.starts), np.floor(self.position - self.starts))
        return self.law(self.starts, runs)

    def check_length(self, length: int) -> None:
        self.prior.check_length(length)

    def _given_all(self) -> _Hypotheses:
        if self._last is not None:
            return self._last
        joint = self.joint.copy()
        starts = self.starts[: len(joint)].copy()
        slot, start, weight = self.replaced
        if slot < len(joint):
            starts[slot] = start
            if self.joint is self.weights:
                joint[slot] = weight
        return _Hypotheses(starts, {}, joint)

    def _runs(self) -> Runs:
        # Of the slots in use alone: the order of a sum depends on their number.
        used, last = self.used, self._last
        if last is not None:
            lengths, joint = self.position - last.starts[:used], last.joint[:used]
            spreads = _by_slot(last.spreads, len(lengths)) if last.spreads else None
            return Runs(lengths, joint / _add_up(joint), spreads)
        joint = self.joint[:used]
        lengths = self.position - self.starts[: len(joint)]
        slot, start, weight = self.replaced
        if slot < len(joint):
            lengths[slot] = self.position - start
            if self.joint is self.weights:
                joint = joint.copy()
                joint[slot] = weight
        return Runs(lengths, joint / _add_up(joint))

    def levels(self, since: int) -> tuple[Any, Any]:
        starts = self.starts[: self.used]
        old = starts < self.position
        sides = old & (starts < since), old & (starts >= since)
        before, after = (self._level(np.flatnonzero(side)) for side in sides)
        return before, after

    @abstractmethod
    def _level(self, slots: np.ndarray) -> Any:
        """The mean of the next observation under the hypotheses of these slots."""

    def arrays(self) -> dict[str, np.ndarray]:
        used, (last_starts, last_spreads, joint) = self.used, self._given_all()
        return {
            "starts": self.starts[:used],
            "weights": self.weights[:used],
            "spreads": _by_slot(self.spreads, used),
            "last_starts": last_starts[:used],
            "joint": joint[:used],
            "last_spreads": _by_slot(last_spreads, len(last_starts))[:used],
            "gap": np.array(self.gap, np.float64),
            **{
                f"statistics_{i}": array[:used].astype(np.float64)
                for i, array in enumerate(self._leaves())
            },
        }

    def _leaves(self) -> Sequence[np.ndarray]:
        """The statistics of all slots, in the form in which they are saved."""
        return self.table

    def _tabulate(self, leaves: Sequence[np.ndarray]) -> Table:
        """The table of these leaves."""
        return list(leaves)

    def adopt(self, slots: Slots, gap: Any) -> None:
        arrays = {name: array for name, array in slots._asdict().items() if name in _PER_SLOT}
        weights, leaves = self._own_form(slots)
        statistics = {f"statistics_{i}": np.asarray(each, float) for i, each in enumerate(leaves)}
        Hypotheses.restore(self, {**arrays, **statistics, "weights": weights, "gap": gap})

    def slots(self) -> Slots:
        """All hypotheses, in the form that `adopt` takes over."""
        arrays, (log_weights, statistics) = Hypotheses.arrays(self), self._common_form()
        per_slot = {name: arrays[name] for name in _PER_SLOT}
        return Slots(**per_slot, log_weights=log_weights, statistics=statistics)

    @abstractmethod
    def _own_form(self, slots: Slots) -> tuple[Floats, Sequence[np.ndarray]]:
        """The weights and the leaves of slots."""

    @abstractmethod
    def _common_form(self) -> tuple[Floats, list[np.ndarray]]:
        """The logarithms of the weights, and the leaves of the statistics of the segment model."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        count, last_count = len(arrays["weights"]), len(arrays["joint"])
        leaves = self._leaves()
        shapes: dict[str, tuple[int | None, ...]] = {
            f"statistics_{i}": (count, *leaf.shape[1:]) for i, leaf in enumerate(leaves)
        }
        shapes.update(dict.fromkeys(("starts", "weights", "spreads"), (count,)))
        shapes.update(dict.fromkeys(("last_starts", "joint", "last_spreads"), (last_count,)))
        check_arrays(arrays, {**shapes, "gap": (2,)})
        if not 0 < count <= self.most:
            raise DamagedError(f"its arrays are of {count} hypotheses, of at most {self.most}")
        while len(self.weights) < count:
            self._grow()
        self.used, self._known = count, None
        self.weights[count:] = self.nothing
        self.starts[:count], self.weights[:count] = arrays["starts"], arrays["weights"]
        saved = [arrays[f"statistics_{i}"].astype(leaf.dtype) for i, leaf in enumerate(leaves)]
        for array, rows in zip(self.table, self._tabulate(saved), strict=True):
            array[:count] = rows
        self._hold(self.table)
        self.spreads = _merged(arrays["spreads"])
        begin, end = arrays["gap"].tolist()
        self.gap = int(begin), int(end)
        last_starts, joint = arrays["last_starts"].copy(), arrays["joint"].copy()
        self._last = _Hypotheses(last_starts, _merged(arrays["last_spreads"]), joint)


class CountHypotheses(Hypotheses, SymbolEngine):
    """The recursion over independent symbols, whose weights are proportional to probabilities.

    P(k) = count of k / total. Counts with the pseudo-counts, their totals and the run lengths are
    the rows of one array: a symbol adds to all in one sum. That is ten times as fast as the
    formulas of the family.
    """

    name = "symbols"
    nothing = 0.0
    add_weights = np.add

    def __init__(self, predictor: Exact) -> None:
        SymbolEngine.__init__(self, predictor.segment)
        pseudo = np.asarray(as_dirichlet(predictor.segment).pseudo_counts, np.float64)
        self._sums: list[float] = []  # of the joint probabilities, once computed
        self._total = 0.0
        ends, stays = self._begin(predictor, [np.array([*pseudo, pseudo.sum(), 0.0])])
        self.weights[0] = 1.0
        self.odds = ends / stays if self.memoryless else 0.0

    def _hold(self, table: Table) -> None:
        rows = np.array(table[0].T, order="C")
        counts, totals, self._run_lengths = rows[:-2], rows[-2], rows[-1]
        shares, sums = np.empty_like(totals), np.empty(len(counts))
        super()._hold([rows.T])
        # What the methods below need, in one attribute: they are called for every symbol.
        add_up = counts.dot if counts.size <= engine.FEW else partial(_add_products, counts)
        self._to_mix = totals, shares, sums, add_up
        increments = None
        if len(counts) <= _FEW_SYMBOLS:
            by_symbol = np.append(np.eye(len(counts)), np.ones((len(counts), 2)), axis=1)
            increments = [np.repeat(each, len(totals)) for each in by_symbol]
        self._to_absorb = list(counts), shares, self._room, rows.ravel(), increments

    def _mix(self) -> list[float]:
        """P(the next symbol is k) for each k, but for a common factor."""
        totals, shares, sums, add_up = self._to_mix
        _divide(self.weights, totals, shares)
        add_up(shares, sums)
        self._sums = found = sums.tolist()
        self._total = found[0] + found[1] if len(found) == 2 else math.fsum(found)
        return found

    def predict(self) -> Float[np.ndarray, " alphabet"]:
        sums = self._sums or self._mix()
        return log_ratios(sums, self._total)

    def step(self, x: int) -> float:
        if self.position >= self.limit:
            self.check_length(self.position + 1)
        enter = self._enter
        if x < 0:
            enter = self._enter_unobserved
            log_prob, joint, norm = 0.0, self.weights.copy(), float(np.add.reduce(self.weights))
            _add(self._run_lengths, _ONE, self._run_lengths)
        else:
            sums = self._sums or self._mix()
            norm = sums[x]
            log_prob = math.log(norm / self._total)
            joint = self._absorb(x)
            if norm < _SMALL:
                scale = 2.0 ** -math.frexp(norm)[1]  # exact, on every machine
                _multiply(joint, np.array(scale), joint)
                norm *= scale
        self._sums = []
        self._last = None
        if x < 0 or self.spreads:
            self._last = _Hypotheses(self.starts.copy(), self.spreads, joint.copy())
        self.joint, self.replaced = joint, _NONE
        self.position += 1
        if self.memoryless:
            self.weights = joint
            enter(norm * self.odds)  # instead of all others times `stays`
            return log_prob
        ends, stays = self._hazards(self._run_lengths)
        self.weights = _multiply(joint, stays)
        enter(float(sum_of_products(joint, ends)))
        return log_prob

    def _absorb(self, symbol: int) -> Floats:
        """The joint probabilities of a symbol and each hypothesis, whose counts have it then.

        The array is changed by the next call, not before.
        """
        rows, shares, room, everything, increments = self._to_absorb
        row = rows[symbol]
        joint = _multiply(shares, row, room)
        if increments is not None:
            _add(everything, increments[symbol], everything)
        else:
            _add(row, _ONE, row)
            always = everything[-2 * len(row) :]
            _add(always, _ONE, always)
        return joint

    def _level(self, slots: np.ndarray) -> Any:
        rows, weights = self.table[0][slots], self.weights[slots]
        with np.errstate(invalid="ignore"):
            return weights @ (rows[:, :-2] / rows[:, -2:-1]) / weights.sum()

    def _relative(self, weights: Floats) -> Floats:
        return weights

    def _own_form(self, slots: Slots) -> tuple[Floats, Sequence[np.ndarray]]:
        counts = slots.statistics[0] + self.first[0][:-2]
        rows = [counts, counts.sum(1), self.position - slots.starts]
        return np.exp(slots.log_weights), [np.column_stack(rows)]

    def _common_form(self) -> tuple[Floats, list[np.ndarray]]:
        weights, rows = self.weights[: self.used], self.table[0][: self.used]
        with np.errstate(divide="ignore"):
            return np.log(weights / math.fsum(weights)), [rows[:, :-2] - self.first[0][:-2]]

    def adopt(self, slots: Slots, gap: Any) -> None:
        super().adopt(slots, gap)
        self._sums = []

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().restore(arrays)
        self._sums = []


class FamilyHypotheses(Hypotheses):
    """The recursion over the observations of any family, whose weights are logarithms."""

    name = "values"
    nothing = -math.inf
    add_weights = np.logaddexp

    def __init__(
        self, predictor: Exact, columns: tuple[str, ...] | None, outliers: float | None = None
    ) -> None:
        super().__init__(predictor.segment, columns)
        self.outliers = outliers
        self.family = host_family(predictor.segment)
        ends, stays = self._begin(predictor, self.family.first)
        self.weights[0] = 0.0
        self.norm = 0.0
        """The logarithm of the sum of the weights."""
        if self.memoryless:
            self.log_odds = math.log(ends / stays)
            self.log_stays = math.log(stays)
        self._predicted: weakref.ref[Predictive] | None = None

    def _hold(self, table: Table) -> None:
        super()._hold(table)
        self._ones = np.ones(len(self.weights))

    def predict(self) -> Any:
        if self.family.finite:
            probs = self.family.probs(self.table).T
            sums = sum_of_products(probs, np.exp(self.weights - self.norm)).tolist()
            return log_ratios(sums, math.fsum(sums))
        predictive = None if self._predicted is None else self._predicted()
        if predictive is None:
            predictive = Predictive(self.family, self.weights, self.table)
            self._predicted = weakref.ref(predictive)
        return predictive

    def step(self, x: Any) -> float:
        if self.position >= self.limit:
            self.check_length(self.position + 1)
        if self._predicted is not None:
            predictive = self._predicted()
            if predictive is not None:
                predictive.detach()  # it is still in use, and the arrays are about to change
            self._predicted = None
        weights, top, enter = self.weights, 0.0, self._enter
        logs = self._absorb(x)
        missing = logs is None
        if missing:
            enter = self._enter_unobserved
        else:
            _add(weights, logs, weights)
        joint = _exp(weights, self._room)
        total = float(sum_of_products(joint, self._ones))
        if not _LEAST < total < 1 / _LEAST:  # an improbable value, or weights far apart
            top = weights.item(weights.argmax())
            joint = np.exp(weights - top)
            total = float(sum_of_products(joint, self._ones))
        evidence = top + math.log(total)
        log_density = 0.0 if missing else evidence - self.norm
        self._last = None
        if missing or self.spreads:
            self._last = _Hypotheses(self.starts.copy(), self.spreads, joint.copy())
        self.joint, self.replaced = joint, _NONE
        self.position += 1
        if self.memoryless:
            # The new weight is divided by `stays`, instead of all others times it.
            dropped = enter(evidence + self.log_odds)
            norm = evidence - self.log_stays
        else:
            ends, stays = self._hazards(self.position - self.starts)
            with np.errstate(divide="ignore"):
                weights += np.log(stays)
            dropped = enter(_log(float(sum_of_products(joint, ends))) + top)
            norm = evidence
        if dropped > self.nothing:
            norm += math.log1p(-math.exp(dropped - norm))
        if abs(norm) > _LARGE:
            self.weights -= norm
            norm = 0.0
        self.norm = norm
        return log_density

    def elapse(self, time: float) -> None:
        """Let time pass after the last observation, in all segments that have begun with it."""
        self.family.elapse(self.table, time)
        slot = self.replaced[0]
        if slot < self.used and self.starts[slot] == self.position:
            for array, first in zip(self.table, self.first, strict=True):
                array[slot] = first

    def _absorb(self, x: Any) -> Any:
        """ln p(x) under each hypothesis; its statistics then include x, unless it is an outlier."""
        if self.outliers is None:
            return self.family.absorb(self.table, x)
        self.outlier_evidence = 0.0
        before, slot = list(self.table), self.replaced[0]
        logs = self.family.absorb(self.table, x)
        if logs is None:
            return None
        if slot < self.used and self.starts[slot] == self.position:
            fresh = logs.item(slot)
        else:
            fresh = self.family.absorb(self.family.rows(1), x).item()
        mixed, left_out = with_outlier(logs, fresh, self.outliers)
        odd = np.flatnonzero(left_out)
        if len(odd):
            evidence = fresh - logs.item(int(self.weights.argmax()))
            self.outlier_evidence = max(0.0, evidence)
            for after, leaf, fitted in zip(self.table, before, self.family.fitted, strict=True):
                if fitted:
                    after[odd] = leaf[odd]
        return mixed

    def _level(self, slots: np.ndarray) -> Any:
        slots = slots[self.weights[slots] > self.nothing]
        if not len(slots):
            return np.full(self.segment.event_shape, np.nan)[()]
        weights = np.full(len(self.weights), -np.inf)  # of one shape: JAX compiles for each
        weights[slots] = self.weights[slots]
        if self.segment.finite:
            shares = np.exp(weights - np.logaddexp.reduce(weights))
            return shares @ np.asarray(self.family.probs(self.table))
        return Predictive(self.family, weights, self.table).mean

    def _relative(self, weights: Floats) -> Floats:
        return np.exp(weights - weights.max())

    def _own_form(self, slots: Slots) -> tuple[Floats, Sequence[np.ndarray]]:
        return slots.log_weights, slots.statistics

    def _common_form(self) -> tuple[Floats, list[np.ndarray]]:
        log_weights = self.weights[: self.used] - self.norm
        return log_weights, [leaf[: self.used] for leaf in self._leaves()]

    def _leaves(self) -> Sequence[np.ndarray]:
        leaves: list[np.ndarray] = jax.tree.leaves(self.family.statistics(self.table))
        return leaves

    def _tabulate(self, leaves: Sequence[np.ndarray]) -> Table:
        return self.family.table(leaves)

    def adopt(self, slots: Slots, gap: Any) -> None:
        super().adopt(slots, gap)
        self.norm = 0.0

    def arrays(self) -> dict[str, np.ndarray]:
        cached = {f"cached_{i}": self.table[i][: self.used] for i in self.family.cached}
        return {**super().arrays(), "norm": np.array(self.norm), **cached}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        rest = dict(arrays)
        check_arrays({"norm": rest.pop("norm", np.zeros(1))}, {"norm": ()})
        cached = {name: rest.pop(name) for name in arrays if name.startswith("cached_")}
        super().restore(rest)
        self.norm = float(arrays["norm"])
        if cached:  # earlier states have none
            rows = {i: self.table[i][: self.used] for i in self.family.cached}
            check_arrays(cached, {f"cached_{i}": part.shape for i, part in rows.items()})
            for i, part in rows.items():
                part[:] = cached[f"cached_{i}"]


def _by_slot(spreads: Mapping[int, float], count: int) -> Floats:
    """The spreads of all slots."""
    array = np.zeros(count)
    if spreads:
        array[list(spreads)] = list(spreads.values())
    return array


def _merged(spreads: Floats) -> dict[int, float]:
    """The spreads that are not 0, by slot."""
    slots = np.flatnonzero(spreads)
    return dict(zip(slots.tolist(), spreads[slots].tolist(), strict=True))


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def _add_products(left: np.ndarray, right: Floats, out: np.ndarray) -> None:
    """The product of a large matrix with a vector, on one core."""
    np.add.reduce(left * right, -1, out=out)
