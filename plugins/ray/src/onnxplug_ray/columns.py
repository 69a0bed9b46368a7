"""Columns of a batch as what the inputs of a model take, and outputs as columns.

A row is a position of the model's first dimension: an input ``float32[N, 3, 224, 224]``
takes a column whose rows are ``float32[3, 224, 224]``.  Of an input that has no such
dimension, or of a model in which it is not proven that positions are independent, the
rows may also be whole inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug.ep import DataType, TensorType
from onnxplug.session.model_info import type_name
from onnxplug_ray.errors import ColumnError

if TYPE_CHECKING:
    from onnxplug import NodeArg

Faults: TypeAlias = dict[int, str]
"""Rows that the model cannot be fed, and why."""

_TEXT: Final = "OUST"
"""Kinds of dtypes that texts are of in numpy."""


@dataclass(frozen=True, slots=True)
class ColumnInput:
    """An input of the model, and the column that it is fed from.

    Attributes:
        name: the input's.
        column: the column's.
        dtype: of its elements; that of objects for strings.
        rank: of the input.
    """

    name: str
    column: str
    dtype: np.dtype[Any]
    rank: int


@dataclass(frozen=True, slots=True)
class FedColumn:
    """The rows of a column, of the type that its input has.

    Attributes:
        rows: one array of all rows, or, if shapes differ or a row is at fault, an array
            for each row; ``None`` for a row at fault.
        whole: a row is a whole input, and not a position of one.
    """

    rows: Any
    whole: bool

    @property
    def is_even(self) -> bool:
        """Whether all rows are in one array."""
        return isinstance(self.rows, np.ndarray)


def column_inputs(
    inputs: Sequence[NodeArg],
    columns: Mapping[str, str],
    constants: Mapping[str, Any],
) -> list[ColumnInput]:
    """The inputs that are fed from columns.

    Args:
        columns: input to column, where these are not called alike.
        constants: what is fed to other inputs.

    Raises:
        ColumnError: a name is no input's, or an input is no tensor of a known rank, or
            of a type that no column has.
    """
    names = {each.name for each in inputs}
    for name in (*columns, *constants):
        if name not in names:
            raise ColumnError(
                f"the model has no input {name!r}; it has {_listed(names)}"
            )
    found = []
    for each in inputs:
        if each.name in constants:
            continue
        dtype = dtype_of(each)
        if dtype is None or not each.rank_is_known:
            raise ColumnError(
                f"input {each.name!r} is {each.type}"
                f"{'' if dtype is None else ' of unknown rank'}, which no column can "
                "feed; give it as a constant, or name a tensor of a known rank"
            )
        column = columns.get(each.name, each.name)
        found.append(ColumnInput(each.name, column, dtype, len(each.shape)))
    return found


def dtype_of(item: NodeArg) -> np.dtype[Any] | None:
    """The dtype of an input's or output's arrays; ``None`` if it is no tensor."""
    for dtype in DataType:
        if item.type == type_name(TensorType(dtype)):
            return np.dtype(object) if dtype is DataType.STRING else dtype.numpy
    return None


def require_columns(inputs: Sequence[ColumnInput], batch: Mapping[str, Any]) -> None:
    """Check that all columns are there.

    Raises:
        ColumnError: one is missing; the text lists what is there.
    """
    for each in inputs:
        if each.column not in batch:
            raise ColumnError(
                f"there is no column {each.column!r} for input {each.name!r}; the "
                f"dataset has {_listed(batch)}: rename one, or say which it is by "
                f"inputs={{{each.name!r}: COLUMN}}"
            )


def fed_column(to: ColumnInput, values: Any, faults: Faults) -> FedColumn:
    """The rows of a column as *to* takes them; *faults* gets those that it cannot.

    Numbers are converted where each stays what it is, but for floats, which are rounded
    if *to* has a narrower type.  Rows as lists are taken for arrays.
    """
    values = np.asarray(values)
    if values.dtype == object and to.dtype != object:
        return _from_objects(to, values, faults)
    if to.dtype == object:
        return _texts(to, values, faults)
    whole = values.ndim == to.rank + 1
    if not whole and values.ndim != to.rank:
        _all_at_fault(to, values, faults)
        return FedColumn([None] * len(values), False)
    converted, wrong = _converted(values, to.dtype)
    if not wrong.any():
        return FedColumn(converted, whole)
    for row in np.flatnonzero(wrong):
        faults.setdefault(int(row), _not_of(to, values[row]))
    return FedColumn(
        [None if bad else row for row, bad in zip(converted, wrong, strict=True)], whole
    )


def _from_objects(to: ColumnInput, values: Any, faults: Faults) -> FedColumn:
    """Rows of several shapes, or with gaps."""
    rows: list[Any] = []
    whole = []
    for number, value in enumerate(values):
        row, why = _row(to, value)
        if row is None:
            faults.setdefault(number, why)
        else:
            whole.append(row.ndim == to.rank)
        rows.append(row)
    is_whole = bool(whole) and all(whole)
    if any(whole) and not is_whole:
        for number, row in enumerate(rows):
            if row is not None and row.ndim == to.rank:
                faults.setdefault(number, _of_rank(to, row.ndim))
                rows[number] = None
    shapes = {None if row is None else row.shape for row in rows}
    if len(shapes) == 1 and None not in shapes:
        return FedColumn(np.stack(rows), is_whole)
    return FedColumn(rows, is_whole)


def _row(to: ColumnInput, value: Any) -> tuple[Any, str]:
    """A row's array, or why there is none."""
    if value is None:
        return None, f"column {to.column!r} has no value there"
    try:
        row = np.asarray(value)
        if row.dtype == object:  # lists in lists, as of Arrow, or uneven ones
            row = np.array([np.asarray(each) for each in value])
    except (ValueError, TypeError):
        row = np.empty(0, object)
    if row.dtype.kind in _TEXT:
        return None, _not_of(to, value)
    if row.ndim not in (to.rank - 1, to.rank):
        return None, _of_rank(to, row.ndim)
    converted, wrong = _converted(row[np.newaxis], to.dtype)
    return (None, _not_of(to, row)) if wrong[0] else (converted[0], "")


