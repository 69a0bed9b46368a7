"""Core ML itself, by coremltools' bindings, which only its wheels for macOS have.

None of this has ever run: what is here follows coremltools 9.0 and its documentation.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onnxplug_coreml.mlprogram.emitter import INSIDE, shortened
from onnxplug_coreml.mlprogram.installation import find_bindings
from onnxplug_coreml.mlprogram.signature import Signature
from onnxplug_coreml.options import (
    ALL,
    CPU_AND_GPU,
    CPU_AND_NEURAL_ENGINE,
    CPU_ONLY,
    Settings,
)

COMPILED: Final = "program.mlmodelc"

_UNITS: Final = {
    ALL: "ALL",
    CPU_AND_GPU: "CPU_AND_GPU",
    CPU_AND_NEURAL_ENGINE: "CPU_AND_NE",
    CPU_ONLY: "CPU_ONLY",
}

_NAMES: Final = {
    "MLCPUComputeDevice": "CPU",
    "MLGPUComputeDevice": "GPU",
    "MLNeuralEngineComputeDevice": "NeuralEngine",
}


class NoCoreML(RuntimeError):
    """There is no Core ML here, or it does not take a model."""


def compile_package(package: Path) -> Path:
    """Core ML's compiled model of a package, in whose place it comes.

    Raises:
        NoCoreML: Core ML does not compile it, or is not here.
    """
    tools = _require_bindings()
    target = package.with_name(COMPILED)
    try:
        tools.models.utils.compile_model(str(package), str(target))
    except Exception as error:  # bare Exception is what coremltools raises
        raise NoCoreML(f"Core ML does not compile it: {shortened(error)}") from error
    shutil.rmtree(package)
    return target


class Predictor:
    """A compiled model that Core ML has loaded.

    It is called from any number of threads, one after another: Apple documents a model
    as one for a single thread at a time.

    Raises:
        NoCoreML: Core ML does not load it, or is not here.
    """

    def __init__(self, path: Path, signature: Signature, settings: Settings) -> None:
        tools = _require_bindings()
        self._signature = signature
        self._turn = threading.Lock()
        try:
            self._model = tools.models.CompiledMLModel(
                str(path),
                compute_units=_compute_units(tools, settings),
                optimization_hints=_hints(tools, settings) or None,
            )
        except Exception as error:  # bare Exception is what coremltools raises
            raise NoCoreML(f"Core ML does not load it: {shortened(error)}") from error

    def __call__(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """Predict.

        Raises:
            ValueError: a feed is not of a shape that the model was made for.
            RuntimeError: Core ML fails.
        """
        given = self._signature.enter(feeds)
        with self._turn:
            found = self._model.predict(given)
        return self._signature.leave(found)


def planned_units(path: Path, settings: Settings) -> dict[str, str]:
    """On which unit Core ML means to compute what, by the names of values.

    Values whose operations Core ML does not place, as constants, are left out.

    Raises:
        NoCoreML: Core ML gives no plan, or is not here.
    """
    tools = _require_bindings()
    try:
        plan = tools.models.compute_plan.MLComputePlan.load_from_path(
            str(path), _compute_units(tools, settings)
        )
        program = plan.model_structure.program
        operations = (
            [] if program is None else program.functions["main"].block.operations
        )
        found: dict[str, str] = {}
        for operation in operations:
            usage = plan.get_compute_device_usage_for_mlprogram_operation(operation)
            if usage is None:
                continue
            kind = type(usage.preferred_compute_device).__name__
            for output in operation.outputs:
                # as coremltools calls what it computes in float16 instead
                name = output.name.removesuffix("_cast_fp16").removesuffix(INSIDE)
                # what makes a result comes before what names it
                found.setdefault(name, _NAMES.get(kind, kind))
    except Exception as error:  # bare Exception is what coremltools raises
        raise NoCoreML(f"Core ML gives no plan of it: {shortened(error)}") from error
    return found


def _require_bindings() -> Any:
    tools = find_bindings()
    if tools is None:
        raise NoCoreML(
            "Core ML is a part of macOS, whose coremltools has bindings to it; here "
            "models are built but not run"
        )
    return tools


def _compute_units(tools: Any, settings: Settings) -> Any:
    return tools.ComputeUnit[_UNITS[settings.units]]


def _hints(tools: Any, settings: Settings) -> dict[str, Any]:
    """Empty without need: macOS before 15 knows none."""
    found: dict[str, Any] = {}
    if settings.fast_prediction:
        strategy = tools.SpecializationStrategy.FastPrediction
        found["specializationStrategy"] = strategy
    if settings.accumulates_low:
        found["allowLowPrecisionAccumulationOnGPU"] = True
    return found
