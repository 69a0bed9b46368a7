"""Sessions whose models of Core ML are run by the interpreter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from mil_interpreter import Interpreter

from onnxplug_coreml import formats, mlprogram
from onnxplug_coreml.mlprogram.signature import Signature
from onnxplug_coreml.options import Settings

EP = ("CoreMLExecutionProvider", {"ModelFormat": "MLProgram"})


@contextlib.contextmanager
def simulated() -> Iterator[list[Interpreter]]:
    """While it lasts, the format MLProgram is offered here; gives what was loaded."""
    loaded: list[Interpreter] = []

    def load(
        path: Path, settings: Settings
    ) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
        border = Signature.read(path.parent)
        interpreter = Interpreter(path)
        loaded.append(interpreter)
        return lambda feeds: border.leave(interpreter(border.enter(feeds)))

    on_all_systems = {formats.MLPROGRAM: lambda machine, device: None}
    with (
        mock.patch.dict(formats._SYSTEM, on_all_systems),
        mock.patch.object(mlprogram, "load", load),
    ):
        yield loaded
