"""Makes a package of a neutral program: a specification, and a file of weights."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from onnxplug import ep
from onnxplug_coreml.lowering.program import Program
from onnxplug_coreml.mlprogram.emitter import Refused, emit, shortened
from onnxplug_coreml.mlprogram.installation import building
from onnxplug_coreml.mlprogram.passes import apply_passes

PACKAGE: Final = "program.mlpackage"


def build_package(program: Program, folder: Path, *, narrow: bool) -> Path:
    """Write the package into *folder*.

    Weights go from the host's memory into the file; float16 ones of float32 are made
    first where *narrow* wants them.

    Raises:
        Refused: MIL cannot express the program.
    """
    path = folder / PACKAGE
    with (
        building() as tools,
        tempfile.TemporaryDirectory(prefix="onnxplug-coreml-") as weights,
    ):
        mil = emit(tools, program)
        try:
            apply_passes(tools, mil, narrow=narrow)
            model = tools.converters.mil.backend.mil.load.load(
                mil,
                weights_dir=weights,
                specification_version=tools.target.iOS17.value,
                convert_to="mlprogram",
            )
        except (MemoryError, OSError):
            raise
        except Exception as error:  # coremltools raises of all kinds
            ep.raise_interruption(error)
            raise Refused(f"coremltools fails at it: {shortened(error)}") from error
        tools.utils.save_spec(model, str(path), weights_dir=weights)
    return path
