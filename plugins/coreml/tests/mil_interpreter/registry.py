"""The operations that the interpreter knows, by MIL's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

OPERATIONS: dict[str, Callable[..., Any]] = {}
"""Functions of MIL's inputs, by name, that return an array or a tuple of arrays.

Arrays of float16 arrive as float32 and results are rounded to what the specification
declares, so every operation rounds once.  Constants arrive as arrays too, and texts as
texts.  An input that a function lacks is one whose meaning it does not know.  A
function with a parameter ``opset`` is told the number in the name of the main
function's opset, 7 for iOS 17.
"""

F = TypeVar("F", bound=Callable[..., Any])


def operation(*names: str) -> Callable[[F], F]:
    """Register a function under MIL's *names*."""

    def register(function: F) -> F:
        for name in names:
            if name in OPERATIONS:
                raise ValueError(f"there are two functions for {name!r}")
            OPERATIONS[name] = function
        return function

    return register
