"""Methods of COM objects, each a line in a table of its interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, overload

from onnxplug_directml.com.signature import Object, Signature


class WithMethods(Object, Protocol):
    """An object, as far as its methods have to do with it."""

    def function(self, slot: int, prototype: Any, name: str) -> Any:
        """The function at a place in its table."""


class Method(Signature):
    """A method: a function at a place in the table that an object begins with.

    Called, it takes the keyword ``asked``, too: words for errors that say what for.

    Args:
        slot: the place.
        result, parameters: as of :class:`~.signature.Signature`.
    """

    def __init__(self, slot: int, result: Any, *parameters: Any) -> None:
        super().__init__(result, parameters, of_object=True)
        self.slot = slot
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"{owner.__name__}.{name}"

    @overload
    def __get__(self, this: None, owner: type) -> Method: ...
    @overload
    def __get__(self, this: WithMethods, owner: type) -> Callable[..., Any]: ...
    def __get__(
        self, this: WithMethods | None, owner: type
    ) -> Method | Callable[..., Any]:
        if this is None:
            return self
        return lambda *values, asked="": self._call(this, values, asked)

    def _call(self, this: WithMethods, values: tuple[Any, ...], asked: str) -> Any:
        function = this.function(self.slot, self.prototype, self.name)
        subject = f"{self.name} ({asked})" if asked else self.name
        return self.call(function, values, subject, this)
