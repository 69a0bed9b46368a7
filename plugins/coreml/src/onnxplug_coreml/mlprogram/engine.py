"""What the EP asks of an engine; see :class:`onnxplug_coreml.engine.Engine`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from onnxplug import ep
from onnxplug_coreml.engine import Runner
from onnxplug_coreml.lowering.program import Program
from onnxplug_coreml.mlprogram.emitter import Refused
from onnxplug_coreml.mlprogram.installation import find_bindings
from onnxplug_coreml.mlprogram.package import build_package
from onnxplug_coreml.mlprogram.running import (
    NoCoreML,
    Predictor,
    compile_package,
    planned_units,
)
from onnxplug_coreml.mlprogram.signature import Signature
from onnxplug_coreml.options import Settings


def build(program: Program, settings: Settings, folder: Path) -> Path:
    """The program as a model in *folder*; where it is there.

    It is compiled where Core ML is, and the package that Core ML would compile
    elsewhere.

    Raises:
        Declined: MIL or Core ML does not take it.
    """
    try:
        package = build_package(program, folder, narrow=settings.narrow)
        Signature.of(program).write(folder)
        return package if find_bindings() is None else compile_package(package)
    except (ImportError, NoCoreML, Refused) as error:
        _decline(error)


def load(path: Path, settings: Settings) -> Runner:
    """The model at *path*, ready to run.

    Raises:
        Declined: Core ML does not take it, or is not here.
        ValueError: what is beside it is damaged.
        OSError: it cannot be read.
    """
    try:
        return Predictor(path, Signature.read(path.parent), settings)
    except (ImportError, NoCoreML) as error:
        _decline(error)


def units(path: Path, settings: Settings) -> Mapping[str, str]:
    """On which unit Core ML means to make values, by their names.

    Raises:
        Declined: Core ML gives no plan.
    """
    try:
        return planned_units(path, settings)
    except (ImportError, NoCoreML) as error:
        _decline(error)


def _decline(error: Exception) -> NoReturn:
    raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, str(error))) from error