def _texts(to: ColumnInput, values: Any, faults: Faults) -> FedColumn:
    """Rows of texts."""
    if values.dtype.kind in "UT":
        values = values.astype(object)
    if values.dtype != object:
        for number in range(len(values)):
            faults.setdefault(number, _not_of(to, values[number]))
        return FedColumn([None] * len(values), False)
    rows: list[Any] = []
    for number, value in enumerate(values):
        row = None if value is None else np.asarray(value, object)
        if (
            row is None
            or row.ndim not in (to.rank - 1, to.rank)
            or not all(isinstance(each, str) for each in row.reshape(-1))
        ):
            faults.setdefault(number, _not_of(to, value))
            row = None
        rows.append(row)
    whole = any(row is not None and row.ndim == to.rank for row in rows)
    shapes = {None if row is None else row.shape for row in rows}
    if len(shapes) == 1 and None not in shapes:
        return FedColumn(np.stack(rows), whole)
    return FedColumn(rows, whole)


def _converted(values: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """*values* as *dtype*, and which rows have elements that are none of these."""
    count = len(values)
    if values.dtype == dtype:
        return values, np.zeros(count, bool)
    if values.dtype.kind not in "biuf":
        return values, np.ones(count, bool)
    with np.errstate(all="ignore"):
        converted = values.astype(dtype)
        if _is_float(dtype) and values.dtype.kind == "f":
            same = np.isfinite(converted.astype(np.float64)) | ~np.isfinite(values)
        elif np.can_cast(values.dtype, dtype, "safe"):
            same = np.ones(values.shape, bool)
        else:
            same = _is_same(values, converted)
    return converted, ~same.all(axis=tuple(range(1, same.ndim)))


def _is_same(values: Any, converted: Any) -> Any:
    """Which elements a conversion to or from integers has left what they were."""
    back = converted.astype(values.dtype)
    same = back == values
    if values.dtype.kind in "iu" and converted.dtype.kind in "iu":
        # signs are lost on the way there and back
        return same & ((values < 0) == (converted < 0))
    if values.dtype.kind == "f":
        # 2**63 as a float is no int64, though the largest int64 becomes it
        limits = np.iinfo(converted.dtype) if converted.dtype.kind in "iu" else None
        if limits is not None:
            wide = values.astype(np.float64)
            same &= (wide >= float(limits.min)) & (wide < float(limits.max) + 1)
    elif values.dtype.kind in "iu":
        # and so of integers that were rounded up to it
        wide = converted.astype(np.float64)
        same &= wide < float(np.iinfo(values.dtype).max) + 1
    return same


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def _all_at_fault(to: ColumnInput, values: Any, faults: Faults) -> None:
    why = _of_rank(to, values.ndim - 1)
    for number in range(len(values)):
        faults.setdefault(number, why)


def _of_rank(to: ColumnInput, rank: int) -> str:
    return (
        f"column {to.column!r} has {rank} dimensions there; input {to.name!r} takes "
        f"rows of {max(to.rank - 1, 0)}"
    )


def _not_of(to: ColumnInput, value: Any) -> str:
    kind = "string" if to.dtype == object else to.dtype.name
    found = getattr(value, "dtype", type(value).__name__)
    return (
        f"column {to.column!r} has {found} there, not all of which can be {kind}, as "
        f"input {to.name!r} takes"
    )


def _listed(names: Any) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"
