"""The function that computes what a trace has found."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

Evaluate: TypeAlias = "Callable[..., list[Any] | None]"
"""Takes the sizes of inputs; gives what was wanted, or ``None`` if a guard fails."""

_NAME: Final = re.compile(r"\b[vr]\d+\b")


def evaluation(
    count: int, lines: Sequence[tuple[str, str]], wanted: Sequence[str]
) -> Evaluate:
    """What computes *wanted* where all guards hold.

    Args:
        count: of the sizes that it takes.
        lines: assignments and guards, each of variables that were assigned before.
        wanted: expressions.
    """
    names = set(_NAME.findall(" ".join(wanted)))
    needed: list[str] = []
    for what, text in reversed(lines):
        if what == "guard":
            needed.append(f"    if not ({text}): return None")
            names.update(_NAME.findall(text))
            continue
        name, _, value = text.partition(" = ")
        if name in names:
            needed.append(f"    {text}")
            names.update(_NAME.findall(value))
    arguments = ", ".join(f"s{number}" for number in range(count))
    body = [*reversed(needed), f"    return [{', '.join(wanted)}]"]
    # of numbers and of names that are made here, so nothing of a model is in it
    source = "\n".join([f"def evaluate({arguments}):", *body])
    space = {**_NAMES, "__builtins__": _BUILTINS}
    exec(compile(source, "<traced sizes>", "exec"), space)
    made: Evaluate = space["evaluate"]  # type: ignore[assignment]
    return made


# a float is written as itself, and so is one that is infinite, or none
_NAMES: Final = {
    "floor": math.floor,
    "ceil": math.ceil,
    "inf": math.inf,
    "nan": math.nan,
}
_BUILTINS: Final = {"round": round, "int": int, "max": max, "min": min}
