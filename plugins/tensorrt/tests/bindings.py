"""The real bindings, imported over libraries that do nothing.

NVIDIA has its libraries on an index of its own; the bindings are on PyPI.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FUNCTIONS = """
createInferBuilder_INTERNAL createInferRuntime_INTERNAL createInferRefitter_INTERNAL
createNvOnnxParser_INTERNAL createNvOnnxParserRefitter_INTERNAL getNvOnnxParserVersion
getPluginRegistry getBuilderPluginRegistry
"""
"""What the bindings look for, besides."""

CALLER = """
#include <stdint.h>
typedef struct { int32_t count; int64_t sizes[8]; } Dims;
/* calls methods of an object by their places in its table, as TensorRT 11.4 has them:
   three are those of every interface with a version, and its destructor's are two */
int initLibNvInferPlugins(void *object, const char *what) {
  void **table = *(void ***)object;
  switch (*what) {
  case 'l':
    ((void (*)(void *, int, const char *))table[4])(object, 1, "said");
    return 1;
  case 'p':
    ((void (*)(void *, const char *, const char *, int))table[4])(object, "a", 0, 5);
    int goes_on = ((_Bool (*)(void *, const char *, int))table[5])(object, "a", 3);
    ((void (*)(void *, const char *))table[6])(object, "a");
    return goes_on;
  case 'm':;
    Dims shape = {2, {3, 4}};
    void *found = ((void *(*)(void *, const char *, void *, uint64_t, uint64_t, void *))
                   table[5])(object, "y", 0, 100, 256, (void *)1008);
    ((void (*)(void *, const char *, Dims *))table[6])(object, "y", &shape);
    return found == (void *)4096;
  }
  return 0;
}
"""
"""What has the bindings call Python, as TensorRT does."""

LIBRARIES = "nvinfer", "nvinfer_plugin", "nvonnxparser"

MAJOR = 11


def load(folder: Path) -> Any:
    """The module of the bindings.

    Args:
        folder: where the libraries are written.
    """
    rest = "".join(f"void *{n}(void){{return 0;}}\n" for n in FUNCTIONS.split())
    for library in LIBRARIES:
        path = _compile(folder / f"lib{library}.so.{MAJOR}", CALLER + rest)
        ctypes.CDLL(str(path))
    try:
        return importlib.import_module("tensorrt_bindings")
    except ImportError as error:
        return _lack(f"TensorRT's bindings cannot be imported: {error}")


def _compile(path: Path, text: str) -> Path:
    """Write a library of that name."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        _lack("there is no C compiler")
    source = path.with_suffix(".c")
    source.write_text(text)
    soname = f"-Wl,-soname,{path.name}"
    subprocess.run(
        [str(compiler), "-shared", "-fPIC", soname, source, "-o", path], check=True
    )
    return path


def _lack(what: str) -> None:
    message = f"{what}; make test-tensorrt-offline"
    if "tensorrt-bindings" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
        pytest.fail(message)
    pytest.skip(message)


RTX = "ONNXPLUG_TENSORRT_RTX"
"""The environment variable that names a folder with TensorRT for RTX: its bindings, and
its libraries, which the EP for ONNX Runtime has."""


def load_rtx() -> Any:
    """The module of TensorRT for RTX, whose parser and builder need no GPU."""
    folder = os.environ.get(RTX, "")
    libraries = Path(folder, "onnxruntime_ep_nv_tensorrt_rtx")
    if not folder or not libraries.is_dir():
        return _lack(f"{RTX} names no folder with TensorRT for RTX")
    for pattern in ("libtensorrt_rtx.so.*", "libtensorrt_onnxparser_rtx.so.*"):
        (path,) = libraries.glob(pattern)
        ctypes.CDLL(str(path))
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("tensorrt_rtx_bindings")


def write_driver(folder: Path) -> None:
    """Write libraries with the functions of the driver that TensorRT for RTX looks for,
    all of which fail."""
    libraries = Path(os.environ[RTX], "onnxruntime_ep_nv_tensorrt_rtx")
    names: set[str] = set()
    for path in libraries.glob("lib*.so"):
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", path],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        names |= set(re.findall(r"\b(cu[A-Z]\w+|nvml\w+)", listed.stdout))
    for library, prefix in (("libcuda.so.1", "cu"), ("libnvidia-ml.so.1", "nvml")):
        own = sorted(name for name in names if name.startswith(prefix))
        text = "".join(f"int {name}(void) {{ return 100; }}\n" for name in own)
        _compile(folder / library, text)
