"""A library in C++ that throws through the interface, which is C's."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxplug
from onnxplug import errors
from onnxplug.plugins import registry
from onnxplug_native.interface.table import entries

from .conftest import SOURCE, c_compiler, feeds, product, registry_handles

EXAMPLE = "ExampleExecutionProvider"
TEXT = "threw an exception of C.*interface, which is C's: nobody catches me"


def cxx_compiler() -> list[str] | None:
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return [found]
    return None


@pytest.fixture(scope="module")
def compile_throwing(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles the library.

    A compiler that has no libstdc++, as that of ``ziglang``, is of no use.
    """
    compiler, of_c = cxx_compiler(), c_compiler()
    if compiler is None or of_c is None or sys.platform != "linux":
        pytest.skip("there is no C++ compiler, or this is not Linux")
    if importlib.util.find_spec("llvmlite") is None:
        pytest.skip("exceptions are caught by what llvmlite compiles")
    folder = tmp_path_factory.mktemp("throwing")
    for file, structures in (
        ("entries.h", ("OrtApi", "OrtEpApi", "OrtModelEditorApi")),
        ("structures.h", ("OrtEpFactory", "OrtEp", "OrtNodeComputeInfo")),
    ):
        names = [
            f"{structure}_{entry.name} = {entry.place}"
            for structure in structures
            for entry in entries(structure)
        ]
        (folder / file).write_text(f"enum {{ {', '.join(names)} }};\n")
    renamed = ["CreateEpFactories=ExampleFactories", "ReleaseEpFactory=ExampleRelease"]
    flags = ["-fPIC", "-O0", "-w", f"-I{folder}"]

    def compile_with(throws: str, what: int = 0, *macros: str) -> Path:
        path = folder / f"libthrowing_{throws}_{what}.so"
        told = [*flags, *(f"-D{each}" for each in macros)]
        in_c = folder / f"{'_'.join(macros)}.o"
        if not in_c.exists():
            more = [f"-D{each}" for each in renamed]
            subprocess.run([*of_c, *told, *more, "-c", "-o", in_c, SOURCE], check=True)
        source = Path(__file__).with_name("throwing.cpp")
        told += [f"-DTHROWS={throws}", f"-DWHAT={what}"]
        command = [*compiler, "-shared", *told, "-o", path, source, in_c]
        subprocess.run(command, check=True)
        return path

    return compile_with


@pytest.fixture
def register_throwing(
    compile_throwing: Callable[..., Path],
) -> Iterator[Callable[..., None]]:
    def register_with(throws: str, what: int = 0, *macros: str) -> None:
        library = compile_throwing(throws, what, *macros)
        registry.register_ep_library("example", library)

    yield register_with
    if "example" in registry_handles(registry):
        registry.unregister_ep_library("example")


@pytest.mark.parametrize("throws", ["CreateEpFactories", "GetName"])
def test_a_library_that_throws_when_it_is_loaded_is_not(
    register_throwing, throws
) -> None:
    with pytest.raises(errors.OnnxplugError, match=TEXT):
        register_throwing(throws)


@pytest.mark.parametrize(
    "throws",
    [
        "GetSupportedDevices",
        "CreateEp",
        "CreateAllocator",
        "IsConcurrentRunSupported",
        "GetCapability",
        "Compile",
        "CreateState",
    ],
)
def test_a_session_fails_where_a_library_throws(register_throwing, throws) -> None:
    macros = ["DEVICE_MEMORY"] if throws == "CreateAllocator" else []
    register_throwing(throws, 0, *macros)
    with pytest.raises(errors.OnnxplugError, match=TEXT) as raised:
        onnxplug.InferenceSession(product(2, 3), providers=[EXAMPLE])
    assert throws in str(raised.value)


@pytest.mark.parametrize(
    ("throws", "what", "told"),
    [
        ("Compute", 0, TEXT),
        ("Compute", 1, r"Compute of Ex.* threw an exception .* which is C's"),
        ("ParallelFor", 0, TEXT),
    ],
)
def test_a_run_fails_where_a_library_throws(
    register_throwing, throws, what, told
) -> None:
    """Also where it throws from what an entry of the host calls."""
    register_throwing(throws, what)
    providers = [EXAMPLE, "cpu"]
    with onnxplug.InferenceSession(product(2, 3), providers=providers) as session:
        for _ in range(3):
            with pytest.raises(errors.OnnxplugError, match=told):
                session.run(None, feeds(2, 3))


def test_a_run_fails_where_what_a_library_gives_for_scans_throws(
    register_throwing,
) -> None:
    register_throwing("Transpose", 0, "DEVICE_MEMORY", "KERNELS", "SCAN=1")
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 3] s, float[2, 4, 3] x) => (float[2, 3] t) {
          t = Scan<num_scan_inputs = 1, scan_input_axes = [1],
            body = b (float[2, 3] u, float[2, 3] p) => (float[2, 3] v) {
              v = Mul(u, p)
            }>(s, x)
        }"""
    )
    given = {"s": feeds(2, 3)["x"], "x": feeds(2, 4, 3)["x"]}
    data = model.SerializeToString()
    with onnxplug.InferenceSession(data, providers=[EXAMPLE, "cpu"]) as session:
        for _ in range(2):
            with pytest.raises(errors.OnnxplugError, match=f"Transpose.*{TEXT}"):
                session.run(None, given)


@pytest.mark.parametrize("throws", ["IsGraphCaptured", "ReplayGraph"])
def test_a_run_fails_where_what_replays_throws(register_throwing, throws) -> None:
    macros = ["DEVICE_MEMORY", "KERNELS", "CAPTURES=1", "VERSION=27"]
    register_throwing(throws, 0, *macros)
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 3] x) => (float[2, 3] z) { z = Mul(x, x) }"""
    )
    data = model.SerializeToString()
    with onnxplug.InferenceSession(
        data, providers=[(EXAMPLE, {"mode": "captures"})]
    ) as session:
        x = feeds(2, 3)["x"]
        values = [
            onnxplug.OrtValue.ortvalue_from_numpy(x, "example_memory") for _ in range(2)
        ]
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", values[0])
        binding.bind_ortvalue_output("z", values[1])
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(values[1].numpy(), x * x, rtol=1e-6)
        for _ in range(2):
            with pytest.raises(errors.OnnxplugError, match=f"{throws}.*{TEXT}"):
                session.run_with_iobinding(binding)
        del binding, values


def test_a_library_that_throws_as_it_releases_is_told_of(
    register_throwing,
) -> None:
    register_throwing("ReleaseState")
    given = feeds(2, 3)
    session = onnxplug.InferenceSession(product(2, 3), providers=[EXAMPLE, "cpu"])
    (found,) = session.run(None, given)
    expected = (given["x"] + given["x"]) * given["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(errors.OnnxplugError, match=TEXT):
        session.close()


def test_without_what_catches_the_process_ends(compile_throwing, tmp_path) -> None:
    """As it does without llvmlite: what the reference says of it is so."""
    script = tmp_path / "throws.py"
    script.write_text(
        "import sys, onnxplug\n"
        "sys.modules['llvmlite'] = None\n"
        f"onnxplug.register_ep_library('example', {str(compile_throwing('GetName'))!r})"
    )
    done = subprocess.run(
        [sys.executable, script], check=False, capture_output=True, env=os.environ
    )
    assert done.returncode < 0 and b"nobody catches me" in done.stderr
