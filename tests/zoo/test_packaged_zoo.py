"""The networks that come with the package: whole, as good as they say, and of the study."""

import pytest

from switchpoint import evaluation
from switchpoint.paper.scale import RECORDED
from switchpoint.zoo import NAMES, Zoo
from switchpoint.zoo.building import LARGEST


def test_the_packaged_zoo_is_whole_and_small():
    zoo = Zoo()
    assert zoo.names() == list(NAMES)
    assert len(list(zoo.directory.iterdir())) == len(NAMES)
    assert zoo.size() <= LARGEST
    for name in zoo.names():
        card = zoo.card(name)
        assert (card["name"], card["length"]) == (name, 256)
        assert name == f"{card['model']}-{card['members'][0]['prior']}"
        assert (card["test"]["sequences"], card["test"]["seed"]) == (10_000, 0)
        assert card["test"]["tolerance"] == 0.005
        assert card["chosen"]["excess"] == card["members"][0]["excess"]
        assert card["chosen"]["candidates"] == 10
        assert card["chosen"]["sequences"] == card["config"]["validation"] == 500
        assert card["provenance"]["training"]["commit"]
        # The goal of the study: within 1% of the exact optimum.
        test = card["test"]
        assert test["excess"] + 3 * test["excess_error"] < 0.01 * test["optimum_regret"]


def test_cards_measured_on_a_cpu_agree_with_what_a_gpu_recorded():
    recorded = evaluation.load(RECORDED / "on-distribution.nc")["excess"]
    for name in Zoo().names():
        card = Zoo().card(name)
        (member,) = card["members"]
        own = {"architecture": card["model"], "source": member["prior"], "seed": member["seed"]}
        assert card["test"]["excess"] == pytest.approx(float(recorded.sel(own)), abs=1e-4)
