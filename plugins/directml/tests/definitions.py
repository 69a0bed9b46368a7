"""Microsoft's own definitions of Direct3D 12, DXGI, DXCore and DirectML, on any system.

They are those of win32more, which are generated from the metadata that Microsoft
publishes of its headers.  They need two things that only Windows has: functions called
by ``stdcall``, which on x86-64 and ARM64 is what any function is called by, and
libraries, of which none is loaded here.  ``wchar_t`` has 16 bits there, so texts in
structures are code units of 16 bits.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_ROOT = "win32more.Windows.Win32"
_MODULES = {
    "directml": f"{_ROOT}.AI.MachineLearning.DirectML",
    "d3d12": f"{_ROOT}.Graphics.Direct3D12",
    "direct3d": f"{_ROOT}.Graphics.Direct3D",
    "dxgi": f"{_ROOT}.Graphics.Dxgi",
    "dxgi_common": f"{_ROOT}.Graphics.Dxgi.Common",
    "dxcore": f"{_ROOT}.Graphics.DXCore",
    "foundation": f"{_ROOT}.Foundation",
    "com": f"{_ROOT}.System.Com",
    "threading": f"{_ROOT}.System.Threading",
}


@contextmanager
def _as_on_windows() -> Iterator[None]:
    """Within, ctypes has the names that it has on Windows."""
    lacking: dict[str, Any] = {
        "WINFUNCTYPE": ctypes.CFUNCTYPE,
        "FormatError": str,
        "GetLastError": int,
        "WinError": OSError,
        "windll": None,
    }
    added = [name for name in lacking if not hasattr(ctypes, name)]
    for name in added:
        setattr(ctypes, name, lacking[name])
    try:
        yield
    finally:
        for name in added:
            delattr(ctypes, name)


@functools.cache
def _win32more() -> None:
    """Imports the package without its ``__init__``, which calls OLE32.dll."""
    found = importlib.util.find_spec("win32more")
    if found is None or found.origin is None:
        lacking = "win32more is not installed; make test-directml-offline has it"
        if "win32more" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail(lacking)
        pytest.skip(lacking, allow_module_level=True)
    package = types.ModuleType("win32more")
    package.__path__ = [str(Path(found.origin).parent)]
    sys.modules["win32more"] = package
    with _as_on_windows():
        win32 = importlib.import_module("win32more._win32")
        win32.ARCH = "X64"
        win32.Char = ctypes.c_uint16
        importlib.import_module("win32more._prelude")


def module(name: str) -> Any:
    """One of win32more's modules: ``directml``, ``d3d12``, ``direct3d``, ``dxgi``,
    ``dxgi_common``, ``dxcore``, ``foundation``, ``com`` or ``threading``."""
    _win32more()
    return importlib.import_module(_MODULES[name])


def __getattr__(name: str) -> Any:
    """``definitions.directml`` is ``module("directml")``."""
    if name in _MODULES:
        return module(name)
    raise AttributeError(name)


def find(name: str) -> Any:
    """What win32more calls *name*, in whichever of the modules has it: a structure, an
    enumeration, an interface, a constant."""
    for each in _MODULES:
        try:
            return getattr(module(each), name)
        except AttributeError:
            continue
    raise LookupError(f"win32more has no {name}")


def iid(interface: str) -> bytes:
    """The 16 bytes of an interface's GUID, as they lie in memory."""
    return bytes(find(interface)._iid_)


def members(enumeration: str) -> dict[str, int]:
    """The members of an enumeration by Microsoft's full names.

    win32more has some as classes, and some as constants of the module.
    """
    for each in ("directml", "d3d12", "direct3d", "dxgi", "dxgi_common", "dxcore"):
        found = module(each)
        hint = f"{found.__name__}.{enumeration}"
        names = [name for name, of in found.__annotations__.items() if of == hint]
        if names:
            return {name: _value(getattr(found, name)) for name in names}
    kind = find(enumeration)
    values = {
        name: _value(value)
        for name, value in vars(kind).items()
        if not name.startswith("_") and isinstance(value, int)
    }
    return {f"{enumeration}_{name}": value for name, value in values.items()}


def _value(found: Any) -> int:
    return int(getattr(found, "value", found))


class Method:
    """A method of an interface.

    Attributes:
        name: as Microsoft has it.
        slot: its place in the table of functions.
        result: the ctypes type of what it returns; None for ``void``.
        arguments: ctypes types, without the object.
        names: of the arguments.
    """

    def __init__(self, name: str, slot: int, hints: dict[str, Any]) -> None:
        self.name = name
        self.slot = slot
        self.result = hints.pop("return")
        self.names = tuple(hints)
        self.arguments = tuple(_plain(kind) for kind in hints.values())

    @property
    def returns_structure(self) -> bool:
        """It returns a structure, which on Windows methods of C++ write to an address
        that they are given behind that of the object, and return."""
        return isinstance(self.result, type) and issubclass(
            self.result, ctypes.Structure
        )

    def prototype(self) -> Any:
        """The type of C functions that stand in a table of functions for it."""
        if self.returns_structure:
            address = ctypes.c_void_p
            return ctypes.CFUNCTYPE(address, address, address, *self.arguments)
        return ctypes.CFUNCTYPE(self.result, ctypes.c_void_p, *self.arguments)


def _plain(kind: Any) -> Any:
    """The type that ctypes hands to a callback as an integer where it is an object."""
    win32 = sys.modules["win32more._win32"]
    return ctypes.c_void_p if issubclass(kind, win32.ComPtr) else kind


@functools.cache
def methods(interface: str) -> tuple[Method, ...]:
    """All methods of an interface, with those that it inherits, by their slots.

    Raises:
        AssertionError: a slot is missing.
    """
    win32 = sys.modules.get("win32more._win32") or _win32_of(interface)
    kind = find(interface)
    found: dict[int, Method] = {}
    for each in kind.__mro__:
        for name, member in vars(each).items():
            if isinstance(member, win32.ComMethod):
                slot = member._vtbl_index
                hints = win32.get_type_hints(member._prototype)
                found.setdefault(slot, Method(name, slot, dict(hints)))
    assert sorted(found) == list(range(len(found))), interface
    return tuple(found[slot] for slot in sorted(found))


def _win32_of(interface: str) -> Any:
    find(interface)
    return sys.modules["win32more._win32"]
