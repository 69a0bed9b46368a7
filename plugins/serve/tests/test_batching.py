"""Requests that run together have the results that they have alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxplug
import onnxplug_serve
from onnxplug_serve.batching import find_plan
from onnxplug_serve.errors import Overloaded, TooLate
from onnxplug_serve.metrics import Metrics
from onnxplug_serve.requests import InferRequest
from onnxplug_serve.scheduler import Scheduler
from onnxplug_serve.served_model import ServedModel


def _plan(path: Path) -> Any:
    with onnxplug.InferenceSession(str(path)) as session:
        return find_plan(path, session.get_inputs())


def test_what_is_proven_is_joined(folder: Path) -> None:
    plan, why = _plan(folder / "layer.onnx")
    assert (plan.dimension, plan.inputs, plan.outputs) == ("N", {"x"}, {"y"})
    assert not why
    plan, _ = _plan(folder / "scale.onnx")
    assert plan.inputs == {"x"}  # and not the scale, which has to be the same


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mean", "ReduceMean"),
        ("endless", "no input's first dimension has a name"),
    ],
)
def test_what_is_not_proven_is_not_joined(folder: Path, name: str, words: str) -> None:
    plan, why = _plan(folder / f"{name}.onnx")
    assert plan is None
    assert words in why


def _model(path: Path, **more: Any) -> ServedModel:
    settings = onnxplug_serve.Settings(models={"m": path}, timeout=30, **more)
    return ServedModel("m", "1", path, settings, Metrics())


def _infer(model: ServedModel, feeds: list[Mapping[str, Any]]) -> list[Any]:
    """What all of them give, asked at the same time, or what each raised."""

    async def ask() -> list[Any]:
        asked = (model.infer(InferRequest(each)) for each in feeds)
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(ask())


def test_joined_requests_have_their_results(folder: Path) -> None:
    draw = np.random.default_rng(0)
    model = _model(folder / "layer.onnx")
    feeds = [
        {"x": draw.standard_normal((int(size), 4)).astype(np.float32)}
        for size in draw.integers(0, 6, 200)
    ]
    try:
        answers = _infer(model, feeds)
    finally:
        model.close(10)
    weights = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    for each, answer in zip(feeds, answers, strict=True):
        expected = np.tanh(each["x"].astype(np.float64) @ weights)
        np.testing.assert_allclose(answer.results["y"], expected, rtol=1e-5, atol=1e-6)
    joined = [answer.parameters.get("batched_requests", 1) for answer in answers]
    assert max(joined) > 1


def test_other_scales_are_not_joined(folder: Path) -> None:
    model = _model(folder / "scale.onnx")
    x = np.ones((1, 4), np.float32)
    feeds = [{"x": x, "scale": np.float32(number % 3)} for number in range(60)]
    feeds = [{name: np.asarray(each) for name, each in f.items()} for f in feeds]
    try:
        answers = _infer(model, feeds)
    finally:
        model.close(10)
    for each, answer in zip(feeds, answers, strict=True):
        np.testing.assert_array_equal(answer.results["y"], x * each["scale"])


def test_a_request_that_is_wrong_fails_alone(save_model, tmp_path: Path) -> None:
    path = save_model(
        "graph (int64[N] i) => (float[N, 2] y) { y = Gather (table, i) }",
        table=np.arange(8, dtype=np.float32).reshape(4, 2),
    )
    model = _model(path)
    feeds = [{"i": np.array([number % 4])} for number in range(40)]
    feeds[17] = {"i": np.array([99])}
    try:
        answers = _infer(model, feeds)
    finally:
        model.close(10)
    for number, answer in enumerate(answers):
        if number == 17:
            assert isinstance(answer, onnxplug_serve.RequestError)
        else:
            row = float(number % 4 * 2)
            np.testing.assert_array_equal(answer.results["y"], [[row, row + 1]])


def test_outputs_are_those_that_each_asks_for(save_model) -> None:
    path = save_model(
        "graph (float[N] x) => (float[N] a, float[N] b) { a = Neg (x) b = Abs (x) }"
    )
    model = _model(path)

    async def ask() -> list[Any]:
        x = np.array([-1.0], np.float32)
        asked = [
            model.infer(InferRequest({"x": x}, names))
            for names in ([], ["b"], ["b", "a"], ["a"]) * 5
        ]
        return await asyncio.gather(*asked)

    try:
        answers = asyncio.run(ask())
    finally:
        model.close(10)
    assert [list(each.results) for each in answers[:4]] == [
        ["a", "b"], ["b"], ["b", "a"], ["a"],
    ]  # fmt: skip
    assert all(value == [1.0] for each in answers for value in each.results.values())


class _Session:
    """Runs for as long as it is told."""

    def __init__(self) -> None:
        from threading import Event

        self.begun, self.go = Event(), Event()
        self.sizes: list[int] = []

    def get_outputs(self) -> list[Any]:
        return [type("Output", (), {"name": "y"})()]

    def run(self, names: Any, feeds: Mapping[str, Any], options: Any) -> list[Any]:
        self.begun.set()
        assert self.go.wait(10)
        self.sizes.append(len(feeds["x"]))
        return [feeds["x"]]


def _scheduler(folder: Path, **more: Any) -> tuple[_Session, Scheduler]:
    session: Any = _Session()
    plan, _ = _plan(folder / "layer.onnx")
    batching = onnxplug_serve.Batching(4)
    return session, Scheduler(session, plan, batching, **more)


def _request(rows: int, **more: Any) -> InferRequest:
    return InferRequest({"x": np.full((rows, 4), rows, np.float32)}, **more)


def test_no_more_are_joined_than_fit(folder: Path) -> None:
    session, scheduler = _scheduler(folder)
    first = scheduler.submit(_request(1))
    session.begun.wait(5)
    later = [scheduler.submit(_request(rows)) for rows in (1, 3, 2, 9, 1)]
    session.go.set()
    for rows, future in zip((1, 1, 3, 2, 9, 1), (first, *later), strict=True):
        results, _ = future.result(10)
        assert results["y"].tolist() == [[rows] * 4] * rows
    scheduler.close(5)
    # the first alone; what fits together, whole requests each; what is too large alone
    assert session.sizes == [1, 4, 3, 9]


def test_what_waits_too_long_is_not_run(folder: Path) -> None:
    session, scheduler = _scheduler(folder)
    first = scheduler.submit(_request(1))
    session.begun.wait(5)
    late = scheduler.submit(_request(9, timeout=0.01))
    gone = scheduler.submit(_request(9))
    gone.cancel()
    kept = scheduler.submit(_request(2))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: (__import__("time").sleep(0.05), session.go.set()))
    with pytest.raises(TooLate):
        late.result(10)
    kept.result(10)
    first.result(10)
    scheduler.close(5)
    assert session.sizes == [1, 2]


def test_a_queue_has_an_end(folder: Path) -> None:
    session, scheduler = _scheduler(folder, queued=2)
    first = scheduler.submit(_request(1))
    session.begun.wait(5)
    for _ in range(2):
        scheduler.submit(_request(9))
    with pytest.raises(Overloaded):
        scheduler.submit(_request(1))
    session.go.set()
    first.result(10)
    assert scheduler.close(5)


def test_inputs_that_disagree_are_told(save_model) -> None:
    path = save_model(
        "graph (float[N] a, float[N] b) => (float[N] c) { c = Add (a, b) }"
    )
    model = _model(path)
    good = {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}
    bad = {"a": np.ones(2, np.float32), "b": np.ones(3, np.float32)}
    try:
        answers = _infer(model, [good, bad, good])
    finally:
        model.close(10)
    assert isinstance(answers[1], onnxplug_serve.RequestError)
    for each in (answers[0], answers[2]):
        np.testing.assert_array_equal(each.results["c"], [2, 2])


def test_a_model_of_other_types_is_refused(save_model) -> None:
    path = save_model("graph (complex64[N] x) => (complex64[N] y) { y = Identity (x) }")
    with pytest.raises(onnxplug.errors.OnnxplugError, match="no datatype"):
        _model(path)
