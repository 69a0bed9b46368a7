"""Runs a command, and has a second validator look at the kernels that it compiled.

    python tools/validate_shaders.py [--nvrtc] FOLDER COMMAND …

wgpu validates kernels by naga; the second one is Tint, in Dawn, which Chrome has, for a
device with WebGPU's default limits.  It comes by npm into FOLDER, about 190 MB; where
there is no node or npm, kernels are not validated by it, which is said, and is an error
if ONNXPLUG_REQUIRE names tint.  The status is the command's, or 1 if a kernel is wrong.
The command finds FOLDER in ONNXPLUG_TINT, if Tint is there.

With --nvrtc the same kernels in CUDA C++ are compiled for Hopper, too, which takes a
tenth of a second for each; it needs nvidia-cuda-nvrtc.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "webgpu@0.6.2"
TOOLS = Path(__file__).parent


def install(folder: Path) -> str:
    """Have npm install Dawn; why there is none, or an empty text."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "there is no node or npm to run Tint with; install Node.js"
    if (folder / "node_modules" / "webgpu").exists():
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}', "utf-8")
    command = ["npm", "install", "--silent", "--ignore-scripts", PACKAGE]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    return f"npm does not install {PACKAGE}: {done.stderr}" if done.returncode else ""


def validate(folder: Path, texts: Path) -> tuple[int, list[dict[str, str]]]:
    """How many texts there are, and what is wrong with some."""
    done = subprocess.run(
        ["node", TOOLS / "tint.mjs", folder, texts],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    *wrong, count = done.stdout.splitlines()
    return int(count), [json.loads(line) for line in wrong]


def compile_for_hopper(texts: Path) -> list[str]:
    """What NVRTC says of kernels that it does not take."""
    from onnxplug_testing.nvrtc import find_nvrtc

    nvrtc = find_nvrtc()
    if nvrtc is None:
        sys.exit("NVRTC is not installed; pip install nvidia-cuda-nvrtc")
    wrong = []
    paths = sorted(texts.glob("*.cu"))
    for path in paths:
        try:
            nvrtc.compile(path.read_text("utf-8"), "sm_90a")
        except ValueError as error:
            wrong.append(str(error))
    print(f"NVRTC compiles {len(paths) - len(wrong)} of {len(paths)} kernels")
    return wrong


def main(folder: Path, command: list[str], also_cuda: bool) -> int:
    """Run *command*; the status that all ends with."""
    missing = install(folder)
    required = "tint" in os.environ.get("ONNXPLUG_REQUIRE", "").split(",")
    if missing and required:
        sys.exit(missing)
    with tempfile.TemporaryDirectory() as texts:
        paths = [
            str(TOOLS / "recording"),
            *filter(None, [os.environ.get("PYTHONPATH")]),
        ]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "ONNXPLUG_SHADERS": texts,
            "ONNXPLUG_TINT": "" if missing else str(folder),
        }
        status = subprocess.run(command, env=environment, check=False).returncode
        if also_cuda:
            refused = compile_for_hopper(Path(texts))
            print(*refused, sep="\n")
            status = status or bool(refused)
        if missing:
            print(f"kernels were not validated by Tint: {missing}")
            return status
        count, wrong = validate(folder, Path(texts))
        for each in wrong:
            print(each["error"], (Path(texts) / each["name"]).read_text("utf-8"))
    print(f"Tint takes {count - len(wrong)} of {count} kernels")
    return status or bool(wrong) or (required and not count)


if __name__ == "__main__":
    given = sys.argv[1:]
    also_cuda = given[:1] == ["--nvrtc"]
    given = given[also_cuda:]
    if len(given) < 2:
        sys.exit(__doc__)
    sys.exit(main(Path(given[0]).resolve(), given[1:], also_cuda))
