"""Libraries beside a library, which it needs and the system does not find."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import onnxplug
from onnxplug import errors
from onnxplug_native.neighbours import Linked, alias, linked

from .conftest import SOURCE, c_compiler

EXAMPLE = "ExampleExecutionProvider"

_SCRIPT = """
import ctypes, sys, onnxplug
onnxplug.register_ep_library("example", sys.argv[1])
print(ctypes.CDLL("lib{name}.so").answer())
"""


@pytest.fixture
def wheel(compile_example: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """Makes the folder of a library that needs two others beside it, the second of
    which needs the first; nothing says where they are."""
    entries = compile_example().parent
    compiler = c_compiler()
    assert compiler is not None

    def build(file: Path, soname: str, text: str, *more: str | Path) -> Path:
        source = tmp_path / f"{soname}.c"
        source.write_text(text)
        command = [*compiler, "-shared", "-fPIC", "-w", "-Wl,--no-as-needed"]
        linking = [f"-Wl,-soname,{soname}", "-o", file, source, *more]
        subprocess.run([*command, *linking], check=True)
        return file

    def make(name: str) -> Path:
        folder = tmp_path / "wheel"
        folder.mkdir()
        first = build(
            folder / f"lib{name}.so.1.2.3",
            f"lib{name}.so.1",
            "int answer(void) { return 42; }",
        )
        second = build(
            folder / f"lib{name}_parser.so.1.2.3",
            f"lib{name}_parser.so.1",
            f'int answer(void); const char *asks_for = "lib{name}.so";'
            "int parse(void) { return answer(); }",
            first,
        )
        (folder / "libdamaged.so").write_bytes(b"\x7fELF\x02\x01" + bytes(60))
        use = "int parse(void);\nint use(void) { return parse(); }"
        text = f'#include "{SOURCE}"\n{use}'
        linked_to = [f"-I{entries}", second, first]
        return build(folder / "libep.so", "libep.so", text, *linked_to)

    return make


def test_a_library_has_what_lies_beside_it(wheel) -> None:
    """By the names that these give themselves, and that which one is asked for by."""
    path = wheel("onnxplug_one")
    found = linked(path)
    assert found is not None
    assert {"libonnxplug_one.so.1", "libonnxplug_one_parser.so.1"} <= {*found.needed}
    before = sorted(path.parent.iterdir())
    script = _SCRIPT.replace("{name}", "onnxplug_one")
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "42\n", done.stderr
    assert sorted(path.parent.iterdir()) == before


def test_what_is_nowhere_is_said(wheel) -> None:
    path = wheel("onnxplug_two")
    for file in path.parent.glob("libonnxplug_two*"):
        file.unlink()
    with pytest.raises(errors.PluginLoadError, match=r"libonnxplug_two.*cannot open"):
        onnxplug.register_ep_library("example", path)


def test_an_alias_is_a_library(tmp_path) -> None:
    if sys.platform != "linux":
        pytest.skip("its form is that of Linux")
    file = tmp_path / "libonnxplug_alias.so"
    file.write_bytes(alias(file.name, "libm.so.6"))
    assert linked(file) == Linked(file.name, ("libm.so.6",))
    sine = ctypes.CDLL(str(file)).sin
    sine.restype, sine.argtypes = ctypes.c_double, [ctypes.c_double]
    assert sine(0.0) == 0.0
    other = tmp_path / "libnothing.so"  # the first is in use
    other.write_text("nothing")
    assert linked(other) is None
