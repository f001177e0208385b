"""The zoo: built from runs by the validation sequences alone, refused where damaged, verified."""

import jax
import numpy as np
import pytest

import switchpoint as sp
from switchpoint import neural
from switchpoint._progress import Progress
from switchpoint.cli import main
from switchpoint.zoo import Zoo, build, manifest, verify
from switchpoint.zoo.building import candidates, lowest_excess

LENGTH = 16
SMALL = {
    "length": LENGTH,
    "batch": 8,
    "steps": 30,
    "learning_rate": 1.5e-2,
    "validation": 40,
    "hidden": 16,
    "readout": 1,
}
SEQUENCES = 300
FEW = 250  # one chunk, for which a program is there already


class Recorder(Progress):
    def __init__(self):
        self.texts = []

    def update(self, text, done):
        del done
        self.texts.append(text)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """LSTMs on two sources, with three seeds each."""
    directory = tmp_path_factory.mktemp("runs") / "lstm"
    sp.train(sp.TrainConfig(model="lstm", prior=("ptw", "lin"), seeds=3, **SMALL), out=directory)
    return [directory]


@pytest.fixture(scope="module")
def built(runs, tmp_path_factory):
    zoo = Zoo(tmp_path_factory.mktemp("zoo"))
    assert build(runs, zoo, SEQUENCES) == ["lstm-ptw", "lstm-lin"]
    return zoo


@pytest.fixture
def packaged(built, monkeypatch, tmp_path):
    """The small zoo in place of the one in the package."""
    monkeypatch.setattr(manifest, "PACKAGED", built.directory)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return built


@pytest.fixture
def copy(built, tmp_path):
    """A copy of the small zoo, to be damaged."""
    directory = tmp_path / "copy"
    directory.mkdir()
    for path in built.directory.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    return directory


def weights_differ(first, second):
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return any(not np.array_equal(*pair) for pair in pairs)


