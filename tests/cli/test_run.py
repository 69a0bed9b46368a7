"""``onnxplug run``."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from PIL import Image

from onnxplug.cli.feeds import FeedReader
from onnxplug.cli.image import Scaling
from onnxplug.session.model_info import NodeArg

DEMO = Path(__file__).parents[2] / "demo"


needs_cpu = pytest.mark.usefixtures("cpu")


@pytest.fixture
def cpu() -> None:
    import onnxplug

    if "CPUExecutionProvider" not in onnxplug.get_available_providers():
        pytest.skip("onnxplug-cpu is not installed")


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """The demo's files, in a folder of their own."""
    return Path(shutil.copytree(DEMO, tmp_path / "demo"))


@pytest.fixture
def run(cli, toy):
    """Runs ``onnxplug run MODEL …`` on the toy EP, once."""

    def run(model: str, *argv: object):
        return cli("run", model, *argv, "--ep", toy, "--repeat", 0)

    return run


# Feeds...


def test_numbers_at_random_are_the_same_each_time(run, save_model) -> None:
    model = save_model()
    first, second = (run(model, "random", "--json").json for _ in range(2))
    assert first["outputs"] == second["outputs"]
    assert first["inputs"] == [
        {"name": "x", "type": "float32", "shape": [1, 3], "source": "random"}
    ]
    assert (
        run(model, "random", "--seed", 1, "--json").json["outputs"]
        != (first["outputs"])
    )


def test_inputs_at_random_differ(run, save_model, tmp_path: Path) -> None:
    model = save_model(["Sub"], {"a": [100], "b": [100]})
    run(model, "random", "--output", tmp_path / "out.npz")
    assert np.load(tmp_path / "out.npz")["y"].all()


def test_symbolic_dimensions_have_the_size_that_is_said(run, save_model) -> None:
    model = save_model(inputs={"x": ["N", None, 3]})
    found = run(model, "random", "--dim", "N=5", "--json").json
    assert found["inputs"][0]["shape"] == [5, 1, 3]


@pytest.mark.parametrize(
    "argv",
    [
        ["x.npy"],
        ["all.npz"],
        ["--input", "x=x.npy"],
        ["--input", "x=all.npz"],
        ["--input", "x=one.npz"],
    ],
)
def test_arrays_are_read_from_files(
    run, save_model, tmp_path: Path, monkeypatch, argv: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    array = np.array([[-1, 2, 3]], np.float32)
    np.save("x.npy", array)
    np.savez("all.npz", x=array, unused=array)
    np.savez("one.npz", anything=array)
    (summary,) = run(save_model(), *argv, "--json").json["outputs"]
    assert (summary["min"], summary["max"]) == (0, 3)


def test_inputs_are_fed_by_name_and_the_rest_together(
    run, save_model, tmp_path: Path
) -> None:
    np.save(tmp_path / "a.npy", np.full(3, 7, np.float32))
    np.savez(tmp_path / "rest.npz", a=np.zeros(3), b=np.full(3, 2, np.float32))
    model = save_model(["Sub"], {"a": [3], "b": [3]})
    found = run(
        model, tmp_path / "rest.npz", "-i", f"a={tmp_path / 'a.npy'}", "--json"
    ).json
    assert found["outputs"][0]["mean"] == 5
    assert [item["name"] for item in found["inputs"]] == ["a", "b"]


def test_types_that_numpy_cannot_name_survive_a_file(tmp_path: Path) -> None:
    array = np.array([1, 2, 3], ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", array)
    item = NodeArg("x", "tensor(bfloat16)", [3])
    arguments = argparse.Namespace(dim=[], seed=0)
    reader = FeedReader([item], Scaling.of({}, None, None), arguments)
    feeds = reader.read([], str(tmp_path / "x.npy"))
    assert feeds["x"].array.dtype == array.dtype
    np.testing.assert_array_equal(feeds["x"].array, array)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ([], "no value for input 'x', tensor(float) [N, 3]; give a file"),
        (["--input", "z=random"], "no input 'z'; it has 'x'"),
        (["notes.txt"], "'notes.txt' is of no kind that can be fed"),
        (["seven.png"], "could be for any of several inputs, or none"),
        (["--input", "x=seven.png"], "which does not take a picture"),
    ],
)
def test_feeds_that_do_not_fit_exit_with_2(run, save_model, argv, text) -> None:
    outcome = run(save_model(), *argv)
    assert outcome.code == 2
    assert text in outcome.err
    assert outcome.out == ""


