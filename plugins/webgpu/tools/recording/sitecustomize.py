"""Writes the text of every kernel that this process compiles for WebGPU to a file in
the folder that ONNXPLUG_SHADERS names; Python imports this module when it starts."""

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

MODULE = "onnxplug_webgpu.device"


class Recording(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Has the module of devices loaded by others, and changes it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            self._loader: Any = spec.loader
            spec.loader = self
        return spec

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        compile_kernel = module.Device.pipeline

        def pipeline(device: Any, text: str, *rest: Any, **options: Any) -> Any:
            name = hashlib.sha256(text.encode()).hexdigest()
            path = Path(os.environ["ONNXPLUG_SHADERS"], f"{name}.wgsl")
            if not path.exists():
                path.write_text(text, "utf-8")
            return compile_kernel(device, text, *rest, **options)

        module.Device.pipeline = pipeline


sys.meta_path.insert(0, Recording())
