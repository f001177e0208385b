"""A stream: a predictor and its state, one observation after another."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from switchpoint import _checks
from switchpoint._files import atomic_write
from switchpoint._labels import keeps_labels
from switchpoint.exact import KT, ForwardPredictor, KTOracle, PTWPredictor
from switchpoint.neural import Recurrent
from switchpoint.predictor import Predictor
from switchpoint.segments import Dirichlet
from switchpoint.streams.compiled import CompiledEngine
from switchpoint.streams.engine import Engine
from switchpoint.streams.forward import CountHypotheses, FamilyHypotheses
from switchpoint.streams.networks import RecurrentEngine
from switchpoint.streams.symbols import LARGEST_ALPHABET, CountEngine, TreeEngine

Method = TypeVar("Method", bound=Callable[..., Any])

_LEAST_LOG_WEIGHT = -600.0


def _alone(method: Method) -> Method:
    """Refuse a call of this method while another thread is inside a call."""

    @functools.wraps(method)
    def checked(self: Any, *arguments: Any, **options: Any) -> Any:
        if self._busy:
            raise _in_use()
        self._busy = True
        try:
            return method(self, *arguments, **options)
        finally:
            self._busy = False

    return checked  # type: ignore[return-value]


def _in_use() -> RuntimeError:
    return RuntimeError(
        "this stream is in use by another thread: a Stream takes one call at a time, so protect it "
        "with a lock, or give each thread a stream of its own"
    )


@dataclass(frozen=True)
class RunLength:
    """The length of the current segment up to now, given all observations so far.

    See `Stream` for an example.
    """

    mean: float
    """Its posterior mean; 0 before the first observation."""
    mode: int
    """The most probable length."""


class Stream:
    """A predictor on a stream of x_0, x_1, ..., at full speed on the host, in double precision.

    With t observations so far, `predict` is p(x_t | x_<t), `update(x)` gives ln p(x | x_<t) in nats
    and goes on to t + 1, and `code_length` is -log2 p(x_<t). For an exact predictor the posterior
    of r, the length of the current segment, is at hand: `run_length` is E[r | x_<t] and its mode,
    `change_probability(n)` is P(r <= n, r < t | x_<t).

        >>> import switchpoint as sp
        >>> stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.Geometric(0.05))))
        >>> logs = stream.extend([0] * 20 + [1] * 5)
        >>> stream.position, round(stream.code_length, 2), stream.run_length.mode
        (25, 10.21, 5)
        >>> round(stream.change_probability(last=6), 2)
        0.98

    `save` writes the state to a file, and `Stream.load` continues from it; `dumps` and `loads` do
    the same with bytes, as do `copy` and `pickle`.

    An observation takes O(1) time for KT, O(log t) for PTW, and otherwise O(t), or
    O(max_hypotheses), times the cost of the family; so does the state. Nothing is compiled, but for
    predictors of your own, for mixtures of sources and for Transformers, whose compiled `update`
    and `predict` are called, and for families and priors whose formulas do not work on NumPy
    arrays. `columns` names the columns of an `Independent` source, whose observations may then be
    mappings by name.

    With `outliers` = e, a stream of values is robust: each observation is an outlier with
    probability e, drawn as the first of a segment that ends with it. Under a hypothesis with the
    density f, x has the density (1 - e) f(x) + e f_0(x), with f_0 that of a fresh segment, and it
    is left out of the statistics if the second term is the larger. So a single value cannot move
    the odds of a switch to it by more than 1 / e, and does not widen the noise of its segment.

    A stream is not thread-safe: it takes one call at a time. A call while another thread is inside
    one raises a `RuntimeError` and changes nothing. Threads may take turns, and different streams
    are independent of each other.
    """

    # Whether a call is in progress. The interpreter changes threads at calls and at the ends of
    # loops, so not between the test of the flag and its setting; a lock would take ten times as
    # long. The methods that are called most have the code of `_alone` in their own.
    _busy = False

    def __init__(
        self,
        predictor: Any,
        *,
        columns: Sequence[str] | None = None,
        outliers: float | None = None,
    ) -> None:
        if not isinstance(predictor, Predictor):
            raise ValueError(
                "predictor must be a Predictor, such as switchpoint.bayes_optimal(source) or "
                f"switchpoint.load('lstm-ptw'), got {_checks.shown(predictor)}"
            )
        self.predictor = predictor
        self.columns = None if columns is None else _checked_columns(columns, predictor)
        if outliers is not None:
            outliers = _checks.probability("outliers", outliers, below_one=True)
        self.outliers = outliers
        self.notes: dict[str, Any] = {}
        """What is to be saved with the stream, as JSON has it; nothing else depends on it."""
        self._engine = make_engine(predictor, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        return {"columns": self.columns, "outliers": self.outliers}

    def predict(self) -> Any:
        """ln P(x = k | all so far) of the next observation, in float64.

        Without an alphabet it is a distribution: with `log_density(x)`, `cdf(x)`, `mean`,
        `variance`, `quantile(q)` and `sample(key)`.
        """
        if self._busy:
            raise _in_use()
        self._busy = True
        try:
            return self._engine.predict()
        finally:
            self._busy = False

    def update(self, x: Any) -> float:
        """Observe x: ln p(x | all before) in nats.

        x is a number, or several for a source of several columns: in a list, or in a mapping by
        column (its name, or its number from 0). NaN and None are missing, as is a column that a
        mapping leaves out. The log density of a missing observation is 0.
        """
        if self._busy:
            raise _in_use()
        self._busy = True
        try:
            return self._engine.update(x)
        finally:
            self._busy = False

    @keeps_labels("log_density")
    @_alone
    def extend(self, xs: Any) -> Float[np.ndarray, " time"]:
        """Observe many: ln p(x | all before) of each. If one is refused, none is observed.

        Those of a Series or a DataFrame are a Series with its index.
        """
        return self._engine.extend(xs)

    @property
    def position(self) -> int:
        """The number of observations so far, missing ones included."""
        return self._engine.position

    @property
    def code_length(self) -> float:
        """-log2 of the probability (or density) of all observations so far, in bits."""
        return 0.0 - self._engine.log_evidence / math.log(2)

    @property
    def outlier_evidence(self) -> float:
        """The evidence that the last observation x is an outlier: ln f_0(x) / f(x), or 0 if less.

        f is the density under the most probable segment so far, f_0 that of a fresh segment; a
        value of that segment has P(f_0 / f >= c) <= 1 / c. It is 0 in a stream without `outliers`,
        and where x is not left out of the statistics.
        """
        return self._engine.outlier_evidence

    @property
    def run_length(self) -> RunLength:
        """The length of the current segment, up to and including the last observation."""
        if self._busy:
            raise _in_use()
        self._busy = True
        try:
            runs = self._engine.runs()
            return RunLength(runs.mean(), runs.mode())
        finally:
            self._busy = False

    def change_probability(self, last: int) -> float:
        """P(at least one switch within the last `last` observations | all so far).

        A switch at an observation means that a segment starts with it; the first observation of
        all is none.
        """
        if self._busy:
            raise _in_use()
        self._busy = True
        try:
            if last.__class__ is not int or last < 1:
                last = _checks.positive_int("last", last)
            return self._engine.probability_since(max(1, self._engine.position - last))
        finally:
            self._busy = False

    @_alone
    def starts(self) -> tuple[Float[np.ndarray, " starts"], Float[np.ndarray, " starts"]]:
        """The possible starts of the current segment, increasing, and P(start | all so far)."""
        runs = self._engine.runs()
        starts = np.ceil(self.position - runs.lengths)
        order = starts.argsort(kind="stable")
        return starts[order], runs.probabilities[order]

    @_alone
    def levels(self, since: int) -> tuple[Any, Any]:
        """E[the next observation | the current segment started before `since`], and since then.

        A number, an array of columns, or the probabilities of the symbols; NaN where it cannot be.
        """
        return self._engine.levels(_checks.whole_number("since", since))

    @_alone
    def dumps(self) -> bytes:
        """The predictor and the state as bytes, as in a file that `save` writes."""
        return self._dumps()

    @classmethod
    def loads(cls, content: bytes, *, predictor: Predictor[Any] | None = None) -> "Stream":
        """A stream that continues where another was when `dumps` was called."""
        return cls._from(content, predictor)

    @_alone
    def save(self, path: str | PathLike[str]) -> None:
        """Write the predictor and the state to a file, atomically."""
        with atomic_write(Path(path), "path") as file:
            file.write(self._dumps())

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, predictor: Predictor[Any] | None = None
    ) -> "Stream":
        """A stream that continues where another was saved.

        A predictor with classes of your own is not in the file: pass an equal one.
        """
        return cls._from(Path(path), predictor)

    def __reduce__(self) -> Any:
        """For `copy` and `pickle`."""
        return _loads, (type(self), self.dumps(), self.predictor)

    def _dumps(self) -> bytes:
        from switchpoint.streams.storage import state_to_bytes  # imported late: the zoo is slow

        return state_to_bytes(self.predictor, self._options, self._engine, self.notes)

    @classmethod
    def _from(cls, source: Path | bytes, predictor: Predictor[Any] | None) -> "Stream":
        from switchpoint.streams.storage import load_state

        stream = cls.__new__(cls)
        loaded = load_state(source, predictor, make_engine)
        stream.predictor, options, stream._engine, stream.notes = loaded
        stream.columns, stream.outliers = options["columns"], options["outliers"]
        return stream

    def __repr__(self) -> str:
        return f"Stream({self.predictor!r}, position={self.position})"


def _loads(cls: type[Stream], content: bytes, predictor: Predictor[Any]) -> Stream:
    return cls.loads(content, predictor=predictor)


def _checked_columns(columns: Sequence[str], predictor: Any) -> tuple[str, ...]:
    """The names of the columns, if they are as many as those of the predictor's source."""
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    event: tuple[int, ...] = getattr(getattr(predictor, "segment", None), "event_shape", ())
    count = sum(event)  # of at most one axis
    if len(names) != count or len(set(names)) != count:
        raise ValueError(
            f"columns must name the columns of an Independent source, of which this predictor has "
            f"{count}, got {_checks.shown(columns)}"
        )
    return names


