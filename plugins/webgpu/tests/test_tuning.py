"""Shapes of workgroups: chosen by the vendor, measured on the adapter, and kept."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.authoring.entries import Cache
from onnxplug.ep import OptionError
from onnxplug_compiler.gpu.execution.device import DeviceLost
from onnxplug_compiler.gpu.shapes import DEFAULT, Shapes
from onnxplug_webgpu import tuning

LOGGER = logging.getLogger("tuning")
RNG = np.random.default_rng(5)
FASTEST = {"few_lanes": 32, "row_lanes": 16, "worth_a_group": 32}


def small(each: tuning.Benchmark) -> tuning.Benchmark:
    """The benchmark with arrays that take no time."""
    inputs = tuple(tuple(min(size, 64) for size in shape) for shape in each.inputs)
    return each._replace(inputs=inputs, output=tuple(min(s, 64) for s in each.output))


@pytest.fixture
def trials(
    device: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[Shapes]:
    """What is tried; the fastest are known, and entries in a folder of the test's."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "BENCHMARKS", tuple(map(small, tuning.BENCHMARKS[:3])))
    monkeypatch.setattr(device, "tuned", {})
    tried: list[Shapes] = []

    class Trial(tuning._Trial):
        def __init__(self, benchmark: Any, shapes: Shapes, device: Any) -> None:
            super().__init__(benchmark, shapes, device)
            self.tried = shapes
            tried.append(shapes)

        def seconds(self, count: int) -> float:
            assert super().seconds(1) > 0
            found = self.tried._asdict()
            return 2.0 - sum(found[name] == best for name, best in FASTEST.items()) / 3

    monkeypatch.setattr(tuning, "_Trial", Trial)
    return tried


def test_what_is_measured_is_kept(device: Any, trials: list[Shapes]) -> None:
    expected = Shapes(**FASTEST)
    assert tuning.tuned_shapes(device, LOGGER) == expected
    assert len(trials) == 3 + 4 + 2
    assert tuning.tuned_shapes(device, LOGGER) == expected
    device.tuned = {}
    assert tuning.chosen_shapes("device", device, LOGGER) == expected
    assert len(trials) == 9


@pytest.mark.parametrize(
    "content",
    [
        "2",
        "[1]",
        "{",
        '{"few_lanes": 12}',
        '{"rows": 3}',
        '{"a":' * 9999,
        '{"side": "8"}',
    ],
)
def test_an_entry_of_no_use_is_measured_again(
    device: Any, trials: list[Shapes], content: str
) -> None:
    name = tuning.entry_name(device)
    assert not Cache("onnxplug-webgpu").store(name, content.encode())
    assert tuning.tuned_shapes(device, LOGGER) == Shapes(**FASTEST)
    assert json.loads(Cache("onnxplug-webgpu").load(name) or b"") == FASTEST


def test_a_damaged_file_is_measured_again(
    device: Any, trials: list[Shapes], tmp_path: Path
) -> None:
    tuning.tuned_shapes(device, LOGGER)
    (path,) = tmp_path.rglob("shapes-*")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    device.tuned, count = {}, len(trials)
    assert tuning.tuned_shapes(device, LOGGER) == Shapes(**FASTEST)
    assert len(trials) == 2 * count


def test_what_there_was_no_time_for_another_session_measures(
    device: Any, trials: list[Shapes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tuning.tuned_shapes(device, LOGGER, 0) == DEFAULT
    assert not trials
    # the time ends before the second benchmark's second candidate is tried
    times = iter([0.0] * 6)
    with monkeypatch.context() as patch:
        patch.setattr(tuning.time, "monotonic", lambda: next(times, 9.0))
        found = tuning.tuned_shapes(device, LOGGER, 1)
    assert found == DEFAULT._replace(few_lanes=32)
    assert [each.row_lanes for each in trials[3:]] == [64, 32]
    device.tuned = {}
    assert tuning.tuned_shapes(device, LOGGER) == found
    assert [each.worth_a_group for each in trials[5:]] == [32, 128]


@pytest.mark.parametrize("fault", ["wrong", "refused", "lost"])
def test_a_shape_that_fails_is_not_taken(
    device: Any,
    trials: list[Shapes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
) -> None:
    result = tuning._Trial.result

    def failing(trial: Any) -> Any:
        found = result(trial)
        if trial.tried.row_lanes != 16:
            return found
        if fault == "lost":
            raise DeviceLost("the device was lost")
        if fault == "refused":
            raise ValueError("the driver has no registers for it")
        return found * 1.01

    monkeypatch.setattr(tuning._Trial, "result", failing)
    found = tuning.tuned_shapes(device, LOGGER)
    assert found == DEFAULT._replace(few_lanes=32)
    assert ("was lost" in caplog.text) == (fault == "lost")


def test_the_shapes_of_vendors_are_those_of_all_targets(device: Any) -> None:
    for shapes in tuning.BY_VENDOR.values():
        shapes.check()
    for benchmark in tuning.BENCHMARKS:
        for candidate in benchmark.candidates:
            changed = dict(zip(benchmark.names, candidate, strict=True))
            DEFAULT._replace(**changed).check()
    assert tuning.chosen_shapes("off", device, LOGGER) == DEFAULT


def test_other_values_are_refused(alone: Any, parse: Any) -> None:
    with pytest.raises(OptionError, match=r"autotune.*off.*vendor.*device"):
        alone(parse("y = Relu(x)"), autotune="1")


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """Products of many rows and few, a convolution, rows and reductions."""
    found = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[70, 33] a, float[1, 2, 9, 9] c)
            => (float[70, 90] m, float[1, 90] f, float[70, 90] s, float[70] r,
                float[70] i, float[1, 5, 7, 7] d, float[70, 90] n, int64[70] e) {
            m = MatMul(a, w)
            row = Slice(a, zero, one, zero)
            f = MatMul(row, w)
            s = Softmax(m)
            r = ReduceSum<keepdims = 0>(m, one)
            i = ReduceMax<keepdims = 0>(a, one)
            d = Conv(c, k)
            n = LayerNormalization(m, g)
            e = ArgMax<axis = 1, keepdims = 0>(a)
        }
        """
    )
    arrays = {
        "w": RNG.standard_normal((33, 90)).astype(np.float32),
        "k": RNG.standard_normal((5, 2, 3, 3)).astype(np.float32),
        "g": RNG.standard_normal(90).astype(np.float32),
        "zero": np.array([0]),
        "one": np.array([1]),
    }
    for name, array in arrays.items():
        found.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return found


@pytest.mark.parametrize(
    "shapes",
    [tuning.BY_VENDOR[0x10005], Shapes(8, 8, 8, 32, 8), Shapes(4, 16, 1, 256, 64)],
)
def test_results_are_the_same_whatever_the_shapes(
    alone: Any,
    device: Any,
    model: onnx.ModelProto,
    monkeypatch: pytest.MonkeyPatch,
    shapes: Shapes,
) -> None:
    vendor = device.adapter.vendor_id
    monkeypatch.setattr(tuning, "BY_VENDOR", {vendor: shapes})
    session: onnxplug.InferenceSession = alone(model, autotune="vendor")
    feeds = {
        "a": RNG.standard_normal((70, 33)).astype(np.float32),
        "c": RNG.standard_normal((1, 2, 9, 9)).astype(np.float32),
    }
    expected = ReferenceEvaluator(model).run(None, feeds)
    for result, right in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(result, right, 1e-4, 1e-4)
