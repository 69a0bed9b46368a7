"""The functions that write primitives in an engine's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Emitters(dict[str, Callable[..., Any]]):
    """By primitive its function.

    It is called with a writer, the operation, what the engine has for its operands
    (``None`` for one that is left out), and its attributes by name.  It returns what
    the engine has for the result, or a sequence for a primitive with several results.
    """

    def emits(self, *primitives: str) -> Callable[[F], F]:
        """Register a function for *primitives*."""

        def register(function: F) -> F:
            for name in primitives:
                self[name] = function
            return function

        return register