def make_engine(
    predictor: Predictor[Any], columns: tuple[str, ...] | None, outliers: float | None
) -> Engine:
    """The engine of a stream of this predictor."""
    if outliers is not None:
        if not isinstance(predictor, PTWPredictor | ForwardPredictor) or predictor.segment.finite:
            raise ValueError(
                f"outliers is for exact predictors of values, got {outliers:g} for {predictor!r}"
            )
        return FamilyHypotheses(predictor, columns, outliers)
    match predictor:
        case KT(segment=Dirichlet()) | KTOracle(segment=Dirichlet()):
            return CountEngine(predictor)
        case PTWPredictor() | ForwardPredictor() if _underflows(predictor):
            return CompiledEngine(predictor)
        case PTWPredictor(segment=Dirichlet()) if predictor.alphabet <= LARGEST_ALPHABET:
            return TreeEngine(predictor)
        case PTWPredictor(segment=Dirichlet()) | ForwardPredictor(segment=Dirichlet()):
            return CountHypotheses(predictor)
        case PTWPredictor() | ForwardPredictor():
            return FamilyHypotheses(predictor, columns)
        case Recurrent():
            return RecurrentEngine(predictor)
    return CompiledEngine(predictor)


def _underflows(predictor: Any) -> bool:
    """Whether the prior probability of a switch in PTW is too small for a float."""
    prior = predictor.prior
    if not hasattr(prior, "split_log_odds"):
        return False
    return prior.depth * float(prior.log_split) < _LEAST_LOG_WEIGHT
