"""``REDUCE``, ``ARGMIN``, ``ARGMAX`` and the cumulative operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import Desc, Rejected, operator
from .agreement import Tensors, axes_of, same, same_data_type, sized, uniform
from .arithmetic import Array, converted, quiet, real

FIELDS = "InputTensor OutputTensor"
SMALL = "INT32 INT16 INT8 UINT32 UINT16 UINT8"
INDICES = "INT64 INT32 UINT64 UINT32"

Axes = tuple[int, ...]

FUNCTIONS: dict[str, Callable[[Array, Axes], Array]] = {
    "AVERAGE": lambda x, axes: x.mean(axis=axes, keepdims=True),
    "L1": lambda x, axes: np.abs(x).sum(axis=axes, keepdims=True),
    "L2": lambda x, axes: np.sqrt((x * x).sum(axis=axes, keepdims=True)),
    "LOG_SUM": lambda x, axes: np.log(x.sum(axis=axes, keepdims=True)),
    "LOG_SUM_EXP": lambda x, axes: np.logaddexp.reduce(
        flat(x, axes), axis=-1, keepdims=True
    ).reshape(reduced(x.shape, axes)),
    "MAX": lambda x, axes: np.fmax.reduce(x, axis=axes, keepdims=True),
    "MIN": lambda x, axes: np.fmin.reduce(x, axis=axes, keepdims=True),
    "MULTIPLY": lambda x, axes: x.prod(axis=axes, keepdims=True, dtype=x.dtype),
    "SUM": lambda x, axes: x.sum(axis=axes, keepdims=True, dtype=x.dtype),
    "SUM_SQUARE": lambda x, axes: (x * x).sum(axis=axes, keepdims=True, dtype=x.dtype),
}

DATA_TYPES = {
    "FLOAT32 FLOAT16": "AVERAGE L2 LOG_SUM LOG_SUM_EXP",
    f"FLOAT32 FLOAT16 {INDICES}": "L1 SUM_SQUARE MULTIPLY SUM",
    f"FLOAT32 FLOAT16 INT64 UINT64 {SMALL}": "MIN MAX ARGMIN ARGMAX",
}
"""The data types of inputs, with the functions that have them since 5.0."""


def reduced(sizes: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    """Sizes of which those of axes are 1."""
    return tuple(1 if at in axes else size for at, size in enumerate(sizes))


def flat(x: Array, axes: Axes) -> Array:
    """Axes in ascending order as one, the last."""
    last = range(x.ndim - len(axes), x.ndim)
    moved = np.moveaxis(x, sorted(axes), last)
    return moved.reshape(*moved.shape[: x.ndim - len(axes)], -1)


def first(x: Array, axes: Axes, *, of_largest: bool, last: bool) -> Array:
    """Indices into the elements along axes; of equal ones that of the first or last."""
    rows = flat(x, axes)
    rows = rows[..., ::-1] if last else rows
    found = rows.argmax(axis=-1) if of_largest else rows.argmin(axis=-1)
    found = rows.shape[-1] - 1 - found if last else found
    return np.asarray(found).reshape(reduced(x.shape, axes))


def check_reduction(desc: Desc, tensors: Tensors) -> None:
    """``Axes`` and the output's sizes, or `Rejected`."""
    source, axes = tensors["InputTensor"], desc.Axes or ()
    axes_of(axes, source)
    sized(tensors, "OutputTensor", reduced(source.sizes, axes))


