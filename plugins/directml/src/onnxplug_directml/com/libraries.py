"""The functions that Windows' libraries export, and the events to wait by."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final, Self

from onnxplug_directml.abi.types import BOOL, ENUM, FLAGS, POINTER_SIZED, UINT
from onnxplug_directml.com.d3d12 import ID3D12Device
from onnxplug_directml.com.directml import IDMLDevice1
from onnxplug_directml.com.dxcore import IDXCoreAdapterFactory
from onnxplug_directml.com.dxgi import IDXGIFactory4
from onnxplug_directml.com.signature import Creates, Signature
from onnxplug_directml.com.unknown import IUnknown

_SYSTEM32: Final = 0x800  # LOAD_LIBRARY_SEARCH_SYSTEM32
_BESIDE_IT: Final = 0x100  # LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR

_WAIT_OBJECT_0: Final = 0
_WAIT_TIMEOUT: Final = 0x102
_LONGEST_WAIT: Final = 0xFFFFFFFE
"""Milliseconds; one more is for ever."""


def load(name: str) -> Any:
    """A library, by the name of one of the system's or by its full path.

    What it needs itself comes from its own folder or from the system's, and never from
    the current directory.

    Raises:
        OSError: it cannot be loaded.
    """
    if sys.platform != "win32":
        raise OSError(f"{name} is a library of Windows, and this is {sys.platform}")
    is_path = "\\" in name or "/" in name
    mode = _SYSTEM32 | _BESIDE_IT if is_path else _SYSTEM32
    return ctypes.WinDLL(name, winmode=mode)


UPDATE: Final = (
    "update Windows, or put the DirectML.dll of the NuGet package "
    "Microsoft.AI.DirectML beside the program or where the option 'dll_path' says"
)
"""How a newer DirectML is had."""


class Export(Signature):
    """A function of a library.

    Args:
        library: its file name.
        result, parameters: as of :class:`~.signature.Signature`.
    """

    def __init__(self, library: str, result: Any, *parameters: Any) -> None:
        super().__init__(result, parameters, of_object=False)
        self.library = library


D3D12: Final = "d3d12.dll"
DIRECTML: Final = "DirectML.dll"
DXCORE: Final = "dxcore.dll"
DXGI: Final = "dxgi.dll"
KERNEL: Final = "kernel32.dll"

EXPORTS: Final = {
    "CreateDXGIFactory2": Export(DXGI, Creates(IDXGIFactory4), UINT),
    "DXCoreCreateAdapterFactory": Export(DXCORE, Creates(IDXCoreAdapterFactory)),
    "D3D12CreateDevice": Export(D3D12, Creates(ID3D12Device), IUnknown, ENUM),
    "DMLCreateDevice1": Export(
        DIRECTML, Creates(IDMLDevice1), ID3D12Device, FLAGS, ENUM
    ),
    "CreateEventW": Export(
        KERNEL, POINTER_SIZED, POINTER_SIZED, BOOL, BOOL, POINTER_SIZED
    ),
    "WaitForSingleObject": Export(KERNEL, UINT, POINTER_SIZED, UINT),
    "CloseHandle": Export(KERNEL, BOOL, POINTER_SIZED),
}


class Libraries:
    """Libraries, each loaded when a function of it is first called.

    Args:
        directml: the path of ``DirectML.dll``, or its name for the system's.
    """

    def __init__(self, directml: str = DIRECTML) -> None:
        self._paths = {DIRECTML: directml}
        self._functions: dict[str, Any] = {}

    def call(self, name: str, *values: Any, asked: str = "") -> Any:
        """What a function of :data:`EXPORTS` returns.

        Args:
            asked: words for errors that say what for.

        Raises:
            RuntimeError: its library is not there, or does not have it.
            ComError: it failed.
        """
        export = EXPORTS[name]
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._find(name, export)
        subject = f"{name} ({asked})" if asked else name
        return export.call(function, values, subject)

    def _find(self, name: str, export: Export) -> Any:
        path = self._paths.get(export.library, export.library)
        try:
            library = load(path)
        except OSError as error:
            raise RuntimeError(f"{path} cannot be loaded: {error}") from error
        try:
            found = getattr(library, name)
        except AttributeError:
            raise RuntimeError(
                f"{path} has no {name}: it is too old; {UPDATE}"
            ) from None
        address = ctypes.cast(found, ctypes.c_void_p).value
        function = export.prototype(address)
        function.library = library  # which is there as long as its functions
        return function


class WaitableEvent:
    """An event of Windows, which resets itself when a wait has seen it.

    Args:
        libraries: of which kernel32 makes it.

    Raises:
        OSError: there are no more.
    """

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self.handle: int | None = libraries.call("CreateEventW", None, 0, 0, None)
        if not self.handle:
            raise OSError(
                "CreateEventW gave no event: the process has too many handles"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, seconds: float) -> bool:
        """Whether it was set within so many seconds.

        Raises:
            OSError: it cannot be waited for.
        """
        milliseconds = min(max(0, round(seconds * 1000)), _LONGEST_WAIT)
        answer = self._libraries.call("WaitForSingleObject", self.handle, milliseconds)
        if answer not in (_WAIT_OBJECT_0, _WAIT_TIMEOUT):
            raise OSError(f"WaitForSingleObject answered {answer:#x}")
        return bool(answer == _WAIT_OBJECT_0)

    def close(self) -> None:
        """Give the handle back, once."""
        handle, self.handle = self.handle, None
        if handle:
            self._libraries.call("CloseHandle", handle)
