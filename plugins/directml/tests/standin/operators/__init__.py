"""What DirectML's operators mean, in numpy: a module for each family.

A class for each operator, decorated ``@operator("GEMM")`` (Microsoft's name without
``DML_OPERATOR_``)::

    @operator("GATHER")
    class Gather:
        support = '''
            3.0  InputTensor    input   1-8  FLOAT32 FLOAT16 INT32
                 IndicesTensor  input   1-8  INT64 INT32 UINT32
                 OutputTensor   output  1-8  FLOAT32 FLOAT16 INT32
            1.0  InputTensor    input   4    FLOAT32 FLOAT16
                 …
        '''

        def check(desc, tensors): ...      # staticmethods: they have no state
        def evaluate(desc, inputs): ...

``support`` has what the page of the operator has under "Tensor support": for each
feature level, newest first, every tensor field of the struct in its order, whether it
is ``input``, ``input?`` (may be null), ``output`` or ``output?``, the numbers of
dimensions, and the data types.  The oldest level is that which introduced the operator.
A device takes the newest row that its level has.  What the table says is checked before
``check`` is called, as are the enumerations' values and the sizes of arrays.

``check(desc, tensors)`` raises `Rejected` where the documentation's other constraints
are broken.  ``tensors`` are the tensors by field, of the fields that are not null.
``check_level(desc, tensors, level)``, if there is one, does so for constraints that
depend on the device's feature level.

``evaluate(desc, inputs)`` gets an array, or None, for each input field in the struct's
order (fields that are arrays of tensors have as many places as tensors), of the
tensor's sizes and dtype, and read-only; it returns arrays for the output fields in
order, of the outputs' sizes and dtypes, with None for an output that is null.

An operator that is an activation, and may be fused into another, has
``apply(desc, array) -> array`` too, on float64; others call it as `fused`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

DTYPES: dict[str, np.dtype[Any]] = {
    "FLOAT16": np.dtype(np.float16),
    "FLOAT32": np.dtype(np.float32),
    "FLOAT64": np.dtype(np.float64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
}
"""DirectML's data types, by the names of ``DML_TENSOR_DATA_TYPE``."""

GROUPS = {
    "FLOATS": ("FLOAT32", "FLOAT16"),
    "SIGNED": ("INT64", "INT32", "INT16", "INT8"),
    "UNSIGNED": ("UINT64", "UINT32", "UINT16", "UINT8"),
}
"""Words of a support table that stand for several data types."""

KINDS = ("input", "input?", "output", "output?")


class Rejected(ValueError):
    """Windows would answer ``E_INVALIDARG``, and the debug layer say why."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A ``DML_BUFFER_TENSOR_DESC``.

    Attributes:
        data_type: numpy's dtype of ``DataType``.
        sizes: elements along each dimension.
        strides: in elements; None is packed.
        flags: bits of ``DML_TENSOR_FLAGS``.
        total_bytes: ``TotalTensorSizeInBytes``.
        alignment: ``GuaranteedBaseOffsetAlignment`` in bytes; 0 promises nothing.
    """

    data_type: np.dtype[Any]
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    flags: int = 0
    total_bytes: int = 0
    alignment: int = 0

    @property
    def type_name(self) -> str:
        """The name of ``DataType``, such as ``FLOAT16``."""
        return self.data_type.name.upper()


class Desc:
    """A struct as it was decoded, with attributes of Microsoft's names.

    Tensors are `Tensor`; arrays are tuples; null is None, also for tensors and arrays;
    enumerations are their names without the type's prefix (``desc.Mode ==
    "CROSS_CORRELATION"``), flags are integers; BOOL is bool; ``DML_OPERATOR_DESC``,
    ``DML_SCALE_BIAS`` and ``DML_SIZE_2D`` are `Desc`; ``DML_SCALAR_UNION`` is its eight
    bytes, of which `scalar` makes a number.  ``desc.operator`` is the operator's name.
    """

    def __init__(self, operator: str, fields: Mapping[str, Any]) -> None:
        self.__dict__.update(fields, operator=operator)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {self.operator} that was decoded is read-only")

    def __repr__(self) -> str:
        fields = (f"{k}={v!r}" for k, v in self.__dict__.items() if k != "operator")
        return f"{self.operator}({', '.join(fields)})"

    operator: str

    def __getattr__(self, name: str) -> Any:  # for what __init__ did not set
        raise AttributeError(f"{self.operator} has no field {name}")


