"""Lossless coding: the coder, and archives."""

import json
import zlib

import numpy as np
import pytest

import switchpoint as sp
from switchpoint.streams import archive, coding
from switchpoint.streams.archive import Archive, unpack


def source(prior, alphabet=2, **options):
    segment = sp.Bernoulli(**options) if alphabet == 2 else sp.Categorical(alphabet, **options)
    return sp.Source(prior, segment)


PREDICTORS = [
    sp.KT(),
    sp.KT(sp.Categorical(256, 0.1)),
    sp.bayes_optimal(source(sp.PTW(40))),
    sp.bayes_optimal(source(sp.PTW(6, 0.1), alpha=0.01, beta=3.0)),
    sp.bayes_optimal(source(sp.PTW(8), 5)),
    sp.bayes_optimal(source(sp.LIN())),
    sp.bayes_optimal(source(sp.Geometric(0.02), 3), 10),
    sp.bayes_optimal(source(sp.RegularPeriodic(7))),
    sp.bayes_optimal(source(sp.RandomUniform(20), 26)),
]


def random_symbols(rng, alphabet, length):
    """A few segments, from nearly constant to nearly uniform."""
    parts = []
    while sum(map(len, parts)) < length:
        law = rng.dirichlet(np.full(alphabet, 10 ** rng.uniform(-2, 1)) + 1e-9)
        parts.append(rng.choice(alphabet, rng.integers(1, length + 1), p=law))
    return np.concatenate([np.zeros(0, int), *parts])[:length].astype(np.int32)


def test_a_thousand_round_trips_in_no_more_than_the_code_length():
    rng = np.random.default_rng(18)
    for trial in range(1000):
        predictor = PREDICTORS[trial % len(PREDICTORS)]
        length = int(rng.integers(0, 8 if trial % 20 else 60))
        symbols = random_symbols(rng, predictor.alphabet, length)
        stream = sp.Stream(predictor)
        code = coding.encode(stream, symbols)
        assert stream.position == len(symbols)
        found = coding.decode(sp.Stream(predictor), code, len(symbols))
        np.testing.assert_array_equal(found, symbols)
        assert 8 * len(code) <= 1.001 * stream.code_length + 32


@pytest.mark.parametrize("share", [0.0, 0.003, 0.5])
def test_a_long_sequence_has_its_code_length(share):
    """In several blocks; where almost nothing is to be said, a loss at every symbol would show."""
    grid = coding.Grid(24, 2**10)
    symbols = (np.random.default_rng(3).random(2**12 - 5) < share).astype(np.int32)
    stream = sp.Stream(sp.KT())
    code = coding.encode(stream, symbols, grid)
    assert 8 * len(code) <= 1.001 * stream.code_length + 32
    assert 8 * len(code) >= stream.code_length - 8
    found = coding.decode(sp.Stream(sp.KT()), code, len(symbols), grid)
    np.testing.assert_array_equal(found, symbols)


class Elsewhere:
    """A stream on a machine whose arithmetic errs by up to `error`."""

    def __init__(self, predictor, error):
        self.stream, self.error, self.rng = sp.Stream(predictor), error, np.random.default_rng(0)

    def predict(self):
        log_probs = self.stream.predict()
        return log_probs + self.rng.uniform(-self.error, self.error, len(log_probs))

    def update(self, symbol):
        return self.stream.update(symbol)


@pytest.mark.parametrize(
    ("number", "grid"), [(1, "exact"), (2, "exact"), (2, "network"), (6, "exact")]
)
def test_machines_that_round_differently_decode_the_same(number, grid):
    grid = coding.GRIDS[grid]
    predictor = PREDICTORS[number]
    symbols = random_symbols(np.random.default_rng(5), predictor.alphabet, 2000)
    code = coding.encode(sp.Stream(predictor), symbols, grid)
    # Differences of ln P of e change sums of probabilities by at most e.
    elsewhere = Elsewhere(predictor, 0.9 * grid.tolerance)
    found = coding.decode(elsewhere, code, len(symbols), grid)
    np.testing.assert_array_equal(found, symbols)
    # Much more than the margin is too much, or else the test above would mean nothing.
    elsewhere = Elsewhere(predictor, 2.0 ** -(grid.precision + 2))
    found = coding.decode(elsewhere, code, len(symbols), grid)
    assert (found != symbols).any()


def test_a_margin_is_found_for_simple_fractions():
    """KT predicts a quarter, two thirds and so on; rounding to nearest would be a toss-up."""
    sums = np.array([[0.0] * 3, [(2**24 - 2) * p for p in (0.25, 0.5, 0.75)]])
    symbols = np.zeros(3, int)
    index, (low, high) = coding._best_offset(sums, symbols, 2, coding.EXACT)
    assert index == 0
    assert low.tolist() == [0, 0, 0]
    np.testing.assert_allclose(high / 2**24, [0.25, 0.5, 0.75], atol=2e-7)
    # One more symbol on the edge of the first offset: another is taken.
    edge = 5 - coding._offset(0)
    sums, symbols = np.array([[0.0] * 4, [*sums[1], edge]]), np.zeros(4, int)
    assert coding._best_offset(sums, symbols, 2, coding.EXACT)[0] == 1


