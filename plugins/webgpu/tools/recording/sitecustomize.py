"""Writes the text of every kernel that this process compiles for WebGPU to a file in
the folder that ONNXPLUG_SHADERS names, and the same in CUDA C++; Python imports this
module when it starts."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


def keep(text: str, kind: str) -> None:
    """Write *text*, unless that was done."""
    name = hashlib.sha256(text.encode()).hexdigest()
    path = Path(os.environ["ONNXPLUG_SHADERS"], f"{name}.{kind}")
    if not path.exists():
        path.write_text(text, "utf-8")


def record_device(module: Any) -> None:
    compile_kernel = module.Device.kernel

    def kernel(device: Any, text: str, *rest: Any, **options: Any) -> Any:
        keep(text, "wgsl")
        return compile_kernel(device, text, *rest, **options)

    module.Device.kernel = kernel


def record_linking(module: Any) -> None:
    render = module.render

    def render_both(kernel: Any, bindings: Any, dialect: Any) -> Any:
        from onnxplug_compiler.gpu.render.cuda import CUDA

        keep(render(kernel, bindings, CUDA).text(kernel.lanes), "cu")
        return render(kernel, bindings, dialect)

    module.render = render_both


CHANGES = {
    "onnxplug_webgpu.device": record_device,
    "onnxplug_compiler.gpu.execution.linking": record_linking,
}


class Recording(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Has these modules loaded by others, and changes them."""

    def __init__(self) -> None:
        self._loaders: dict[str, Any] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            self._loaders[name] = spec.loader
            spec.loader = self
        return spec

    def exec_module(self, module: Any) -> None:
        name = module.__name__
        self._loaders[name].exec_module(module)
        CHANGES[name](module)


sys.meta_path.insert(0, Recording())