@operator("REDUCE")
class Reduce:
    # The page has a table for each function: this is what they have together.
    support = uniform(
        FIELDS,
        f"""
        4.1 1-8 FLOATS SIGNED UNSIGNED
        3.0 1-8 FLOATS {SMALL} > FLOATS {SMALL} INT64 UINT64
        2.1 4   FLOATS {SMALL} > FLOATS INT32 UINT32
        1.0 4   FLOATS         > FLOATS UINT32
        """,
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        check_reduction(desc, tensors)
        source, output = (tensors[name].type_name for name in FIELDS.split())
        allowed = {f: of for of, fs in DATA_TYPES.items() for f in fs.split()}
        if source not in allowed[desc.Function].split():
            raise Rejected(f"DML_REDUCE_FUNCTION_{desc.Function} of {source}")
        if desc.Function not in ("ARGMIN", "ARGMAX"):
            same_data_type(tensors, FIELDS)
        elif output not in INDICES.split():
            raise Rejected(f"DML_REDUCE_FUNCTION_{desc.Function} gives no {output}")

    @staticmethod
    def check_level(desc: Desc, tensors: Tensors, level: tuple[int, int]) -> None:
        """The page's table of the function, as of the device's level, or `Rejected`."""
        source = tensors["InputTensor"].type_name
        if desc.Function in ("ARGMIN", "ARGMAX") or source in ("FLOAT32", "FLOAT16"):
            return
        since = {
            "MIN": (2, 1) if source in ("INT32", "UINT32") else (3, 0),
            "MULTIPLY": (2, 1),
            "L1": (5, 0),
        }
        like = {"MAX": "MIN", "SUM": "MULTIPLY", "SUM_SQUARE": "L1"}
        of = since.get(like.get(desc.Function, desc.Function), (1, 0))
        if source in ("INT64", "UINT64"):
            of = (5, 0)
        if level < of:
            raise Rejected(
                f"DML_REDUCE_FUNCTION_{desc.Function} of {source} is of feature level "
                f"{of[0]}.{of[1]}, the device of {level[0]}.{level[1]}"
            )

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        axes, to = desc.Axes or (), desc.OutputTensor.data_type
        if desc.Function in ("ARGMIN", "ARGMAX"):
            largest = desc.Function == "ARGMAX"
            return [first(inputs[0], axes, of_largest=largest, last=False).astype(to)]
        return [converted(FUNCTIONS[desc.Function](real(inputs[0]), axes), to)]


def register_index(name: str, *, of_largest: bool) -> None:
    """``ARGMIN`` or ``ARGMAX``."""

    def check(desc: Desc, tensors: Tensors) -> None:
        check_reduction(desc, tensors)

    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        last = desc.AxisDirection == "DECREASING"
        found = first(inputs[0], desc.Axes or (), of_largest=of_largest, last=last)
        return [found.astype(desc.OutputTensor.data_type)]

    support = uniform(
        FIELDS,
        f"""
        4.1 1-8 FLOATS SIGNED UNSIGNED > {INDICES}
        3.0 1-8 FLOATS {SMALL}         > {INDICES}
        """,
    )
    members = {"check": check, "evaluate": evaluate, "support": support}
    operator(name)(type(name, (), members))


register_index("ARGMIN", of_largest=False)
register_index("ARGMAX", of_largest=True)


def register_cumulative(
    name: str, since: str, exclusive: str, tally: np.ufunc, start: int
) -> None:
    """An operator that writes the tally of what it has passed along an axis.

    Args:
        name: Microsoft's, without ``DML_OPERATOR_``.
        since: the first feature level.
        exclusive: the field that leaves each element out of what is written at it.
        tally: what adds an element.
        start: the tally of no elements.
    """

    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS)
        axes_of((desc.Axis,), tensors["InputTensor"])

    @quiet
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        x = np.moveaxis(real(inputs[0]), desc.Axis, 0)
        x = x[::-1] if desc.AxisDirection == "DECREASING" else x
        total = tally.accumulate(x, axis=0, dtype=x.dtype)
        if getattr(desc, exclusive):
            total = np.concatenate([np.full_like(total[:1], start), total[:-1]])
        total = total[::-1] if desc.AxisDirection == "DECREASING" else total
        result = np.moveaxis(total, 0, desc.Axis)
        return [converted(result, desc.OutputTensor.data_type)]

    support = uniform(
        FIELDS,
        f"""
        5.0 1-8     FLOATS INT64 INT32 UINT64 UINT32
        4.0 1-8     FLOATS INT32 UINT32
        {since} 4   FLOATS INT32 UINT32
        """,
    )
    members = {"check": check, "evaluate": evaluate, "support": support}
    operator(name)(type(name, (), members))


register_cumulative("CUMULATIVE_SUMMATION", "2.1", "HasExclusiveSum", np.add, 0)
register_cumulative("CUMULATIVE_PRODUCT", "3.1", "HasExclusiveProduct", np.multiply, 1)
