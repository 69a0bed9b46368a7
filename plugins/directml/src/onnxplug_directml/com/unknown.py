"""What all COM objects have in common: references, and other interfaces."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, ClassVar, Self

from onnxplug_directml.abi.guids import IID_IUnknown
from onnxplug_directml.abi.types import GUID, UINT
from onnxplug_directml.com.errors import error_of
from onnxplug_directml.com.method import Method
from onnxplug_directml.com.signature import FUNCTION, Interface, adopt

_QUERY = FUNCTION(
    ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(GUID), ctypes.c_void_p
)


class IUnknown:
    """An object of Windows, of which this one has a reference.

    Args:
        address: of the object; the reference that came with it is this one's.
        device: the one that it is of, which tells why it was removed.

    Attributes:
        IID: the interface's GUID.
    """

    IID: ClassVar[GUID] = IID_IUnknown

    AddRef = Method(1, UINT)
    Release = Method(2, UINT)

    def __init__(self, address: int, device: IUnknown | None = None) -> None:
        self._address = address
        self._functions: dict[int, Any] = {}
        self._device = device

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"{self._address:#x}" if self._address else "released"
        return f"<{type(self).__name__} {state}>"

    @property
    def address(self) -> int:
        """Where the object is.

        Raises:
            RuntimeError: it was released.
        """
        if not self._address:
            raise RuntimeError(f"an {type(self).__name__} was used after its release")
        return self._address

    @property
    def is_closed(self) -> bool:
        """It was released."""
        return not self._address

    @property
    def device(self) -> IUnknown | None:
        """The device that what this object creates is of."""
        return self._device

    def close(self) -> None:
        """Give the reference back, once."""
        if self._address:
            try:
                self.Release()
            finally:  # once, even if it is interrupted
                self._address = 0

    def query(self, interface: type[Interface]) -> Interface:
        """The object by another of its interfaces, with a reference of its own.

        Raises:
            Unsupported: it has no such interface.
        """
        asked = f"{type(self).__name__}.QueryInterface({interface.__name__})"
        function = self.function(0, _QUERY, asked)
        made = ctypes.c_void_p()
        status = function(self.address, ctypes.byref(interface.IID), ctypes.byref(made))
        if status < 0:
            raise error_of(status, asked)
        return adopt(interface, made, asked, self._device)

    def share(self) -> Self:
        """The same object, with a reference of its own."""
        self.AddRef()
        return type(self)(self.address, self._device)

    def function(self, slot: int, prototype: Any, name: str) -> Any:
        """The function at a place in the object's table.

        Raises:
            RuntimeError: the object was released, or has no such function.
        """
        address = self.address
        found = self._functions.get(slot)
        if found is None:
            table = ctypes.cast(address, _TABLE).contents.value
            place = (table or 0) + slot * ctypes.sizeof(ctypes.c_void_p)
            pointer = ctypes.c_void_p.from_address(place).value if table else None
            if not pointer:
                raise RuntimeError(f"the object has no {name}")
            found = self._functions[slot] = prototype(pointer)
        return found

    def removal_reason(self) -> int | None:
        """Why the object's device was removed, as its ``HRESULT``; None if there is
        none to ask."""
        device = self.device
        if device is None or device.is_closed:
            return None
        reason = getattr(device, "GetDeviceRemovedReason", None)
        with contextlib.suppress(RuntimeError):
            return None if reason is None else int(reason())
        return None

    @classmethod
    def from_param(cls, value: Any) -> ctypes.c_void_p:
        """What C is given for an object; ctypes calls it.

        Raises:
            TypeError: it is no object of this interface.
            RuntimeError: it was released.
        """
        if not isinstance(value, cls):
            raise TypeError(f"expected an {cls.__name__}; {value!r} was given")
        return ctypes.c_void_p(value.address)


_TABLE = ctypes.POINTER(ctypes.c_void_p)
