"""An adapter for WebGPU's library: this machine's, or Mesa's software driver."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..tests.conftest import c_compiler

HERE = Path(__file__).parent
_TOOL = HERE.parents[1] / "webgpu" / "tools" / "with_lavapipe.py"
_SOFTWARE = {"ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1"}

_PROBE = """
import onnx.parser, onnxplug
model = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> '
    'g (float[2] x) => (float[2] y) { y = Neg(x) }'
)
providers = ["WebGpuExecutionProvider"]
with onnxplug.InferenceSession(model.SerializeToString(), providers=providers) as made:
    report = made.explain()
    if [each.ep for each in report.nodes] != providers:
        raise SystemExit(str(report).replace("\\n", " "))
"""


@functools.cache
def _find() -> dict[str, str] | str:
    """The environment in which there is one, or why there is none."""
    own = os.environ | _SOFTWARE
    if not (said := _fails(own)):
        return own
    spec = importlib.util.spec_from_file_location("with_lavapipe", _TOOL)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    folder = Path(sys.prefix) / "lavapipe"
    try:
        if not list(folder.glob("root/**/libvulkan_lvp.so")):
            tool.unpack(folder)
    except (SystemExit, OSError, subprocess.SubprocessError) as error:
        return f"{said}; {error}"
    mesa = tool.environment_of(folder) | _SOFTWARE
    if not (said := _fails(mesa)):
        return mesa
    compiler = c_compiler()
    if compiler is None:
        return f"{said}; there is no C compiler"
    return _with_features(mesa, folder, compiler)


def _with_features(
    mesa: dict[str, str], folder: Path, compiler: list[str]
) -> dict[str, str] | str:
    """The environment in which the driver says what it does, or why that is in vain."""
    (loader,) = folder.glob("root/**/libvulkan.so.1")
    wrapper = folder / "wrapper" / "libvulkan.so.1"
    wrapper.parent.mkdir(exist_ok=True)
    command = [*compiler, "-shared", "-fPIC", "-O1", "-o", wrapper, HERE / "vulkan.c"]
    subprocess.run([*command, "-ldl"], check=True)
    paths = f"{wrapper.parent}:{mesa['LD_LIBRARY_PATH']}"
    found = mesa | {"REAL_VULKAN": str(loader), "LD_LIBRARY_PATH": paths}
    return _fails(found) or found


def _fails(environment: dict[str, str]) -> str:
    """Why there is no adapter; empty if there is one."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROBE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if not done.returncode:
        return ""
    return (done.stderr.strip().splitlines() or ["it says nothing"])[-1]


def adapter_environment() -> dict[str, str]:
    """The environment of processes in which WebGPU's library has an adapter.

    Without one the test is skipped, and says why.
    """
    found = _find()
    if isinstance(found, str):
        pytest.skip(f"NO ADAPTER SERVES WEBGPU'S LIBRARY: {found}")
    return found