def run(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    return status, *capsys.readouterr()


def save_changed(path, run, change):
    """Save the networks of a run with a changed card."""
    card = neural.read_card(run)
    change(card)
    neural.save_networks(path, neural.load_members(run), card)
    return path


@pytest.mark.slow
def test_the_best_on_validation_is_taken(built, runs):
    card = neural.read_card(runs[0])
    for prior in ("ptw", "lin"):
        own = [(m["excess"], i) for i, m in enumerate(card["members"]) if m["prior"] == prior]
        excess, index = min(own)
        expected = neural.load_members(runs[0])[index]
        name = f"lstm-{prior}"
        assert not weights_differ(built.network(name), expected)
        assert weights_differ(built.network(name), neural.load_members(runs[0])[max(own)[1]])
        chosen = built.card(name)["chosen"]
        assert (chosen["excess"], chosen["candidates"], chosen["sequences"]) == (excess, 3, 40)


@pytest.mark.slow
def test_a_card_says_what_was_trained_and_what_it_scored(built):
    card = built.card("lstm-lin")
    assert card["name"] == "lstm-lin"
    assert sp.TrainConfig.from_dict(card["config"]).steps == card["steps"] == 30
    (member,) = card["members"]
    assert member["prior"] == "lin"
    assert member["seed"] in (0, 1, 2)
    assert list(card["sources"]) == ["lin"]
    source = sp.Source(sp.LIN())
    predictors = {"net": built.network("lstm-lin"), "optimum": sp.bayes_optimal(source)}
    found = sp.summarise(sp.evaluate(predictors, source, LENGTH, SEQUENCES), "optimum")
    found = found.isel(member=0)
    test = card["test"]
    assert (test["sequences"], test["seed"], test["length"]) == (SEQUENCES, 0, LENGTH)
    for key, name in (("excess", "net"), ("excess_error", "net"), ("regret", "net")):
        assert test[key] == pytest.approx(float(found[key].sel(predictor=name)), abs=1e-9)
    assert test["optimum_regret"] == pytest.approx(float(found["regret"].sel(predictor="optimum")))
    assert test["tolerance"] == 0.005
    each = sp.evaluate(predictors, source, LENGTH, SEQUENCES)["regret"].isel(member=0)
    second = (each.sel(predictor="net") - each.sel(predictor="optimum")).values[50:100]
    assert len(test["excess_of_blocks"]) == SEQUENCES // 50
    assert test["excess_of_blocks"][1] == pytest.approx(second.mean(), abs=1e-5)
    made = card["provenance"]["measuring"]
    assert made["jax"] == jax.__version__
    assert made["device"]
    assert {"commit", "python", "platform", "switchpoint"} <= set(made)


@pytest.mark.slow
def test_building_again_measures_nothing_but_counts_more_rivals(built, copy, runs, tmp_path):
    def worsen(card):
        for member in card["members"]:
            member["excess"] += 1.0

    progress, worse = Recorder(), save_changed(tmp_path / "x.safetensors", runs[0], worsen)
    before = {path: path.stat().st_mtime_ns for path in copy.glob("*.safetensors")}
    build(runs, Zoo(copy), SEQUENCES, progress)  # nothing to do
    assert before == {path: path.stat().st_mtime_ns for path in before}
    build([*runs, worse], Zoo(copy), SEQUENCES, progress)
    assert progress.texts == []
    for name in ("lstm-ptw", "lstm-lin"):
        card, before = Zoo(copy).card(name), built.card(name)
        assert card["chosen"] == {**before["chosen"], "candidates": 6}
        assert {**card, "chosen": None} == {**before, "chosen": None}
        assert not weights_differ(Zoo(copy).network(name), built.network(name))


@pytest.mark.slow
def test_networks_that_diverged_or_are_of_other_sources_are_no_candidates(runs, tmp_path):
    members = neural.read_card(runs[0])["members"]
    best = min(m["excess"] for m in members if m["prior"] == "ptw")

    def diverge(card):
        for member in card["members"]:
            member["diverged"] = member["excess"] == best

    rivals = candidates([save_changed(tmp_path / "x.safetensors", runs[0], diverge)])["lstm-ptw"]
    assert len(rivals) == 2
    assert lowest_excess(rivals).excess > best

    def rename(card):
        for member in card["members"]:
            member["prior"] = "geometric"

    path = save_changed(tmp_path / "x.safetensors", runs[0], rename)
    with pytest.raises(ValueError, match="no network that the zoo could take"):
        build([path], Zoo(tmp_path / "zoo"))


@pytest.mark.slow
def test_runs_that_were_validated_on_other_sequences_are_not_compared(runs, tmp_path):
    change = lambda card: card["config"].update(validation=50)  # noqa: E731
    other = save_changed(tmp_path / "x.safetensors", runs[0], change)
    with pytest.raises(ValueError, match="lstm-ptw cannot be compared"):
        build([runs[0], other], Zoo(tmp_path / "zoo"), SEQUENCES)


@pytest.mark.slow
def test_a_zoo_that_cannot_be_written_is_refused_before_anything_is_measured(runs, tmp_path):
    zoo, progress, name = Zoo(tmp_path / "zoo"), Recorder(), "lstm-lin.safetensors"
    (tmp_path / "zoo" / name).mkdir(parents=True)
    with pytest.raises(ValueError, match=f"out cannot be written: .*{name}"):
        build(runs, zoo, SEQUENCES, progress)
    assert progress.texts == []
    assert [path.name for path in (tmp_path / "zoo").iterdir()] == [name]


@pytest.mark.slow
def test_weights_of_fewer_bits_are_read_as_the_networks_own(built, tmp_path):
    network = built.network("lstm-ptw")
    half = jax.tree.map(lambda leaf: np.asarray(leaf, np.float16), network)
    neural.save_networks(tmp_path / "half.safetensors", [half], built.card("lstm-ptw"))
    read = sp.load(tmp_path / "half.safetensors")
    assert {leaf.dtype for leaf in jax.tree.leaves(read)} == {np.dtype(np.float32)}
    symbols = np.arange(LENGTH) % 2
    np.testing.assert_allclose(read.log_probs(symbols), network.log_probs(symbols), atol=5e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("packaged")
def test_an_unknown_name_lists_near_ones():
    with pytest.raises(ValueError, match=r"no file or directory lstm-pwt.*did you mean 'lstm-ptw'"):
        sp.load("lstm-pwt")
    with pytest.raises(
        ValueError, match="transformer-ptw is not in the zoo: it has lstm-ptw, lstm"
    ):
        sp.load("transformer-ptw")
    with pytest.raises(ValueError, match="its names are rnn-ptw, rnn-lin"):
        sp.load("zebra")
    with pytest.raises(ValueError, match="there is no file or directory runs/x to load"):
        sp.load("runs/x")


@pytest.mark.slow
@pytest.mark.usefixtures("packaged")
def test_a_name_loads_like_a_path_and_wins_over_one(built, tmp_path):
    for name in ("lstm-ptw", "lstm-regular"):  # as paths, both are the network of LIN
        (tmp_path / name).write_bytes(built.path("lstm-lin").read_bytes())
    own, other = built.network("lstm-ptw"), built.network("lstm-lin")
    assert not weights_differ(sp.load("lstm-ptw"), own)
    (only,) = sp.load_members("lstm-ptw")
    assert not weights_differ(only, own)
    assert not weights_differ(sp.load("./lstm-ptw"), other)
    assert not weights_differ(sp.load("lstm-regular"), other)  # not in the zoo


@pytest.mark.slow
def test_damaged_and_missing_files_are_refused(copy, capsys):
    path = copy / "lstm-ptw.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for read in (Zoo(copy).network, Zoo(copy).card):
        with pytest.raises(ValueError, match="its content does not match its checksum"):
            read("lstm-ptw")
        read("lstm-lin")
    status, out, err = run(capsys, "zoo", "--zoo", copy)
    assert (status, out) == (2, "")
    assert "lstm-ptw.safetensors is not a switchpoint network" in err
    path.unlink()
    with pytest.raises(ValueError, match="the zoo holds no lstm-ptw"):
        Zoo(copy).network("lstm-ptw")


@pytest.mark.slow
def test_a_faithful_network_passes(built):
    check = verify(built, "lstm-ptw", FEW)
    assert check.passed
    test = built.card("lstm-ptw")["test"]
    assert check.allowed == test["tolerance"]
    assert check.measured == pytest.approx(check.claimed, abs=1e-5)
    assert check.claimed != pytest.approx(test["excess"], abs=1e-5)  # of fewer sequences
    everything = verify(built, "lstm-ptw", SEQUENCES)
    assert everything.claimed == pytest.approx(test["excess"], abs=1e-5)
    assert everything.measured == pytest.approx(test["excess"], abs=1e-5)


def spoil(directory, name, change):
    """Put another network or card in place of a network."""
    zoo = Zoo(directory)
    network, card = change(zoo.network(name), zoo.card(name))
    neural.save_networks(zoo.file(name), [network], card)
    return zoo


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "sequences"), [(1.5, FEW), (1.1, 50), (np.nan, FEW)])
def test_other_weights_fail(copy, factor, sequences):
    """Also a small difference, which the errors of few sequences would hide."""
    zoo = spoil(copy, "lstm-ptw", lambda net, card: (jax.tree.map(lambda x: factor * x, net), card))
    assert not verify(zoo, "lstm-ptw", sequences).passed


