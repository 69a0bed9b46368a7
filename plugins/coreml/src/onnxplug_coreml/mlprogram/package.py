"""Makes a package of a neutral program: a specification, and a file of weights."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from onnxplug_coreml.lowering.program import Program
from onnxplug_coreml.mlprogram.emitter import Names, emit
from onnxplug_coreml.mlprogram.installation import building
from onnxplug_coreml.mlprogram.passes import apply_passes

PACKAGE: Final = "program.mlpackage"
NAMES: Final = "names.json"


def build_package(program: Program, folder: Path, *, narrow: bool) -> Path:
    """Write the package into *folder*, and beside it what is called what.

    Weights go from the host's memory into the file; float16 ones of float32 are made
    first where *narrow* wants them.

    Raises:
        Refused: MIL cannot express the program.
    """
    with building() as tools:
        from coremltools.converters.mil.backend.mil.load import load

        mil, names = emit(tools, program)
        apply_passes(tools, mil, narrow=narrow)
        with tempfile.TemporaryDirectory(prefix="onnxplug-coreml-") as weights:
            model = load(
                mil,
                weights_dir=weights,
                specification_version=tools.target.iOS17.value,
                convert_to="mlprogram",
            )
            path = folder / PACKAGE
            tools.utils.save_spec(model, str(path), weights_dir=weights)
    write_names(names, folder)
    return path


def write_names(names: Names, folder: Path) -> None:
    """Keep *names* in *folder*."""
    text = json.dumps({field: dict(getattr(names, field)) for field in names._fields})
    (folder / NAMES).write_text(text, encoding="utf-8")


def read_names(folder: Path) -> Names:
    """What :func:`write_names` wrote.

    Raises:
        ValueError: it is damaged.
        OSError: it cannot be read.
    """
    try:
        tree: Any = json.loads((folder / NAMES).read_text(encoding="utf-8"))
        parts = [
            {str(name): str(value) for name, value in tree[field].items()}
            for field in Names._fields
        ]
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"what says its names is damaged: {error!r}") from error
    return Names(*parts)
