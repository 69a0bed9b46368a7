"""Runs a command where ONNX Runtime's WebGPU library has an adapter.

    python tools/with_adapter.py FOLDER COMMAND …

That is the machine's own, or else Mesa's software driver, which is unpacked into FOLDER
as by ``with_lavapipe.py`` of onnxplug-webgpu.  Mesa 22's does not say of itself what
the library asks for, so it gets a wrapper that says it (``vulkan.c``).  Where none
serves, the command is not run: the status is 3, and the last line of errors says why.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from c_compiler import c_compiler

HERE = Path(__file__).parent
SOFTWARE = {"ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1"}
"""Without it the library leaves software drivers alone."""

NONE_SERVES = 3

_PROBE = """
import onnx.parser, onnxplug
model = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> '
    'g (float[2] x) => (float[2] y) { y = Neg(x) }'
)
providers = [("WebGpuExecutionProvider", {"onnxplug.trust_library": "1"})]
with onnxplug.InferenceSession(model.SerializeToString(), providers=providers) as made:
    report = made.explain()
    if [each.ep for each in report.nodes] != ["WebGpuExecutionProvider"]:
        raise SystemExit(str(report).replace("\\n", " "))
"""

_THE_LIBRARY = {"ONNXPLUG_PLUGINS": "cpu,webgpu@onnxruntime-ep-webgpu"}
"""For the probe: our own EP may be installed, too, and has the same name."""


def find(folder: Path) -> dict[str, str] | str:
    """The environment in which there is one, or why there is none."""
    own = os.environ | SOFTWARE
    if not (said := _fails(own)):
        return own
    lavapipe = _with_lavapipe()
    try:
        if not list(folder.glob("root/**/libvulkan_lvp.so")):
            lavapipe.unpack(folder)
    except (SystemExit, OSError, subprocess.SubprocessError) as error:
        return f"{said}; {error}"
    mesa = lavapipe.environment_of(folder) | SOFTWARE
    if not (said := _fails(mesa)):
        return mesa
    compiler = c_compiler()
    if compiler is None:
        return f"{said}; there is no C compiler"
    return _with_features(mesa, folder, compiler)


def _with_lavapipe() -> ModuleType:
    """The module that unpacks Mesa."""
    path = HERE.parents[1] / "webgpu" / "tools" / "with_lavapipe.py"
    spec = importlib.util.spec_from_file_location("with_lavapipe", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _with_features(
    mesa: dict[str, str], folder: Path, compiler: list[str]
) -> dict[str, str] | str:
    """The environment in which the driver says what it does, or why that is in vain."""
    (loader,) = folder.glob("root/**/libvulkan.so.1")
    wrapper = folder / "wrapper" / "libvulkan.so.1"
    wrapper.parent.mkdir(exist_ok=True)
    # renamed at the end, as other processes may have it loaded
    partial = wrapper.with_suffix(f".{os.getpid()}.part")
    command = [*compiler, "-shared", "-fPIC", "-O1", "-o", partial, HERE / "vulkan.c"]
    # what asks for it by name again is to find it, and not the loader behind it
    kept = ["-Wl,-soname,libvulkan.so.1", "-Wl,-z,nodelete"]
    subprocess.run([*command, *kept, "-ldl"], check=True)
    partial.replace(wrapper)
    paths = f"{wrapper.parent}:{mesa['LD_LIBRARY_PATH']}"
    found = mesa | {"REAL_VULKAN": str(loader), "LD_LIBRARY_PATH": paths}
    return _fails(found) or found


def _fails(environment: dict[str, str]) -> str:
    """Why there is no adapter; empty if there is one."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROBE],
        env=environment | _THE_LIBRARY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if not done.returncode:
        return ""
    return (done.stderr.strip().splitlines() or ["it says nothing"])[-1]


def main(folder: Path, command: list[str]) -> int:
    """Run *command*; the status that it ends with."""
    found = find(folder)
    if isinstance(found, str):
        print(f"NO ADAPTER SERVES WEBGPU'S LIBRARY: {found}", file=sys.stderr)
        return NONE_SERVES
    return subprocess.run(command, env=found, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