@pytest.mark.parametrize("alphabet", [2, 3, 256])
def test_constriction_takes_integer_shares_exactly(alphabet):
    """One step of asymmetric numeral systems, written out."""
    import constriction

    rng = np.random.default_rng(alphabet)
    inner = np.sort(rng.choice(np.arange(1, 2**24), alphabet - 1, replace=False)).tolist()
    cuts = [0, *inner, 2**24]
    for symbol in range(alphabet):
        coder = constriction.stream.stack.AnsCoder(np.array([5, 7, 9], np.uint32))
        coder.encode_reverse(symbol, coding._Model()(cuts))
        share, words, state = cuts[symbol + 1] - cuts[symbol], [5], (9 << 32) | 7
        if state >> 40 >= share:
            words, state = [5, state % 2**32], state >> 32
        state = (state // share << 24) + cuts[symbol] + state % share
        words += [state % 2**32, state >> 32]
        while words[-1] == 0:
            words.pop()
        assert coder.get_compressed().tolist() == words


# --- archives -------------------------------------------------------------------------------


ARCHIVE = Archive({"type": "kt"}, "exact", {"kind": "bits"}, 5, "0123456789abcdef", b"\0code")


def test_an_archive_is_unpacked_as_it_was_packed():
    data = ARCHIVE.pack()
    assert unpack(data, "it") == ARCHIVE
    assert len(data) < 60


def test_a_damaged_archive_is_refused():
    data = ARCHIVE.pack()
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"^it is (not an archive|truncated)"):
            unpack(data[:size], "it")
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 + place % 255
        with pytest.raises(ValueError, match=r"^it is (not an archive|truncated)"):
            unpack(bytes(changed), "it")


def sealed(content):
    return content + zlib.crc32(content).to_bytes(4, "little")


def test_an_archive_of_a_later_version_is_named():
    data = bytearray(ARCHIVE.pack()[:-4])
    data[4] += 1
    with pytest.raises(ValueError, match="format 2; this version of switchpoint reads up to 1"):
        unpack(sealed(bytes(data)), "it")


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ({"length": -1}, "no valid length"),
        ({"length": "5"}, "no valid length"),
        ({"length": 2**60}, "no valid length"),
        ({"grid": "coarse"}, "no valid grid"),
        ({"symbols": None}, "no valid symbols"),
        (["length"], "is unreadable"),
        ({"digest": ...}, "is unreadable"),
    ],
)
def test_a_header_that_cannot_be_is_refused(header, problem):
    if isinstance(header, dict):
        header = {**{name: getattr(ARCHIVE, name) for name in archive._FIELDS}, **header}
        header = {name: value for name, value in header.items() if value is not ...}
    deflate = zlib.compressobj(wbits=-15, zdict=archive._PHRASES)
    content = deflate.compress(json.dumps(header).encode()) + deflate.flush()
    with pytest.raises(ValueError, match=f"it is damaged: its header .*{problem}"):
        unpack(sealed(ARCHIVE.pack()[:5] + content), "it")


@pytest.mark.parametrize("data", [b"", b"abcabc" * 20, bytes(50), bytearray(b"x")])
def test_bytes_are_restored(data):
    assert sp.decompress(sp.compress(data)) == data
    bits = sp.compress(data, sp.bayes_optimal(sp.Source(sp.PTW(12))))
    assert sp.decompress(bits) == data


def test_arrays_are_restored_in_about_the_code_length():
    symbols = np.repeat([0, 2, 1], 300)
    predictor = sp.bayes_optimal(sp.Source(sp.Geometric(0.01), sp.Categorical(3)), 50)
    archive = sp.compress(symbols, predictor)
    np.testing.assert_array_equal(sp.decompress(archive), symbols)
    stream = sp.Stream(predictor)
    stream.extend(symbols)
    assert 8 * len(archive) < stream.code_length + 1200


@pytest.mark.parametrize(
    ("data", "predictor", "problem"),
    [
        ("text", None, "data must be bytes or an array"),
        (np.array([0.5]), None, "data must be bytes or an array"),
        ([0, -1], None, "data must be bytes or an array"),
        ([0, 5], sp.KT(), "at least 6 symbols, got 2"),
        ([0, 1], "no-such-network", "no-such-network"),
    ],
)
def test_data_that_cannot_be_compressed_are_named(data, predictor, problem):
    with pytest.raises(ValueError, match=problem):
        sp.compress(data, predictor)
    with pytest.raises(ValueError, match="the archive is not an archive"):
        sp.decompress(b"something else")