def test_a_file_that_is_not_there_exits_with_1(run, save_model) -> None:
    outcome = run(save_model(), "nowhere.npy")
    assert outcome.code == 1
    assert "nowhere.npy" in outcome.err


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_file_that_is_no_array_exits_with_1(
    run, save_model, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"not numpy's")
    outcome = run(save_model(), tmp_path / name)
    assert outcome.code == 1
    assert f"cannot read {tmp_path / name}" in outcome.err


def test_a_wrong_type_is_not_converted(run, save_model, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 3)))
    outcome = run(save_model(), tmp_path / "x.npy")
    assert outcome.code == 1
    assert "tensor(double)" in outcome.err
    assert "float32" in outcome.err


# Results...


def test_outputs_are_summed_up(run, save_model, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[-1, 1, 5]], np.float32))
    outcome = run(save_model(), tmp_path / "x.npy")
    assert outcome.code == 0
    assert outcome.err == ""
    feed, _, header, row, _, where, times = outcome.out.splitlines()
    assert feed == "x.npy → x: float32[1, 3]"
    assert header.split() == ["OUTPUT", "TYPE", "SHAPE", "MIN", "MEAN", "MAX"]
    assert row.split() == ["y", "float32", "[1,", "3]", "0", "2", "5"]
    assert where == "1 node on ToyExecutionProvider (cpu)"
    assert times.startswith("loaded in ")


def test_outputs_are_written_whatever_their_names(
    run, save_model, tmp_path: Path
) -> None:
    model = save_model(["Mul"], {"file": [3], "allow_pickle": [3]})
    path = tmp_path / "out.npz"
    outcome = run(model, "random", "--output", path)
    assert outcome.code == 0
    assert list(np.load(path)) == ["y"]


def test_json_has_stable_keys(run, save_model) -> None:
    found = run(save_model(), "random", "--json").json
    assert list(found) == [
        "model",
        "inputs",
        "outputs",
        "classes",
        "partitions",
        "seconds",
    ]
    assert list(found["outputs"][0]) == ["name", "type", "shape", "min", "mean", "max"]
    assert found["partitions"] == [
        {"ep": "ToyExecutionProvider", "device": "cpu", "nodes": 1}
    ]
    assert list(found["seconds"]) == ["load", "first_run", "median_run", "repeat"]
    assert found["seconds"]["median_run"] is None


def test_repeated_runs_give_a_median(cli, save_model, toy) -> None:
    outcome = cli("run", save_model(), "random", "--ep", toy, "--repeat", 3)
    assert outcome.out.rstrip().endswith("(median of 3)")


def test_json_has_null_for_what_json_cannot_say(
    run, save_model, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.array([[np.inf, 1, 2]], np.float32))
    (summary,) = run(save_model(), tmp_path / "x.npy", "--json").json["outputs"]
    assert (summary["min"], summary["mean"], summary["max"]) == (1, None, None)


@needs_cpu
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


@needs_cpu
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


# Classes...


def test_planes_are_not_taken_for_classes(run, save_model, tmp_path: Path) -> None:
    Image.fromarray(np.full((2, 2), 51, np.uint8)).save(tmp_path / "grey.png")
    model = save_model(inputs={"x": [1, 1, 2, 2]}, metadata={"labels": '["a"]'})
    found = run(model, tmp_path / "grey.png", "--json").json
    assert found["classes"] == []
    assert found["outputs"][0]["mean"] == pytest.approx(0.2)


@needs_cpu
def test_the_demo_shows_a_seven(cli, demo: Path) -> None:
    outcome = cli("run", demo / "digits.onnx", demo / "seven.png")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "seven.png (160×160, grey) → image: float32[1, 1, 8, 8]"
    assert lines[2].split()[0] == "7"
    assert "%  █" in lines[2]
    assert lines[-2].endswith("nodes on CPUExecutionProvider (cpu)")


@needs_cpu
def test_the_demo_as_json(cli, demo: Path) -> None:
    found = cli("run", demo / "digits.onnx", demo / "seven.png", "--json").json
    best, *others = found["classes"]
    assert (best["index"], best["label"]) == (7, "7")
    assert best["score"] > 0.9
    assert len(others) == 2


@needs_cpu
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


@needs_cpu
def test_scale_and_inversion_change_what_is_seen(cli, demo: Path) -> None:
    argv = ("run", demo / "digits.onnx", demo / "seven.png", "--json")
    best = [
        cli(*argv, *more).json["classes"][0]["score"]
        for more in ([], ["--no-invert"], ["--scale", "1/25500"])
    ]
    assert len(set(best)) == 3
