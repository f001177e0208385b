"""`switchpoint compress` and `decompress`: lossless coding by the predictions of a model."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from switchpoint import _checks
from switchpoint._display import show_progress
from switchpoint._files import atomic_write
from switchpoint._text import STDIN, locating, name_of, printable, read_bytes
from switchpoint.cli import check_cost, output
from switchpoint.cli import config_options as options
from switchpoint.cli.networks import check_model_options
from switchpoint.cli.reader.symbol_files import KINDS, guess_kind, to_symbols
from switchpoint.exact.named import exact_predictor
from switchpoint.predictor import Predictor
from switchpoint.priors import PRIOR_NAMES
from switchpoint.spec import describe_file, describe_predictor, make_predictor
from switchpoint.streams.archive import make_archive, read_archive, unpack

SUFFIX = ".spz"
"""The suffix of archives."""


@options.with_options(*options.PRIOR, *options.SEGMENT, alphabet="The number of symbols.")
def compress(
    file: Path = typer.Argument(metavar="FILE", help="Any file; - is standard input."),
    out: Path | None = typer.Option(
        None,
        metavar="FILE",
        help=f"The archive; by default, FILE{SUFFIX}; - is standard output.",
    ),
    kind: str | None = typer.Option(
        None,
        "--as",
        metavar="|".join(KINDS),
        help="The symbols: those listed in a text (numbers from 0, or labels), the bits of the "
        "file, or its bytes. By default, text for a file of the digits 0 and 1 or with --alphabet "
        "or --labels, bits for a --model with an alphabet of 2, and otherwise bytes.",
    ),
    labels: str | None = options.LABELS,
    prior: str | None = typer.Option(
        None, help=f"{options.PRIOR_HELP}; or kt, for a single segment. By default, ptw."
    ),
    hypotheses: int = options.HYPOTHESES,
    model: str | None = options.MODEL,
    member: int | None = options.MEMBER,
    **given: Any,
) -> None:
    """Compress a file losslessly with the predictions of the Bayes optimum or a network.

    Suited to piecewise stationary sequences: the size is within a few bytes of the predictor's code
    length. For text and programs use xz or zstd. `switchpoint decompress` restores the file byte
    for byte, on any machine (with a Transformer, on the machine that compressed it).

    For example:

        switchpoint compress bits.txt
        switchpoint compress genome.txt --labels A,C,G,T --prior lin
        switchpoint compress bits.txt --model lstm-ptw
    """
    target = _target(out, file, Path(f"{file}{SUFFIX}"))
    if kind is not None:
        _checks.one_of("--as", kind, KINDS)
    content = read_bytes(file)
    about, alphabet = None, given["alphabet"]
    check_model_options(model, member, {"prior": prior, **given})
    if model is not None:
        about = describe_file(model, member)
        alphabet = make_predictor(about, model=model).alphabet
    elif alphabet is not None:
        options.segment_model(given)  # refuses an invalid alphabet
    if kind is None:
        listed = labels is not None or given["alphabet"] is not None
        kind = "text" if listed else guess_kind(content, alphabet)
    with locating(name_of(file)):
        sequence, symbols = to_symbols(content, kind, alphabet, labels)
    length = len(sequence.symbols)
    if about is None:
        name = str(options.prior_name(prior, given, "ptw"))
        exact = _exact(name, hypotheses, given, sequence.alphabet, length)
        about, _ = describe_predictor(exact)
    predictor = make_predictor(about, model=model)
    check_cost.check_network(predictor, length)
    with show_progress(sys.stderr, lines=False) as progress:
        data, stream = make_archive(sequence.symbols, content, symbols, about, predictor, progress)
    _write(target, data)
    screen = output.console(sys.stderr if target == STDIN else sys.stdout)
    archive = "standard output" if target == STDIN else name_of(target)
    lines = [
        ("file", f"{name_of(file)}: {len(content):,} bytes"),
        ("symbols", f"{length:,} of an alphabet of {sequence.alphabet} ({kind})"),
        ("predictor", model or " ".join(repr(predictor).split())),
        ("code", f"code length {stream.code_length:,.1f} bits"),
        ("archive", f"{archive}: {len(data):,} bytes"),
    ]
    screen.print(output.panel("switchpoint compress", lines))


def decompress(
    file: Path = typer.Argument(
        metavar="FILE", help="An archive of `switchpoint compress`; - is standard input."
    ),
    out: Path | None = typer.Option(
        None,
        metavar="FILE",
        help=f"The restored file; by default, FILE without {SUFFIX}; - is standard output.",
    ),
    model: str | None = typer.Option(
        None,
        metavar="NAME|PATH",
        help=f"The network that the archive was made with: {options.MODEL_HELP}",
    ),
) -> None:
    """Restore a file compressed by `switchpoint compress`, byte for byte.

    For example:

        switchpoint decompress bits.txt.spz

        switchpoint decompress bits.txt.spz --out - | switchpoint predict -
    """
    default = file.with_suffix("") if file.suffix == SUFFIX else None
    target = _target(out, file, default)
    name = name_of(file)
    archive = unpack(read_bytes(file), name)
    if archive.symbols["kind"] == "array":
        raise ValueError(f"{name} holds an array: read it with switchpoint.decompress")
    with show_progress(sys.stderr, lines=False) as progress:
        _, content = read_archive(archive, name, model, progress)
    _write(target, content)


def _target(out: Path | None, file: Path, default: Path | None) -> Path:
    """Where to write; a file that exists is replaced only if it is named."""
    if out is not None:
        output.check_output(None if out == STDIN else out, "out", ())
        return out
    if file == STDIN:
        return STDIN
    if default is None:
        raise ValueError(f"{name_of(file)} does not end in {SUFFIX}: name the output with --out")
    if default.exists():
        raise ValueError(f"{printable(str(default))} exists: to replace it, name it with --out")
    output.check_output(default, "out", ())
    return default


def _write(target: Path, data: bytes) -> None:
    if target == STDIN:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    with atomic_write(target) as file:
        file.write(data)


def _exact(
    name: str, hypotheses: int, given: Mapping[str, Any], alphabet: int, length: int
) -> Predictor[Any]:
    """The optimum of a prior, or KT, with the parameters among the options `given`."""
    segment, prior = options.segment_model(given, alphabet), None
    if name in PRIOR_NAMES:
        prior = options.make_prior(name, max(1, length), given)
    elif name == "kt" and (extra := [each for each in options.PRIOR if given[each] is not None]):
        raise ValueError(f"{extra[0]} is not a parameter of kt, which takes none")
    predictor: Predictor[Any] = exact_predictor(name, segment, prior, hypotheses)
    return predictor
