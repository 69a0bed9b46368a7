"""What the allow-list looks at in a node, as short words.

The same words describe a node of a model and a trial of the measuring script: so a
rule learnt from trials means the same for models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onnxplug.authoring.operators import having

FLAGS: Final = frozenset(
    {
        "align_corners", "allowzero", "antialias", "ceil_mode", "center_point_box",
        "count_include_pad", "dtype", "exclude_outside", "exclusive", "fmod",
        "input_forget", "is_causal", "keepdims", "largest", "layout",
        "linear_before_reset", "noop_with_empty_axes", "output_dtype",
        "qk_matmul_output_mode", "reverse", "saturate", "select_last_index",
        "softmax_precision", "sorted", "stash_type", "storage_order", "to",
        "training_mode", "transA", "transB", "upper",
    }
)  # fmt: skip
"""Whole-number attributes that choose: each value of them counts by itself."""


def chooses(name: str, value: Any) -> bool:
    """Whether the attribute's very value matters, and not only that it is there."""
    return name in FLAGS or isinstance(value, str)


def type_signature(types: Sequence[str | None]) -> str:
    """Element types by position, those repeated at the end once.

    ``float32,int64``; ``-`` stands for an input left out.
    """
    written = ["-" if dtype is None else str(dtype) for dtype in types]
    while written and written[-1] == "-":
        written.pop()
    while len(written) > 1 and written[-1] == written[-2]:
        written.pop()
    return ",".join(written)


def features(
    *,
    operator: str,
    since: int,
    types: Sequence[str | None],
    shapes: Sequence[Sequence[Any] | None],
    outputs: Sequence[bool],
    attributes: Mapping[str, Any],
    defaults: Mapping[str, Any],
    constants: frozenset[int],
) -> Iterator[str]:
    """The words for one node.

    Args:
        operator: its name.
        since: the version at which the operator last changed.
        types: element types of the inputs; ``None`` where left out.
        shapes: their shapes; a size is an ``int``, or something else when unknown.
        outputs: whether each output is wanted.
        attributes: what the node sets.
        defaults: values of the attributes that choose, where the node sets none.
        constants: positions of inputs whose content is known.
    """
    yield f"since={since}"
    yield f"types={type_signature(types)}"
    given = [position for position, dtype in enumerate(types) if dtype is not None]
    count = given[-1] + 1 if given else 0
    many = operator in having("any_number")  # of which three stand for more
    yield f"inputs={min(count, 3) if many else count}"
    if None in types[:count]:
        yield "omits=" + ",".join(str(p) for p in range(given[-1]) if p not in given)
    wanted = [position for position, want in enumerate(outputs) if want]
    if operator == "Split":
        wanted = wanted[:1]
    yield "outputs=" + ",".join(map(str, wanted))
    for name, value in sorted({**defaults, **attributes}.items()):
        yield (
            f"attribute:{name}={value}" if chooses(name, value) else f"attribute:{name}"
        )
        if isinstance(value, int) and not chooses(name, value) and value < 0:
            yield f"negative:{name}"
    if operator in having("softmax") and since < 13 and shapes and shapes[0]:
        rank = len(shapes[0])
        if attributes.get("axis", 1) not in (-1, rank - 1):
            yield "flattens"
    if 0 in constants and len(constants) < len(given):
        yield "held"
    is_dynamic = False
    for position, shape in enumerate(shapes):
        if shape is None:
            continue
        is_list = position > 0 and len(shape) == 1 and types[position] == "int64"
        if any(not isinstance(size, int) for size in shape):
            if is_list and position not in constants:
                yield f"unsized:{position}"
            elif position not in constants:
                is_dynamic = True
        elif 0 in shape:
            yield f"empty:{position}"
        if many and position > 2:
            continue
        if position > 0 and position not in constants:
            yield f"fed:{position}"
        yield f"rank:{position}={len(shape)}"
    if is_dynamic:
        yield "dynamic"
