"""The example library, compiled as each test wants it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxplug
from onnxplug.plugins import PluginRegistry, registry
from onnxplug_native.interface.handles import live
from onnxplug_native.interface.table import entries

from ..tools.c_compiler import c_compiler

SOURCE = Path(__file__).with_name("example.c")


@pytest.fixture(scope="session")
def compile_example(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles the example library with macros defined.

    Without a compiler tests are skipped, or fail if ONNXPLUG_REQUIRE names ``cc``.
    """
    compiler = c_compiler()
    if compiler is None or sys.platform != "linux":
        message = "there is no C compiler, or this is not Linux; make test-native"
        if "cc" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    folder = tmp_path_factory.mktemp("example")
    names = [
        f"{structure}_{entry.name} = {entry.place}"
        for structure in ("OrtApi", "OrtEpApi", "OrtModelEditorApi")
        for entry in entries(structure)
    ]
    (folder / "entries.h").write_text(f"enum {{ {', '.join(names)} }};\n")

    def compile_with(*macros: str) -> Path:
        key = hashlib.sha256(" ".join(macros).encode()).hexdigest()[:8]
        path = folder / f"libexample_{key}.so"
        if not path.exists():
            flags = [f"-D{macro}" for macro in macros]
            command = [*compiler, "-shared", "-fPIC", "-O0", "-w", f"-I{folder}"]
            subprocess.run([*command, *flags, "-o", path, SOURCE], check=True)
        return path

    return compile_with


@pytest.fixture
def register(compile_example: Callable[..., Path]) -> Iterator[Callable[..., Path]]:
    """Registers the example library as ``example``, and looks for leaks in the end."""
    onnxplug.get_ep_devices()  # loads libraries that are installed, which stay
    before = {id(handle) for handle in live()}

    def register_with(*macros: str, devices: Sequence[Any] = ()) -> Path:
        path = compile_example(*macros)
        registry.register_ep_library("example", path, devices=devices)
        return path

    yield register_with
    if "example" in registry_handles(registry):
        registry.unregister_ep_library("example")
    left = [handle for handle in live() if id(handle) not in before]
    lasting = ("MemoryInfo", "MemoryDevice", "DataType")  # of the host's own
    assert [h for h in left if type(h).__name__ not in lasting] == []


def registry_handles(plugins: PluginRegistry) -> list[str]:
    from onnxplug.plugins import libraries

    return [record.name for record in libraries()]


def product(*shape: int | str, nodes: int = 1) -> bytes:
    """A model of *nodes* products, of a value and y, after a sum."""
    kind = TensorProto.FLOAT
    made = [helper.make_node("Add", ["x", "x"], ["v0"])]
    made += [
        helper.make_node("Mul", [f"v{i}", "y"], [f"v{i + 1}"]) for i in range(nodes)
    ]
    graph = helper.make_graph(
        made,
        "products",
        [helper.make_tensor_value_info(name, kind, shape) for name in "xy"],
        [helper.make_tensor_value_info(f"v{nodes}", kind, shape)],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def feeds(*shape: int) -> dict[str, np.ndarray]:
    """Numbers for :func:`product`."""
    random = np.random.default_rng(0)
    return {name: random.standard_normal(shape, np.float32) for name in "xy"}
