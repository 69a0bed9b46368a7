"""The real bindings, imported over libraries that do nothing.

NVIDIA has its libraries on an index of its own; the bindings are on PyPI.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

FUNCTIONS = """
createInferBuilder_INTERNAL createInferRuntime_INTERNAL createInferRefitter_INTERNAL
createNvOnnxParser_INTERNAL createNvOnnxParserRefitter_INTERNAL getNvOnnxParserVersion
getPluginRegistry getBuilderPluginRegistry initLibNvInferPlugins
"""
"""What the bindings look for."""

LIBRARIES = "nvinfer", "nvinfer_plugin", "nvonnxparser"

MAJOR = 11


def load(folder: Path) -> Any:
    """The module of the bindings.

    Args:
        folder: where the libraries are written.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return _lack("there is no C compiler")
    source = folder / "nothing.c"
    source.write_text(
        "".join(f"void *{n}(void){{return 0;}}" for n in FUNCTIONS.split())
    )
    for library in LIBRARIES:
        name = f"lib{library}.so.{MAJOR}"
        path = folder / name
        subprocess.run(
            [compiler, "-shared", "-fPIC", f"-Wl,-soname,{name}", source, "-o", path],
            check=True,
        )
        ctypes.CDLL(str(path))
    try:
        return importlib.import_module("tensorrt_bindings")
    except ImportError as error:
        return _lack(f"TensorRT's bindings cannot be imported: {error}")


def _lack(what: str) -> None:
    message = f"{what}; make test-tensorrt-offline"
    if "tensorrt-bindings" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
        pytest.fail(message)
    pytest.skip(message)
