"""What a function of Windows takes and returns, and how Python's values become that.

A method of a COM object that returns a structure takes the address for it behind that
of the object, and returns that address: so Windows' compilers have methods of C++ do
it, on x64 and on ARM64, whatever the structure's size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Protocol, TypeVar

from onnxplug_directml.abi.types import GUID, HRESULT, UINT
from onnxplug_directml.com.errors import ComError, error_of


class Object(Protocol):
    """An object of Windows, as far as functions have to do with it.

    Attributes:
        IID: of its interface.
        address: where it is.
        device: the one that it is of, or itself if it is one.
    """

    IID: ClassVar[GUID]

    def __init__(self, address: int, device: Any) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def device(self) -> Any: ...
    def removal_reason(self) -> int | None:
        """Why its device was removed, if it was."""


Interface = TypeVar("Interface", bound=Object)

FUNCTION: Final[Callable[..., Any]] = getattr(ctypes, "WINFUNCTYPE", ctypes.CFUNCTYPE)
"""Types of functions by Windows' calling convention; on 64-bit systems the only one."""

_ADDRESS: Final = ctypes.c_void_p


class Parameter:
    """An argument in Python that is two in C, or none that ctypes knows.

    Attributes:
        types: what it is in C.
    """

    types: tuple[Any, ...]

    def convert(self, value: Any) -> tuple[Any, ...]:
        """What C is given for *value*.

        Raises:
            TypeError: it is something else.
        """
        raise NotImplementedError


class Array(Parameter):
    """A sequence, as how many there are and where they begin.

    Args:
        kind: of what: a structure, or an interface of objects.
    """

    types = (UINT, _ADDRESS)

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def convert(self, value: Sequence[Any]) -> tuple[Any, ...]:
        if not value:
            return 0, None
        if issubclass(self._kind, ctypes.Structure):
            return len(value), (self._kind * len(value))(*value)
        addresses = (self._kind.from_param(each) for each in value)
        return len(value), (_ADDRESS * len(value))(*addresses)


class SizeThenData(Parameter):
    """A structure, as how many bytes it has and where it is; None: none."""

    types = (UINT, _ADDRESS)

    def convert(self, value: ctypes.Structure | None) -> tuple[Any, ...]:
        if value is None:
            return 0, None
        return ctypes.sizeof(value), ctypes.byref(value)


class DataThenSize(Parameter):
    """A structure, as where it is and how many bytes it has."""

    types = (_ADDRESS, UINT)

    def convert(self, value: ctypes.Structure) -> tuple[Any, ...]:
        return ctypes.byref(value), ctypes.sizeof(value)


class Text(Parameter):
    """A text, of code units of 16 bits on every system."""

    types = (_ADDRESS,)

    def convert(self, value: str) -> tuple[Any, ...]:
        return (ctypes.create_string_buffer(f"{value}\0".encode("utf-16-le")),)


CHECKED: Final = object()
"""The result of a function whose ``HRESULT`` is raised if it is a failure."""


class Creates:
    """The result of a function that ends in ``REFIID riid, void** ppv``: an object.

    Args:
        interface: which is asked for.
        by_interface: the function takes its GUID.
    """

    def __init__(self, interface: type[Object], *, by_interface: bool = True) -> None:
        self.interface = interface
        self.by_interface = by_interface


class Fills:
    """The result of a function that ends in a pointer to where it is put.

    Args:
        kind: a structure, or a plain type, of which the value is returned.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind


class Signature:
    """What a function takes and returns.

    Args:
        result: None; a type of C's; a structure; or, of functions that return an
            ``HRESULT``, :data:`CHECKED`, :class:`Creates` or :class:`Fills`.
        parameters: types of C's; pointers to structures, for which structures are
            given; interfaces, for objects; or :class:`Parameter`.
        of_object: it is a method, which takes the object first.
    """

    def __init__(
        self, result: Any, parameters: Sequence[Any], *, of_object: bool
    ) -> None:
        self.result = result
        self.parameters = tuple(parameters)
        self._of_object = of_object
        self._prototype: Any = None

    @property
    def prototype(self) -> Any:
        """The type of the function; made when it is first asked for."""
        if self._prototype is None:
            kinds: list[Any] = [_ADDRESS] if self._of_object else []
            result = self.result
            if _is_structure(result):
                kinds.append(_ADDRESS)
                result = _ADDRESS
            for parameter in self.parameters:
                expands = isinstance(parameter, Parameter)
                kinds += parameter.types if expands else (parameter,)
            if isinstance(result, Creates):
                kinds += (ctypes.POINTER(GUID),) if result.by_interface else ()
            if isinstance(result, Creates | Fills):
                kinds.append(_ADDRESS)
            if result is CHECKED or isinstance(result, Creates | Fills):
                result = HRESULT
            self._prototype = FUNCTION(result, *kinds)
        return self._prototype

    def call(
        self,
        function: Any,
        values: Sequence[Any],
        subject: str,
        this: Object | None = None,
    ) -> Any:
        """What a function of this signature returns for *values*.

        Args:
            subject: what is asked, for errors.
            this: the object that it is a method of.

        Raises:
            ComError: it failed.
            TypeError: other arguments are wanted.
        """
        wanted = len(self.parameters)
        if len(values) != wanted:
            raise TypeError(
                f"{subject} takes {wanted} arguments; {len(values)} were given"
            )
        arguments: list[Any] = [] if this is None else [this.address]
        result = self.result
        if _is_structure(result):
            filled = result()
            arguments.append(ctypes.byref(filled))
        for parameter, value in zip(self.parameters, values, strict=True):
            if isinstance(parameter, Parameter):
                arguments += parameter.convert(value)
            else:
                arguments.append(value)
        if _is_structure(result):
            function(*arguments)
            return filled
        if isinstance(result, Fills):
            made = result.kind()
            _check(function(*arguments, ctypes.byref(made)), subject, this)
            return made if _is_structure(result.kind) else made.value
        if isinstance(result, Creates):
            if result.by_interface:
                arguments.append(ctypes.byref(result.interface.IID))
            address = ctypes.c_void_p()
            _check(function(*arguments, ctypes.byref(address)), subject, this)
            device = None if this is None else this.device
            return adopt(result.interface, address, subject, device)
        answer = function(*arguments)
        if result is CHECKED:
            _check(answer, subject, this)
        return answer


def adopt(
    interface: type[Interface],
    made: ctypes.c_void_p,
    subject: str,
    device: Object | None = None,
) -> Interface:
    """The object at an address that Windows has handed out.

    Args:
        subject: what was asked for.
        device: what can tell why it was removed.

    Raises:
        ComError: the address is null.
    """
    if not made.value:
        raise ComError(f"{subject} succeeded, and yet gave no {interface.__name__}")
    return interface(made.value, device)


def _check(status: int, subject: str, this: Object | None) -> None:
    if status < 0:
        reason = None if this is None else this.removal_reason()
        raise error_of(status, subject, reason)


def _is_structure(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ctypes.Structure)
