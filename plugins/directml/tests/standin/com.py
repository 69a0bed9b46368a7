"""COM objects in Python: memory whose first word points to a table of C functions."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .. import definitions
from .results import E_NOINTERFACE, E_POINTER, Failure, Invalid

if TYPE_CHECKING:
    from .queue import Submission
    from .windows import Windows

OBJECTS: dict[int, ComObject | Grave] = {}
"""Every object by its address, or what was one: no call of any can crash."""

Object = TypeVar("Object", bound="ComObject")


class Cell(ctypes.Structure):
    """What a pointer to an interface points to."""

    _fields_ = (("table", ctypes.c_void_p),)


class Grave:
    """What is left of an object, to hear of calls that come too late."""

    __slots__ = ("INTERFACE", "_cell", "_name", "windows")
    destroyed = True

    def __init__(self, of: ComObject) -> None:
        self.INTERFACE = of.INTERFACE
        self._cell = of._cell
        self._name = repr(of)
        self.windows = of.windows

    def __repr__(self) -> str:
        return self._name


class ComObject:
    """An object with one chain of interfaces, whose methods have Microsoft's names.

    A method gets what the caller passed: pointers to structures as ctypes pointers,
    other pointers as integers or None.  It returns what the interface's returns, None
    for ``S_OK``, or raises `Failure` or `Invalid`.
    """

    INTERFACE: ClassVar[str]
    """The last interface of the chain."""

    HELD: ClassVar[bool] = True
    """Whether the GPU uses its memory, so that it may not be released while it does."""

    def __init__(self, windows: Windows, parent: ComObject | None = None) -> None:
        self.windows = windows
        self.parent = parent
        self.references = 1
        self.name = ""
        self.uses: set[Submission] = set()
        self._table, functions = table(type(self))  # type: ignore[arg-type]  # the class is what it asks to hash
        self._cell = Cell(ctypes.addressof(functions))
        self.address = ctypes.addressof(self._cell)
        OBJECTS[self.address] = self
        windows.alive.add(self)
        if parent is not None:
            parent.references += 1

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"{self.INTERFACE}{name} {self.address:#x}"

    @property
    def destroyed(self) -> bool:
        """Whether nobody has a reference."""
        return self.references <= 0

    def QueryInterface(self, riid: Any, result: Any) -> int | None:
        if not result:
            raise Invalid("QueryInterface needs a place for the object", E_POINTER)
        if bytes(riid.contents) not in interfaces(self.INTERFACE):
            result[0] = None
            return E_NOINTERFACE
        self.references += 1
        result[0] = self.address
        return None

    def AddRef(self) -> int:
        self.references += 1
        return self.references

    def Release(self) -> int:
        self.references -= 1
        if self.references == 0:
            self.destroy()
        return self.references

    def destroy(self) -> None:
        """Takes leave of an object that nobody refers to."""
        self.windows.alive.discard(self)
        OBJECTS[self.address] = Grave(self)
        if self.HELD and self.uses:
            self.windows.note(
                f"{self} was released while the GPU may still use it: no fence that "
                "was signalled behind its last use has been seen to be reached"
            )
        self.dispose()
        if self.parent is not None:
            self.parent.Release()

    def dispose(self) -> None:
        """Gives up what the object holds."""

    def failed(self, failure: Invalid) -> None:
        """Hears that a method without an HRESULT was called wrongly."""

    def SetName(self, name: int | None) -> None:
        text = bytearray()
        while name and (unit := ctypes.string_at(name + len(text), 2)) != b"\0\0":
            text += unit
        self.name = text.decode("utf-16-le")

    def hand_out(self, riid: Any, place: Any) -> None:
        """Writes the object's address, for which its creator has a reference.

        Raises:
            Failure: it has no such interface.
        """
        if riid and bytes(riid.contents) not in interfaces(self.INTERFACE):
            self.Release()
            raise Failure(E_NOINTERFACE, f"{self} has no such interface")
        if not place:
            self.Release()
            return
        place[0] = self.address


@functools.cache
def interfaces(name: str) -> frozenset[bytes]:
    """The identifiers of an interface and of all that it inherits from."""
    chain = definitions.find(name).__mro__
    return frozenset(bytes(c._iid_) for c in chain if "_iid_" in vars(c))


def object_at(address: int | None, kind: type[Object], what: str) -> Object:
    """The live object of a class at an address that a caller passed.

    Raises:
        Invalid: there is none, or one of another class, or one that was released.
    """
    found = OBJECTS.get(address or 0)
    if found is None:
        raise Invalid(f"{what} is {'null' if not address else 'no COM object'}")
    if found.destroyed:
        raise Invalid(f"{what}, {found}, was released")
    if not isinstance(found, kind):
        raise Invalid(f"{what} is {found}, not {kind.INTERFACE}")
    return found


def optional_at(address: int | None, kind: type[Object], what: str) -> Object | None:
    """`object_at`, or None where the address is null."""
    return object_at(address, kind, what) if address else None


def addresses(array: Any, count: int) -> list[int | None]:
    """The pointers of an array of pointers to interfaces."""
    if not array or not count:
        return []
    pointers = ctypes.cast(array, ctypes.POINTER(ctypes.c_void_p))
    return [pointers[i] for i in range(count)]


@functools.cache
def table(kind: type[ComObject]) -> tuple[list[Any], Any]:
    """The C functions of a class, and the array to which its objects point."""
    functions = [function(method) for method in definitions.methods(kind.INTERFACE)]
    pointers = [ctypes.cast(f, ctypes.c_void_p).value for f in functions]
    return functions, (ctypes.c_void_p * len(pointers))(*pointers)


def function(method: Any) -> Any:
    """A C function that calls a method of the object which it gets."""
    if method.returns_structure:
        # C++ methods on Windows get the address of what they return behind the object's
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
            *map(_safe, method.arguments),
        )

        def with_structure(this: int, place: int, *arguments: Any) -> int:
            found = call(this, method, arguments)
            ctypes.memmove(place, ctypes.byref(found), ctypes.sizeof(method.result))
            return place

        return prototype(with_structure)
    prototype = ctypes.CFUNCTYPE(
        method.result, ctypes.c_void_p, *map(_safe, method.arguments)
    )
    return prototype(lambda this, *arguments: call(this, method, arguments))


def _safe(kind: Any) -> Any:
    # ctypes would read a text of the wrong width before a callback sees it
    return ctypes.c_void_p if kind in (ctypes.c_wchar_p, ctypes.c_char_p) else kind


def call(this: int, method: Any, arguments: tuple[Any, ...]) -> Any:
    """What a method of an object returns, or what it answers when it fails."""
    found: Any = OBJECTS[this]
    windows = found.windows
    what = f"{found.INTERFACE}.{method.name}"
    with windows.lock:
        if found.destroyed:
            windows.note(f"{what} was called of {found}, which was released")
            return nothing(method, E_NOINTERFACE)
        handler: Callable[..., Any] | None = getattr(found, method.name, None)
        if handler is None:
            windows.note(f"the stand-in has no {what}")
            return nothing(method, E_NOINTERFACE)
        try:
            windows.called(found, method.name)
            result = handler(*arguments)
        except Failure as failure:
            if isinstance(failure, Invalid):
                windows.note(f"{what}: {failure}")
                if method.result is not ctypes.c_int32:
                    found.failed(failure)
            return nothing(method, failure.result)
        except Exception as error:  # noqa: BLE001  a callback's error is lost
            windows.broken(what, error)
            return nothing(method, E_NOINTERFACE)
    return nothing(method, 0) if result is None else result


def nothing(method: Any, result: int) -> Any:
    """What a method returns that has only an HRESULT to say, if it has that."""
    if method.result is None:
        return None
    if method.returns_structure:
        return method.result()
    return result if method.result is ctypes.c_int32 else 0
