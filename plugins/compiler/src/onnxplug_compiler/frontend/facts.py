"""What patterns and fusion ask of values, and what they were answered.

A structure that was made from such answers is right for all shapes that give the same:
nobody has to list what it relies on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import Any, TypeAlias

import numpy as np

from onnxplug_compiler.frontend.call import Abstract
from onnxplug_compiler.frontend.elementwise import scalar_of
from onnxplug_compiler.ir.coded import PIXEL

Question: TypeAlias = Callable[..., Any]
"""A function of what is known of some values; its answers can be compared."""

Known: TypeAlias = Callable[[str], Abstract]
"""What is known of a value."""


class Facts:
    """Answers questions, and remembers the answers.

    Args:
        known: what is known of a value.
        fixed: names of values that are the same for all shapes.
    """

    def __init__(self, known: Known, fixed: Container[str] = ()) -> None:
        self._known = known
        self._fixed = fixed
        self._answers: dict[tuple[Question, tuple[str, ...]], Any] = {}

    def ask(self, question: Question, *names: str) -> Any:
        """The answer of *question* for the values of these names."""
        key = question, names
        if key not in self._answers:
            self._answers[key] = question(*map(self._known, names))
        return self._answers[key]

    def same_shape(self, one: str, other: str) -> bool:
        """Whether two values have the same shape."""
        return one == other or bool(self.ask(same_shape, *sorted((one, other))))

    def varying(self) -> list[tuple[Question, tuple[str, ...], Any]]:
        """Questions, the names that they are about, and the answers; those that
        cannot have another answer are left out."""
        return [
            (question, names, answer)
            for (question, names), answer in self._answers.items()
            if not all(name in self._fixed for name in names)
        ]


def same_shape(one: Abstract, other: Abstract) -> bool:
    """Whether two values have the same shape."""
    return one.shape == other.shape


def dtype_of(value: Abstract) -> np.dtype[Any]:
    """The type of a value's elements."""
    return value.dtype


def shape_of(value: Abstract) -> tuple[int, ...]:
    """The sizes of a value, of which mostly less is asked."""
    return value.shape


def rank_of(value: Abstract) -> int:
    """How many axes a value has."""
    return len(value.shape)


def number_of(value: Abstract) -> bool | int | float | None:
    """The number that a value is for all shapes, if it is one."""
    number = scalar_of(value)
    # which would be another answer each time
    return None if number is not None and math.isnan(number) else number


def is_fixed(value: Abstract) -> bool:
    """Whether a value is the same for all shapes, and known."""
    return value.content is not None and not value.varies


def integers_of(value: Abstract) -> tuple[int, ...] | None:
    """The elements of a small tensor of integers, if they are known."""
    content = value.content
    if content is None or content.dtype.kind not in "iu" or content.size > 64:
        return None
    return tuple(content.reshape(-1).tolist())


def is_nothing(value: Abstract) -> bool:
    """Whether all elements are known to be 0, so that to add them changes nothing."""
    content = value.load() if value.load is not None else value.content
    return content is not None and content.dtype.kind == "f" and not content.any()


def is_row(value: Abstract, of: Abstract) -> bool:
    """Whether *value* has one number for each element of the last axis of *of*."""
    width = of.shape[-1:]
    return value.shape[-1:] == width and (value.size,) == width


def are_heads(q: Abstract, k: Abstract, v: Abstract) -> bool:
    """Whether the products of attention are batch by batch, or of one key head with
    all heads of queries; not broadcast in another way."""
    one, two, three = q.shape, k.shape, v.shape
    if not len(one) == len(two) == len(three) or two[:-2] != three[:-2]:
        return False
    return two[:-3] == one[:-3] and two[-3] in (1, one[-3])


def keeps_channels(one: Abstract, other: Abstract) -> bool:
    """Whether values of the same elements differ only behind their first two axes."""
    return one.shape[:2] == other.shape[:2]


def has_pixels(image: Abstract) -> bool:
    """Whether an image has as few channels as a number has that is a pixel of codes."""
    return len(image.shape) > 2 and 1 < image.shape[1] <= PIXEL


def keeps_last(one: Abstract, other: Abstract) -> bool:
    """Whether values of the same elements differ neither in the first axis nor in the
    last one."""
    ends = one.shape[:1] + one.shape[-1:]
    return ends == other.shape[:1] + other.shape[-1:]
