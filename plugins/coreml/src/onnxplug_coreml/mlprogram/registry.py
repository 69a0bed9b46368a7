"""The functions that write primitives as MIL's operations, by primitive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

EMITTERS: Final[dict[str, Callable[..., Any]]] = {}
"""Functions of a writer, of the operation, of MIL's variables for its operands
(``None`` for one that is left out), and of its attributes by name.  They return a
variable, or a sequence of them for a primitive with several results."""

F = TypeVar("F", bound=Callable[..., Any])


def emits(*primitives: str) -> Callable[[F], F]:
    """Register a function for *primitives*."""

    def register(function: F) -> F:
        for name in primitives:
            EMITTERS[name] = function
        return function

    return register
