"""``onnxplug run`` on the CPU EP: the demo, and values of all kinds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

DEMO = Path(__file__).parents[2] / "demo"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """The demo's files, in a folder of their own."""
    return Path(shutil.copytree(DEMO, tmp_path / "demo"))


def test_values_that_are_no_numbers_are_described(cli, tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        kinds (float[2] x) => (string[1] words, seq(float[2]) both, float[0] none) {
            words = Constant <value_strings = ["a"]> ()
            both = SequenceConstruct (x, x)
            zero = Constant <value_ints = [0]> ()
            none = Slice (x, zero, zero)
        }
    """)
    onnx.save(model, tmp_path / "kinds.onnx")
    outcome = cli("run", tmp_path / "kinds.onnx", "random")
    assert outcome.code == 0
    rows = [line.split() for line in outcome.out.splitlines()[3:6]]
    assert rows == [
        ["words", "string", "[1]"],
        ["both", "sequence", "of", "2"],
        ["none", "float32", "[0]"],
    ]
    outcome = cli("run", tmp_path / "kinds.onnx", "random", "-o", tmp_path / "o.npz")
    assert outcome.code == 2
    assert "--output takes arrays, which 'both' are not" in outcome.err


def test_text_is_written_too(cli, tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        copy (string[2] x) => (string[2] y) { y = Identity (x) }
    """)
    onnx.save(model, tmp_path / "text.onnx")
    np.save(tmp_path / "x.npy", np.array(["a", "Käse"]))
    out = tmp_path / "out.npz"
    outcome = cli("run", tmp_path / "text.onnx", tmp_path / "x.npy", "-o", out)
    assert outcome.code == 0
    assert np.load(out)["y"].tolist() == ["a", "Käse"]
    outcome = cli("run", tmp_path / "text.onnx", "random")
    assert outcome.code == 2
    assert "of which there are no values at random" in outcome.err


def test_the_demo_shows_a_seven(cli, demo: Path) -> None:
    outcome = cli("run", demo / "digits.onnx", demo / "seven.png")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "seven.png (160×160, grey) → image: float32[1, 1, 8, 8]"
    assert lines[2].split()[0] == "7"
    assert "%  █" in lines[2]
    assert lines[-2].endswith("nodes on CPUExecutionProvider (cpu)")


def test_the_demo_as_json(cli, demo: Path) -> None:
    found = cli("run", demo / "digits.onnx", demo / "seven.png", "--json").json
    best, *others = found["classes"]
    assert (best["index"], best["label"]) == (7, "7")
    assert best["score"] > 0.9
    assert len(others) == 2


def test_labels_and_count_can_be_said(cli, demo: Path) -> None:
    labels = demo / "labels.txt"
    labels.write_text("\n".join("abcdefghij"), encoding="utf-8")
    argv = ("run", demo / "digits.onnx", demo / "seven.png", "--json")
    found = cli(*argv, "--labels", labels, "--top", 1).json
    assert [item["label"] for item in found["classes"]] == ["h"]
    assert cli(*argv, "--top", 0).json["classes"] == []

    labels.write_text(json.dumps(["only one"]), encoding="utf-8")
    outcome = cli(*argv, "--labels", labels)
    assert outcome.code == 2
    message = outcome.json["error"]["message"]
    assert "names 1 class, but the model tells 10 apart" in message


def test_scale_and_inversion_change_what_is_seen(cli, demo: Path) -> None:
    argv = ("run", demo / "digits.onnx", demo / "seven.png", "--json")
    best = [
        cli(*argv, *more).json["classes"][0]["score"]
        for more in ([], ["--no-invert"], ["--scale", "1/25500"])
    ]
    assert len(set(best)) == 3
