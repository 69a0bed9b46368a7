"""``onnxplug prepare``."""

from __future__ import annotations

import pytest


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
def test_what_does_not_fit(cli, save_model, toy, said, words) -> None:
    model = save_model(["Relu"], {"a": ["N", 4]})
    shapes = [word for each in said for word in ("--shape", each)]
    outcome = cli("prepare", model, "--ep", toy, *shapes)
    assert outcome.code == 2
    assert words in outcome.err
