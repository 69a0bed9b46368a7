"""``onnxplug prepare``."""

from __future__ import annotations

import pytest


def test_it_tells_of_each_set_and_partition(cli, save_model) -> None:
    model = save_model(["Relu"], {"a": ["N", 4]})
    outcome = cli("prepare", model, "--shape", "a=2,4", "--shape", "a=3,4")
    assert (outcome.code, outcome.err) == (0, "")
    first, header, row, second, *_ = outcome.out.splitlines()
    assert first.startswith("a[2, 4]: 1 of 1 partitions ready in ")
    assert header.split() == ["PARTITION", "EP", "STATE"]
    assert row.split() == ["0", "cpu", "ready"]
    assert second.startswith("a[3, 4]: 1 of 1 partitions ready in ")


def test_json(cli, save_model, toy) -> None:
    model = save_model(["Relu"], {"a": ["N", 4]})
    outcome = cli("prepare", model, "--ep", toy, "--shape", "a=2,4", "--json")
    (each,) = outcome.json["sets"]
    assert each["shapes"] == {"a": [2, 4]}
    assert each["seconds"] >= 0
    assert each["partitions"] == [
        {
            "partition": 0,
            "ep": "ToyExecutionProvider",
            "shapes": {"a": [2, 4]},
            "ready": False,
            "reason": "ToyExecutionProvider makes nothing of it by shapes",
        }
    ]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["a=2,5"], "its size there is fixed, 4"),
        (["z=2,4"], "there is no input 'z'"),
        (["a=2;4"], "'2;4' is not a whole number"),
        (["a"], "not of the form NAME=VALUE"),
        ([], "required: --shape"),
    ],
)
def test_what_does_not_fit(cli, save_model, said, words) -> None:
    model = save_model(["Relu"], {"a": ["N", 4]})
    outcome = cli("prepare", model, *[w for s in said for w in ("--shape", s)])
    assert outcome.code == 2
    assert words in outcome.err
