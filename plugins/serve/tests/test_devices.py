"""Runs on devices of one kind are limited, whichever models they are of."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxplug
import onnxplug_serve
from onnxplug_serve.batching import find_plan
from onnxplug_serve.devices import DeviceRuns, kinds_of_devices
from onnxplug_serve.errors import TooLate
from onnxplug_serve.requests import InferRequest
from onnxplug_serve.scheduler import Scheduler


class _Session:
    """Counts its runs that are at work at the same time as another's."""

    at_once = 0
    most = 0
    changing = threading.Lock()

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def get_outputs(self) -> list[Any]:
        return [type("Output", (), {"name": "y"})()]

    def run(self, names: Any, feeds: Any, options: Any) -> list[Any]:
        with self.changing:
            _Session.at_once += 1
            _Session.most = max(_Session.most, _Session.at_once)
        time.sleep(0.02)
        with self.changing:
            _Session.at_once -= 1
        self.sizes.append(len(feeds["x"]))
        return [feeds["x"]]


def _most_at_once(limit: int, kinds: list[set[str]]) -> int:
    """Runs at the same time, of models on *kinds* of devices, two instances each."""
    _Session.most = 0
    devices = DeviceRuns(limit)
    session: Any = _Session()
    schedulers = [
        Scheduler(
            session, None, onnxplug_serve.Batching(1), instances=2, devices=devices,
            kinds=each,
        )
        for each in kinds
    ]  # fmt: skip
    x = np.ones((1, 4), np.float32)
    futures = [each.submit(InferRequest({"x": x})) for each in schedulers * 5]
    for future in futures:
        future.result(20)
    assert all(each.close(5) for each in schedulers)
    return _Session.most


@pytest.mark.parametrize(
    ("limit", "kinds", "most"),
    [
        (1, [{"cpu"}, {"cpu"}, {"cpu"}], 1),
        (2, [{"cpu"}, {"cpu"}, {"cpu"}], 2),
        (1, [{"cpu"}, {"gpu"}], 2),
        (1, [{"cpu", "gpu"}, {"gpu", "npu"}, {"npu", "cpu"}], 1),
    ],
)
def test_no_more_run_than_may(limit: int, kinds: list[set[str]], most: int) -> None:
    assert _most_at_once(limit, kinds) == most


def test_without_a_limit_all_run_that_can() -> None:
    assert _most_at_once(0, [{"cpu"}, {"cpu"}]) > 2


def test_what_comes_while_a_device_is_waited_for_is_joined(folder: Path) -> None:
    devices = DeviceRuns(1)
    session: Any = _Session()
    with onnxplug.InferenceSession(str(folder / "layer.onnx")) as real:
        plan, _ = find_plan(folder / "layer.onnx", real.get_inputs())
        assert kinds_of_devices(real) == {"cpu"}
    scheduler = Scheduler(
        session, plan, onnxplug_serve.Batching(8), devices=devices, kinds={"cpu"}
    )
    x = np.ones((1, 4), np.float32)
    with devices.turn({"cpu"}):
        first = scheduler.submit(InferRequest({"x": x}))
        late = scheduler.submit(InferRequest({"x": x}, timeout=0.01))
        time.sleep(0.1)
        others = [scheduler.submit(InferRequest({"x": x})) for _ in range(3)]
    for future in (first, *others):
        assert future.result(10)[1] == 4
    with pytest.raises(TooLate):
        late.result(10)
    assert session.sizes == [4]
    assert scheduler.close(5)


def test_a_run_that_fails_gives_its_turn_back() -> None:
    devices = DeviceRuns(1)
    with pytest.raises(ValueError, match="no"), devices.turn({"cpu"}):
        raise ValueError("no")
    with devices.turn({"cpu"}) as waited:
        assert not waited
