"""The target of a Reshape in numbers that hold whatever the sizes are."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.authoring.sizes import Extent, TooLong, product
from onnxplug.shapes.facts import Shape


def target_in_numbers(
    shape: Shape | None, target: Sequence[Extent | None], allows_zero: bool
) -> list[int] | None:
    """A constant that a Reshape can have for *target*; None if there is none.

    A size that is the input's at the same place is a 0; one other can be -1, if the
    rest is not empty.

    Args:
        shape: of what is reshaped.
        allows_zero: whether a 0 is an empty dimension and copies nothing.
    """
    numbers: list[int] = []
    open_places: list[int] = []
    for place, size in enumerate(target):
        if isinstance(size, int):
            if size == 0 and allows_zero:
                return None
            numbers.append(size)
        elif (
            size is not None
            and not allows_zero
            and shape is not None
            and place < len(shape)
            and shape[place] == size
        ):
            numbers.append(0)
        else:
            open_places.append(place)
            numbers.append(-1)
    if not open_places:
        return numbers
    # with an empty dimension, or two places, nothing says what -1 is
    rest = [number for place, number in enumerate(numbers) if place not in open_places]
    if len(open_places) > 1 or any(number <= 0 for number in rest) or shape is None:
        return None
    size = target[open_places[0]]
    try:
        fits = size is not None and size * product(rest) == product(shape)
    except TooLong:
        return None
    return numbers if fits else None
