"""Ranges of shapes that an engine is built for: TensorRT's optimisation profiles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record

Shape = tuple[int, ...]

_ITEM: Final = re.compile(r"\s*(.+?)\s*:\s*(\d{1,18}(?:\s*x\s*\d{1,18})*)\s*(?:,|$)")
"""Of one input, as ONNX Runtime has it; a name may have colons of its own, and sizes
are within 64 bits."""

_NAMES: Final = (
    "trt_profile_min_shapes",
    "trt_profile_opt_shapes",
    "trt_profile_max_shapes",
)


class Range(Record):
    """The shapes that an input may have, or the values of one that is a shape.

    Attributes:
        least, best, most: of each dimension; engines are to be fastest at *best*.
    """

    least: Shape
    best: Shape
    most: Shape

    @classmethod
    def of(cls, shape: Sequence[int]) -> Range:
        """That of one shape."""
        return cls(tuple(shape), tuple(shape), tuple(shape))

    def has(self, shape: Sequence[int]) -> bool:
        """Whether an input may have *shape*."""
        return len(shape) == len(self.least) and all(
            low <= size <= high
            for low, size, high in zip(self.least, shape, self.most, strict=True)
        )

    def grown(self, shape: Sequence[int]) -> Range:
        """One that has *shape*, which it is best for, too; of the same rank."""
        return Range(
            tuple(map(min, self.least, shape)),
            tuple(shape),
            tuple(map(max, self.most, shape)),
        )

    def __str__(self) -> str:
        low, high = list(self.least), list(self.most)
        return str(low) if low == high else f"{low} to {high}"


Profile = Mapping[str, Range]
"""By the names of inputs."""


def covers(profile: Profile, shapes: Mapping[str, Shape]) -> bool:
    """Whether an engine of *profile* takes inputs of these *shapes*."""
    return all(
        name in profile and profile[name].has(shape) for name, shape in shapes.items()
    )


def grown(profile: Profile | None, shapes: Mapping[str, Shape]) -> dict[str, Range]:
    """A profile that covers *shapes*, and all that *profile* does."""
    if profile is None:
        return {name: Range.of(shape) for name, shape in shapes.items()}
    return {name: profile[name].grown(shape) for name, shape in shapes.items()}


def as_facts(profile: Profile) -> dict[str, list[list[int]]]:
    """A profile as JSON has it."""
    return {
        name: [list(shape) for shape in each] for name, each in sorted(profile.items())
    }


def from_facts(facts: object) -> dict[str, Range]:
    """What :func:`as_facts` gave.

    Raises:
        ValueError: it is no profile.
    """
    found = {}
    for name, each in facts.items() if isinstance(facts, dict) else [("", None)]:
        if not isinstance(each, list) or len(each) != 3:
            raise ValueError(f"the profile of {name!r} has no three shapes")
        shapes = [_shape(name, shape) for shape in each]
        found[name] = Range(*shapes)
    return found


def _shape(name: str, shape: object) -> Shape:
    if not isinstance(shape, list) or not all(
        isinstance(size, int) and size >= 0 for size in shape
    ):
        raise ValueError(f"a shape in the profile of {name!r} is {shape!r}")
    return tuple(shape)


def read_profile(options: Mapping[str, ep.OptionValue]) -> dict[str, Range] | None:
    """What the options say of shapes; ``None`` where they say nothing.

    Raises:
        OptionError: they are not as ONNX Runtime has them, or contradict each other.
    """
    sides = [_read(name, str(options[name])) for name in _NAMES]
    given = [bool(side) for side in sides]
    if not any(given):
        return None
    if not all(given):
        lacking = ", ".join(
            repr(name) for name, has in zip(_NAMES, given, strict=True) if not has
        )
        raise ep.OptionError(
            f"options {', '.join(map(repr, _NAMES))} belong together; set {lacking}, "
            "too"
        )
    least, best, most = sides
    found = {}
    for name in dict.fromkeys((*least, *best, *most)):
        where = [side for side, shapes in zip(_NAMES, sides, strict=True)
                 if name not in shapes]  # fmt: skip
        if where:
            raise ep.OptionError(
                f"option {where[0]!r} lacks input {name!r}, which another of "
                "trt_profile_min_shapes, trt_profile_opt_shapes and "
                "trt_profile_max_shapes has"
            )
        found[name] = _range(name, least[name], best[name], most[name])
    return found


def _range(name: str, least: Shape, best: Shape, most: Shape) -> Range:
    if not len(least) == len(best) == len(most) or not all(
        low <= middle <= high
        for low, middle, high in zip(least, best, most, strict=True)
    ):
        raise ep.OptionError(
            f"the shapes of input {name!r} are {list(least)}, {list(best)} and "
            f"{list(most)} in options 'trt_profile_min_shapes', "
            "'trt_profile_opt_shapes' and 'trt_profile_max_shapes'; expected as many "
            "sizes in each, none of them smaller than in the one before"
        )
    return Range(least, best, most)


def _read(option: str, text: str) -> dict[str, Shape]:
    """``ids:1x3,mask:1x3`` as shapes by input name."""
    shapes: dict[str, Shape] = {}
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None or match[1] in shapes:
            raise ep.OptionError(
                f"option {option!r} is {text!r}; expected inputs, each once, with "
                "their sizes, as in ids:1x384,image:1x3x224x224"
            )
        shapes[match[1]] = tuple(int(size) for size in match[2].split("x"))
        position = match.end()
    return shapes


def profile_for(
    partition: ep.Partition, stated: Mapping[str, Range], *, covers: Sequence[str]
) -> dict[str, Range]:
    """The profile of a partition, for what users say of a model's inputs.

    The sizes of values between follow from the names of sizes: where an input is
    [batch, tokens], what is [batch, 12, tokens] elsewhere has a range, too.

    Args:
        stated: ranges by the names of values.
        covers: the partition's inputs that are to have a range.

    Raises:
        Declined: the range of one is not known; names the nodes that read it.
    """
    found: dict[str, Range] = {}
    for name in covers:
        shape = partition.value(name).shape
        if name in stated:
            found[name] = stated[name]
        elif shape is not None and (known := _by_sizes(partition, name, stated)):
            found[name] = known
        else:
            dims = "of unknown rank" if shape is None else str(list(map(str, shape)))
            reason = ep.Reason(
                ep.RefusalCode.DYNAMIC_SHAPE,
                f"input {name!r} is {dims}, and options 'trt_profile_min_shapes', "
                "'trt_profile_opt_shapes' and 'trt_profile_max_shapes' do not say its "
                "sizes; add it there, or set none of them, to have engines built for "
                "what runs bring",
            )
            raise ep.Declined(reason, nodes=readers(partition, [name]))
    return found


def readers(partition: ep.Partition, names: Sequence[str]) -> Sequence[ep.Node]:
    """The nodes of *partition* that read values of these *names*, themselves or in
    their bodies."""
    return [
        node
        for node in partition.nodes
        if set(names).intersection((*node.inputs, *node.captures))
    ]


def _by_sizes(
    partition: ep.Partition, name: str, stated: Mapping[str, Range]
) -> Range | None:
    """The range of a value whose sizes have the names of stated ones'."""
    type = partition.value(name).type
    if not isinstance(type, ep.TensorType) or not _only_grows(type.shape):
        return None
    types: dict[str, Any] = {each: partition.value(each).type for each in stated}
    sides = []
    for side in range(3):
        sizes = ep.named_sizes(types.values(), [stated[each][side] for each in types])
        shape = type.shape_for(sizes)
        if shape is None or not all(isinstance(size, int) for size in shape):
            return None
        sides.append(tuple(size for size in shape if size is not None))
    return Range(*sides)


def _only_grows(shape: Sequence[ep.Dimension] | None) -> bool:
    """Whether no size of *shape* falls where one that it is computed of grows."""
    for dimension in shape or ():
        if isinstance(dimension, str):
            size = ep.Size.parse(dimension)
            if size is None or any(factor < 0 for _, factor in size.terms):
                return False
    return shape is not None
