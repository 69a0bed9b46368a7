"""Methods of COM objects, each a line in a table of its interface.

A method is a function pointer at a place in the table that the object's first word
points to.  It takes the object as its first argument.  One that returns a structure
takes the address for it as its second, and returns that: so Windows' compilers have
methods of C++ do it, on x64 and on ARM64, whatever the structure's size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from onnxplug_directml.abi.types import GUID, HRESULT, UINT
from onnxplug_directml.com.errors import ComError, error_of

if TYPE_CHECKING:
    from onnxplug_directml.com.unknown import IUnknown

Interface = TypeVar("Interface", bound="IUnknown")

FUNCTION: Final[Callable[..., Any]] = getattr(ctypes, "WINFUNCTYPE", ctypes.CFUNCTYPE)
"""Types of functions by Windows' calling convention; on 64-bit systems the only one."""

_ADDRESS: Final = ctypes.c_void_p


class Parameter:
    """An argument in Python that is two in C, or none that ctypes knows."""

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
"""The result of a method whose ``HRESULT`` is raised if it is a failure."""


class Creates:
    """The result of a method that ends in ``REFIID riid, void** ppv``: an object.

    Args:
        interface: which is asked for.
        by_interface: the method takes its GUID.
    """

    def __init__(self, interface: type[IUnknown], *, by_interface: bool = True) -> None:
        self.interface = interface
        self.by_interface = by_interface


class Fills:
    """The result of a method that ends in a pointer to where it is put.

    Args:
        kind: a structure, or a plain type, of which the value is returned.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind


class Method:
    """A method.

    Args:
        slot: its place in the table of functions.
        result: None; a type of C's; a structure; or, of methods that return an
            ``HRESULT``, :data:`CHECKED`, :class:`Creates` or :class:`Fills`.
        parameters: types of C's; pointers to structures, for which structures are
            given; interfaces, for objects; or :class:`Parameter`.
    """

    def __init__(self, slot: int, result: Any, *parameters: Any) -> None:
        self.slot = slot
        self.result = result
        self.parameters = parameters
        self.name = ""
        self._prototype: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"{owner.__name__}.{name}"

    @overload
    def __get__(self, this: None, owner: type) -> Method: ...
    @overload
    def __get__(self, this: IUnknown, owner: type) -> Callable[..., Any]: ...
    def __get__(
        self, this: IUnknown | None, owner: type
    ) -> Method | Callable[..., Any]:
        if this is None:
            return self
        return lambda *values, asked="": self._call(this, values, asked)

    @property
    def prototype(self) -> Any:
        """The type of the function."""
        if self._prototype is None:
            kinds: list[Any] = []
            for parameter in self.parameters:
                plain = isinstance(parameter, Parameter)
                kinds += parameter.types if plain else (parameter,)
            result = self.result
            if isinstance(result, Creates):
                kinds += (ctypes.POINTER(GUID),) if result.by_interface else ()
                kinds.append(_ADDRESS)
                result = HRESULT
            elif isinstance(result, Fills):
                kinds.append(_ADDRESS)
                result = HRESULT
            elif result is CHECKED:
                result = HRESULT
            elif _is_structure(result):
                kinds.insert(0, _ADDRESS)
                result = _ADDRESS
            self._prototype = FUNCTION(result, _ADDRESS, *kinds)
        return self._prototype

    def _call(self, this: IUnknown, values: tuple[Any, ...], asked: str) -> Any:
        if len(values) != len(self.parameters):
            raise TypeError(
                f"{self.name} takes {len(self.parameters)} arguments; "
                f"{len(values)} were given"
            )
        arguments: list[Any] = []
        for parameter, value in zip(self.parameters, values, strict=True):
            if isinstance(parameter, Parameter):
                arguments += parameter.convert(value)
            else:
                arguments.append(value)
        function = this.function(self.slot, self.prototype, self.name)
        result = self.result
        if isinstance(result, Creates):
            return self._create(this, function, arguments, asked)
        if isinstance(result, Fills):
            filled = result.kind()
            status = function(this.address, *arguments, ctypes.byref(filled))
            self._check(this, status, asked)
            return filled if _is_structure(result.kind) else filled.value
        if _is_structure(result):
            filled = result()
            function(this.address, ctypes.byref(filled), *arguments)
            return filled
        answer = function(this.address, *arguments)
        if result is CHECKED:
            self._check(this, answer, asked)
        return answer

    def _create(
        self, this: IUnknown, function: Any, arguments: list[Any], asked: str
    ) -> IUnknown:
        assert isinstance(self.result, Creates)
        interface = self.result.interface
        if self.result.by_interface:
            arguments.append(ctypes.byref(interface.IID))
        made = ctypes.c_void_p()
        status = function(this.address, *arguments, ctypes.byref(made))
        self._check(this, status, asked)
        return adopt(interface, made, self._subject(asked), this.device)

    def _check(self, this: IUnknown, status: int, asked: str) -> None:
        if status < 0:
            raise error_of(status, self._subject(asked), this.removal_reason())

    def _subject(self, asked: str) -> str:
        return f"{self.name} ({asked})" if asked else self.name


def adopt(
    interface: type[Interface],
    made: ctypes.c_void_p,
    asked: str,
    device: IUnknown | None = None,
) -> Interface:
    """The object at an address that Windows has handed out.

    Args:
        asked: what was asked for, as a sentence's subject.
        device: what can tell why it was removed.

    Raises:
        ComError: the address is null.
    """
    if not made.value:
        raise ComError(f"{asked} succeeded, and yet gave no {interface.__name__}")
    return interface(made.value, device)


def _is_structure(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ctypes.Structure)