@dataclass(frozen=True, slots=True)
class Support:
    """What a tensor field may be: a row of a table "Tensor support"."""

    kind: str
    dimension_counts: tuple[int, ...]
    data_types: tuple[str, ...]

    @property
    def optional(self) -> bool:
        """Whether the field may be null."""
        return self.kind.endswith("?")

    @property
    def is_input(self) -> bool:
        """Whether the tensor is read, not written."""
        return self.kind.startswith("input")


class Meaning:
    """An operator: its tables of support, its constraints and its arithmetic."""

    def __init__(self, name: str, definition: type) -> None:
        self.name = name
        self.support = parse(name, vars(definition)["support"])
        self.check: Callable[[Desc, dict[str, Any]], None]
        self.check = getattr(definition, "check", lambda desc, tensors: None)
        self.check_level: Callable[[Desc, dict[str, Any], tuple[int, int]], None]
        self.check_level = getattr(definition, "check_level", lambda *of: None)
        self.evaluate: Callable[[Desc, list[Any]], list[Any]]
        self.evaluate = definition.evaluate  # type: ignore[attr-defined]
        self.apply: Callable[[Desc, Any], Any] | None
        self.apply = getattr(definition, "apply", None)

    def supported(self, level: tuple[int, int]) -> dict[str, Support]:
        """The table for a device of a feature level, such as ``(5, 0)``.

        Raises:
            Rejected: the operator came with a later level.
        """
        for since, table in sorted(self.support.items(), reverse=True):
            if since <= level:
                return table
        first = "{}.{}".format(*min(self.support))
        raise Rejected(
            f"DML_OPERATOR_{self.name} is of DML_FEATURE_LEVEL {first}, the device of "
            f"{level[0]}.{level[1]}"
        )


OPERATORS: dict[str, Meaning] = {}


def operator(*names: str) -> Callable[[type], type]:
    """Registers a class for operators; several names where they mean the same."""

    def register(definition: type) -> type:
        for name in names:
            if name in OPERATORS:
                raise ValueError(f"{name} is defined twice")
            OPERATORS[name] = Meaning(name, definition)
        return definition

    return register


def parse(name: str, text: str) -> dict[tuple[int, int], dict[str, Support]]:
    """A text of the form that the module's docstring shows, as tables by level."""
    tables: dict[tuple[int, int], dict[str, Support]] = {}
    level: tuple[int, int] | None = None
    for line in filter(None, map(str.split, text.splitlines())):
        if line[0][0].isdigit():
            major, minor = line.pop(0).split(".")
            level = int(major), int(minor)
            tables[level] = {}
        if level is None:
            raise ValueError(f"{name}: a feature level comes first")
        field, kind, counts, *types = line
        if kind not in KINDS or field in tables[level]:
            raise ValueError(f"{name} at {level}: {line}")
        low, _, high = counts.partition("-")
        tables[level][field] = Support(
            kind, tuple(range(int(low), int(high or low) + 1)), data_types(name, types)
        )
    return tables


def data_types(name: str, words: list[str]) -> tuple[str, ...]:
    """The data types that a line names, one by one or in groups."""
    types = [t for word in words for t in GROUPS.get(word, (word,))]
    if not types or (unknown := set(types) - set(DTYPES)):
        raise ValueError(f"{name}: no such data type: {unknown if types else 'none'}")
    return tuple(types)


def fused(desc: Desc | None, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``values`` (float64) after a fused activation, or as they are if it is null."""
    if desc is None:
        return values
    apply = OPERATORS[desc.operator].apply
    if apply is None:
        raise Rejected(f"DML_OPERATOR_{desc.operator} cannot be fused")
    return np.asarray(apply(desc, values), np.float64)


def scalar(union: bytes, data_type: np.dtype[Any]) -> Any:
    """The member of a ``DML_SCALAR_UNION`` that is of a data type."""
    return np.frombuffer(union, data_type, 1)[0]
