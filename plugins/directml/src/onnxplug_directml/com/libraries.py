"""The functions that Windows' libraries export, each a line in a table."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, Final, overload

from onnxplug_directml.abi.types import BOOL, ENUM, FLAGS, POINTER_SIZED, UINT
from onnxplug_directml.com.d3d12 import ID3D12Device
from onnxplug_directml.com.directml import IDMLDevice1
from onnxplug_directml.com.dxcore import IDXCoreAdapterFactory
from onnxplug_directml.com.dxgi import IDXGIFactory4
from onnxplug_directml.com.signature import Creates, Signature
from onnxplug_directml.com.unknown import IUnknown

_SYSTEM32: Final = 0x800  # LOAD_LIBRARY_SEARCH_SYSTEM32
_BESIDE_IT: Final = 0x100  # LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR

DIRECTML: Final = "DirectML.dll"

UPDATE: Final = (
    "update Windows, or put the DirectML.dll of the NuGet package "
    "Microsoft.AI.DirectML beside the program or where the option 'dll_path' says"
)
"""How a newer DirectML is had."""


def load(name: str) -> Any:
    """A library, by the name of one of the system's or by its full path.

    What it needs itself comes from its own folder or from the system's, and never from
    the current directory.

    Raises:
        OSError: it cannot be loaded.
    """
    if sys.platform != "win32":
        raise OSError(f"it is a library of Windows, and this is {sys.platform}")
    is_path = "\\" in name or "/" in name
    mode = _SYSTEM32 | _BESIDE_IT if is_path else _SYSTEM32
    return ctypes.WinDLL(name, winmode=mode)


class Export(Signature):
    """A function of a library.

    Called, it takes the keyword ``asked``, too: words for errors that say what for.

    Args:
        library: its file name.
        result, parameters: as of :class:`~.signature.Signature`.
    """

    def __init__(self, library: str, result: Any, *parameters: Any) -> None:
        super().__init__(result, parameters, of_object=False)
        self.library = library
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, this: None, owner: type) -> Export: ...
    @overload
    def __get__(self, this: Libraries, owner: type) -> Callable[..., Any]: ...
    def __get__(
        self, this: Libraries | None, owner: type
    ) -> Export | Callable[..., Any]:
        if this is None:
            return self
        return lambda *values, asked="": self._call(this, values, asked)

    def _call(self, this: Libraries, values: tuple[Any, ...], asked: str) -> Any:
        subject = f"{self.name} ({asked})" if asked else self.name
        return self.call(this.function(self), values, subject)


class Libraries:
    """Windows' libraries, each loaded when a function of it is first called.

    A call raises ``RuntimeError`` where the library is not there or lacks the function.

    Args:
        directml: the path of ``DirectML.dll``, or its name for the system's.
    """

    CreateDXGIFactory2 = Export("dxgi.dll", Creates(IDXGIFactory4), UINT)
    DXCoreCreateAdapterFactory = Export("dxcore.dll", Creates(IDXCoreAdapterFactory))
    D3D12CreateDevice = Export("d3d12.dll", Creates(ID3D12Device), IUnknown, ENUM)
    DMLCreateDevice1 = Export(DIRECTML, Creates(IDMLDevice1), ID3D12Device, FLAGS, ENUM)
    CreateEventW = Export(
        "kernel32.dll", POINTER_SIZED, POINTER_SIZED, BOOL, BOOL, POINTER_SIZED
    )
    WaitForSingleObject = Export("kernel32.dll", UINT, POINTER_SIZED, UINT)
    CloseHandle = Export("kernel32.dll", BOOL, POINTER_SIZED)

    def __init__(self, directml: str = DIRECTML) -> None:
        self._directml = directml
        self._loaded: dict[str, Any] = {}
        self._functions: dict[str, Any] = {}

    @property
    def uses_directml(self) -> bool:
        """Its DirectML.dll was loaded, and is one."""
        return "DMLCreateDevice1" in self._functions

    def function(self, export: Export) -> Any:
        """The C function of an export.

        Raises:
            RuntimeError: its library is not there, or does not have it.
        """
        found = self._functions.get(export.name)
        if found is not None:
            return found
        path = self._directml if export.library == DIRECTML else export.library
        if path not in self._loaded:
            try:
                self._loaded[path] = load(path)
            except OSError as error:
                raise RuntimeError(f"{path} cannot be loaded: {error}") from error
        library = self._loaded[path]
        exported = getattr(library, export.name, None)
        if exported is None:
            raise RuntimeError(f"{path} has no {export.name}: it is too old; {UPDATE}")
        address = ctypes.cast(exported, ctypes.c_void_p).value
        self._functions[export.name] = made = export.prototype(address)
        return made
