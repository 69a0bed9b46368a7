"""``onnxplug run``."""

from __future__ import annotations

import argparse
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from PIL import Image

from onnxplug.session.model_info import NodeArg
from onnxplug_cli.feeds import FeedReader
from onnxplug_cli.image import Scaling


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


# Classes...


def test_planes_are_not_taken_for_classes(run, save_model, tmp_path: Path) -> None:
    Image.fromarray(np.full((2, 2), 51, np.uint8)).save(tmp_path / "grey.png")
    model = save_model(inputs={"x": [1, 1, 2, 2]}, metadata={"labels": '["a"]'})
    found = run(model, tmp_path / "grey.png", "--json").json
    assert found["classes"] == []
    assert found["outputs"][0]["mean"] == pytest.approx(0.2)