@pytest.mark.slow
def test_a_card_that_contradicts_itself_is_refused(copy):
    def boast(network, card):
        card["test"]["excess"] -= 0.01
        return network, card

    zoo = spoil(copy, "lstm-ptw", boast)
    with pytest.raises(ValueError, match="the card of lstm-ptw contradicts itself"):
        verify(zoo, "lstm-ptw", FEW)


@pytest.mark.slow
@pytest.mark.usefixtures("packaged")
def test_zoo_prints_a_table(packaged, capsys):
    status, out, _ = run(capsys, "zoo")
    assert status == 0
    assert "lstm-lin" in out
    assert "2 of 20 networks" in out
    assert f"{packaged.card('lstm-ptw')['test']['excess']:.4f}" in out


@pytest.mark.parametrize("command", ["zoo", "verify"])
def test_a_directory_without_a_zoo_is_refused(tmp_path, capsys, command):
    for name, problem in {"": "holds no rnn-ptw", "no\x1bdir": "is no directory"}.items():
        status, out, err = run(capsys, command, "--zoo", tmp_path / name)
        assert (status, out) == (2, "")
        assert problem in err
        assert str(tmp_path) in err
        assert "\x1b" not in err


@pytest.mark.slow
def test_verify_fails_where_one_does(copy, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")

    def boast(network, card):
        blocks = card["test"]["excess_of_blocks"]
        card["test"]["excess_of_blocks"] = [each - 0.01 for each in blocks]
        card["test"]["excess"] -= 0.01
        return network, card

    spoil(copy, "lstm-ptw", boast)
    (copy / "lstm-lin.safetensors").write_bytes(b"broken")
    status, out, _ = run(capsys, "verify", "--zoo", copy, "--sequences", FEW)
    assert status == 1
    assert "2 of 2 failed: lstm-ptw, lstm-lin" in out
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert rows["lstm-ptw"].split()[1] == "fail"
    assert "lstm-lin.safetensors is not a switchpoint network" in out


@pytest.mark.slow
@pytest.mark.usefixtures("packaged")
def test_verify_passes_and_refuses_bad_arguments(capsys):
    status, out, err = run(capsys, "verify", "lstm-ptw", "lstm-lin", "--sequences", FEW)
    assert status == 0
    assert out.count("pass") == 3
    assert "lstm-ptw: pass" in err
    assert "did you mean 'lstm-ptw'" in run(capsys, "verify", "lstm-pwt")[2]
    assert "the zoo holds no lstm-uniform" in run(capsys, "verify", "lstm-uniform")[2]
    assert "sequences must be a multiple of 50" in run(capsys, "verify", "--sequences", 75)[2]
    for sequences in (350, 10**9):
        status, out, err = run(capsys, "verify", "lstm-ptw", "--sequences", sequences)
        assert (status, out) == (2, "")
        assert "sequences must be at most 300" in err
        assert f"lstm-ptw was tested on, got {sequences}" in err
