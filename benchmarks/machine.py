"""What a measurement was taken on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_PACKAGES = (
    "onnxplug",
    "onnxplug-cpu",
    "onnxplug-cuda",
    "llvmlite",
    "onnxruntime",
    "openvino",
    "torch",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "nvidia-cudnn-frontend",
    "onnxruntime-gpu",
    "wgpu",
    "tinygrad",
    "coreai-core",
    "numpy",
    "onnx",
)


def describe_machine() -> dict[str, Any]:
    """Processor, cores, load before, versions, and the commit measured."""
    return {
        "processor": _processor(),
        "amx": _has_amx(),
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "commit": _commit(),
    }


def _processor() -> str:
    return _cpuinfo("model name") or platform.processor()


def _has_amx() -> bool:
    """Whether it has tiles of bfloat16."""
    return {"amx_tile", "amx_bf16"} <= set(_cpuinfo("flags").split())


def _cpuinfo(field: str) -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith(field):
            return line.split(":", 1)[1].strip()
    return ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"
