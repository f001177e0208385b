"""Metrics of change points, against cases that were computed by hand."""

import pytest

import switchpoint as sp


@pytest.mark.parametrize(
    ("annotations", "found", "expected"),
    [
        ({"a": [5]}, [5], 1),
        ({"a": [5]}, [], 0.5),  # both halves overlap the whole by 5/10
        ({"a": [5], "b": []}, [], 0.75),
        ({"a": [5]}, [4], 0.5 * 4 / 5 + 0.5 * 5 / 6),
        ({"a": []}, [5], 0.5),
        ({"a": [2, 4]}, [4], 0.2 * 2 / 4 + 0.2 * 2 / 4 + 0.6),
    ],
)
def test_covering(annotations, found, expected):
    assert sp.detection.covering(annotations, found, 10) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("annotations", "found", "margin", "expected"),
    [
        ({"a": [5]}, [5], 5, 1),
        ({"a": [], "b": []}, [], 5, 1),
        ({"a": [5], "b": []}, [], 5, 2 * 1 * 0.75 / 1.75),
        ({"a": [50], "b": []}, [54], 3, 2 * 0.5 * 0.75 / 1.25),
        ({"a": [50], "b": []}, [54], 5, 1),  # recall of b counts index 0 only
        ({"a": [10, 12]}, [11], 5, 2 * 1 * (2 / 3) / (5 / 3)),  # one point is matched once
        ({"a": [20], "b": [40]}, [20, 60], 5, 2 * (2 / 3) * 0.75 / (2 / 3 + 0.75)),
    ],
)
def test_f1(annotations, found, margin, expected):
    assert sp.detection.f1(annotations, found, margin) == pytest.approx(expected)


def test_annotations_of_one_person_are_a_list():
    assert sp.detection.covering([5], [4], 10) == sp.detection.covering({"a": [5]}, [4], 10)
    assert sp.detection.f1([50], [40]) == sp.detection.f1([[50]], [40])


@pytest.mark.parametrize(
    ("true", "reported", "margin", "expected"),
    [([], [], 5, 0), ([], [7], 5, 1), ([50], [45, 55], 5, 1), ([50], [44], 5, 1), ([5], [5], 0, 0)],
)
def test_false_alarms(true, reported, margin, expected):
    assert sp.detection.false_alarms(true, reported, margin) == expected


def test_delays_end_with_the_next_change():
    assert sp.detection.delays([10, 20, 30], [9, 12, 15, 30]) == [2, None, 0]
    assert sp.detection.delays([], [3]) == []
