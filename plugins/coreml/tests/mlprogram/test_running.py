"""How Core ML is called, held against the signatures of coremltools.

Core ML itself is not here: what its bindings would do is played by objects that take
only what coremltools' own functions take.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from onnxplug import ep
from onnxplug_coreml import mlprogram
from onnxplug_coreml.mlprogram import running
from onnxplug_coreml.mlprogram.signature import Side, Signature
from onnxplug_coreml.options import Settings

ct = pytest.importorskip("coremltools", reason="make test-coreml installs it")

compute_device, compute_plan = ct.models.compute_device, ct.models.compute_plan

BORDER = Signature(
    (
        Side("x", ep.DataType.FLOAT32, ((1, 4), (3, 3))),
        Side("mask", ep.DataType.BOOL, ((3, 3),)),
    ),
    (Side("y", ep.DataType.BOOL, ((1, 4),)), Side("z", ep.DataType.FLOAT32, ())),
)
FEEDS = {"x": np.ones((2, 3), np.float32), "mask": np.array([True, False, True])}


def settings(**others: Any) -> Settings:
    return Settings("MLProgram", **{"units": "ALL", "narrow": False, **others})


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    """coremltools, whose parts that need a Mac only keep to their signatures."""
    fake = mock.Mock(wraps=ct, spec=ct)
    fake.ComputeUnit = ct.ComputeUnit
    fake.SpecializationStrategy = ct.SpecializationStrategy
    fake.models = SimpleNamespace(
        CompiledMLModel=mock.create_autospec(ct.models.CompiledMLModel),
        utils=mock.create_autospec(ct.models.utils),
        compute_plan=SimpleNamespace(
            MLComputePlan=mock.create_autospec(compute_plan.MLComputePlan)
        ),
    )
    monkeypatch.setattr(running, "find_bindings", lambda: fake)
    return fake


@pytest.mark.parametrize(
    ("chosen", "units", "hints"),
    [
        (settings(), "ALL", None),
        (settings(units="CPUOnly"), "CPU_ONLY", None),
        (
            settings(units="CPUAndNeuralEngine", fast_prediction=True),
            "CPU_AND_NE",
            {"specializationStrategy": ct.SpecializationStrategy.FastPrediction},
        ),
        (
            settings(units="CPUAndGPU", accumulates_low=True),
            "CPU_AND_GPU",
            {"allowLowPrecisionAccumulationOnGPU": True},
        ),
    ],
)
def test_a_model_is_loaded_as_the_options_say(
    tools: Any, chosen: Settings, units: str, hints: Any
) -> None:
    running.Predictor(Path("folder/program.mlmodelc"), BORDER, chosen)
    tools.models.CompiledMLModel.assert_called_once_with(
        "folder/program.mlmodelc",
        compute_units=ct.ComputeUnit[units],
        optimization_hints=hints,
    )


def test_predictions_have_the_programs_types_and_ranks(tools: Any) -> None:
    model = tools.models.CompiledMLModel.return_value
    model.predict.return_value = {
        "y": np.array([1, 0], np.int32),
        "z": np.array([0.5], np.float32),
    }
    predict = running.Predictor(Path("m.mlmodelc"), BORDER, settings())
    found = predict(FEEDS)
    ((given,), _) = model.predict.call_args
    assert given["x"] is FEEDS["x"]  # as it is: nothing is copied
    assert given["mask"].dtype == np.int32
    np.testing.assert_array_equal(found["y"], np.array([True, False]))
    assert found["y"].dtype == bool
    assert found["z"].shape == ()


def test_one_thread_predicts_at_a_time(tools: Any) -> None:
    inside = threading.Semaphore(1)

    def predict(feeds: Any) -> Any:
        assert inside.acquire(blocking=False)
        try:
            return {"y": np.zeros(2, np.int32), "z": np.zeros(1, np.float32)}
        finally:
            inside.release()

    tools.models.CompiledMLModel.return_value.predict.side_effect = predict
    predictor = running.Predictor(Path("m.mlmodelc"), BORDER, settings())
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                predictor(FEEDS)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"y": np.zeros(2, np.int32)}, "gave NoneType of shape .* as 'z'"),
        (
            {"y": np.zeros((2, 2), np.int32)},
            r"of shape \[2, 2\] as 'y', which has rank 1",
        ),
    ],
)
def test_what_is_no_result_is_an_error(tools: Any, found: Any, said: str) -> None:
    tools.models.CompiledMLModel.return_value.predict.return_value = found
    predictor = running.Predictor(Path("m.mlmodelc"), BORDER, settings())
    with pytest.raises(RuntimeError, match=said):
        predictor(FEEDS)


def test_a_shape_beyond_the_models_never_reaches_core_ml(tools: Any) -> None:
    predictor = running.Predictor(Path("m.mlmodelc"), BORDER, settings())
    with pytest.raises(ValueError, match=r"'x' is of shape \[5, 3\].*\[1 to 4, 3\]"):
        predictor({**FEEDS, "x": np.ones((5, 3), np.float32)})
    tools.models.CompiledMLModel.return_value.predict.assert_not_called()


def test_packages_are_compiled_and_deleted(tools: Any, tmp_path: Path) -> None:
    package = tmp_path / "program.mlpackage"
    package.mkdir()
    assert running.compile_package(package) == tmp_path / "program.mlmodelc"
    tools.models.utils.compile_model.assert_called_once_with(
        str(package), str(tmp_path / "program.mlmodelc")
    )
    assert not package.exists()


def test_a_refusal_of_core_ml_has_its_words(tools: Any) -> None:
    tools.models.CompiledMLModel.side_effect = Exception("no such\n operation")
    with pytest.raises(running.NoCoreML, match="does not load it: no such operation"):
        running.Predictor(Path("m.mlmodelc"), BORDER, settings())


def test_the_plan_says_on_which_unit_values_are_made(tools: Any) -> None:
    def operation(*names: str) -> Any:
        made = [
            compute_plan.MLModelStructureProgramNamedValueType(
                name, compute_plan.MLModelStructureProgramValueType()
            )
            for name in names
        ]
        return compute_plan.MLModelStructureProgramOperation({}, "conv", made, [], None)

    operations = [
        operation("v1"), operation("v2_cast_fp16"), operation("v3"),
        operation("v4_inside"), operation("v4"),
    ]  # fmt: skip
    block = compute_plan.MLModelStructureProgramBlock([], operations, [])
    function = compute_plan.MLModelStructureProgramFunction([], block)
    program = compute_plan.MLModelStructureProgram({"main": function})
    devices: dict[str, Any] = {
        "v1": compute_device.MLCPUComputeDevice,
        "v2_cast_fp16": compute_device.MLNeuralEngineComputeDevice,
        "v4_inside": compute_device.MLGPUComputeDevice,
        "v4": compute_device.MLCPUComputeDevice,
    }

    def usage(operation: Any) -> Any:
        kind = devices.get(operation.outputs[0].name)
        if kind is None:
            return None
        device = object.__new__(kind)
        return compute_plan.MLComputePlanDeviceUsage(device, [device])

    plan = tools.models.compute_plan.MLComputePlan.load_from_path.return_value
    plan.model_structure = SimpleNamespace(program=program)
    plan.get_compute_device_usage_for_mlprogram_operation.side_effect = usage
    found = running.planned_units(Path("m.mlmodelc"), settings())
    assert found == {"v1": "CPU", "v2": "NeuralEngine", "v4": "GPU"}


def test_without_core_ml_models_are_refused(tmp_path: Path) -> None:
    BORDER.write(tmp_path)
    with pytest.raises(ep.Declined, match="Core ML is a part of macOS"):
        mlprogram.load(tmp_path / "program.mlmodelc", settings())


@pytest.mark.parametrize("text", ["", "[]", "[[1], []]", '[[["x", "float32"]], []]'])
def test_a_damaged_border_is_no_model(tmp_path: Path, text: str) -> None:
    (tmp_path / "border.json").write_text(text)
    with pytest.raises(ValueError):
        mlprogram.load(tmp_path / "program.mlmodelc", settings())


def test_importing_coremltools_prints_nothing() -> None:
    code = (
        "from onnxplug_coreml.mlprogram.installation import building\n"
        "with building(): pass"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
