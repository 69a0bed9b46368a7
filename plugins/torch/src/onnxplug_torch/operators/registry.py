"""Which of torch's functions computes an operator, and of which inputs.

A function here has the form of a kernel of ``onnxplug_kernels``: torch itself first,
then the inputs by position, ``None`` for one that is left out, then the attributes by
name with ONNX's defaults.  Inputs are tensors, but those that are *host* arguments:
torch wants shapes, axes and counts as Python's numbers, which they are given as, in
(nested) lists.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType
from onnxplug_kernels import Kernel

Function = TypeVar("Function", bound=Callable[..., Any])
Check = Callable[[ep.Graph, ep.Node], ep.Reason | None]

_FAMILIES: Final = (
    "activation arithmetic attention cast convolution indexing movement normalization "
    "pooling product quantization quantized_product recurrent reduction resize sorting"
).split()


class Operator(Record):
    """One implementation of one operator.

    Attributes:
        kernel: the function, and for which versions and attributes it is.
        types: element types that inputs may have.
        other: the same of inputs for which they differ, by position.
        host: positions of inputs that are wanted as Python's numbers.
        check: what else stands in the way of a node.
        waits: its result's shape depends on values, for which it waits.
        prepare: makes what takes the place of the second input of that and the two
            after it, once, where they are constants.
        is_kernel: its function takes a namespace of ``onnxplug_kernels``, not torch.
        traced: torch may look into its function, to compile it with others.
    """

    kernel: Kernel
    types: frozenset[DataType]
    other: Mapping[int, frozenset[DataType]]
    host: frozenset[int]
    check: Check | None
    waits: bool
    prepare: Callable[..., Any] | None
    is_kernel: bool = False
    traced: bool = True


def operator(
    op_type: str,
    *,
    types: frozenset[DataType],
    since: int = 1,
    until: int | None = None,
    domain: str = "",
    other: Mapping[int, frozenset[DataType]] = MappingProxyType({}),
    host: Sequence[int] = (),
    check: Check | None = None,
    waits: bool = False,
    prepare: Callable[..., Any] | None = None,
    traced: bool = True,
) -> Callable[[Function], Function]:
    """Declare the decorated function to compute *op_type*; see :class:`Operator`."""

    def declare(function: Function) -> Function:
        kernel = Kernel(domain, op_type, since, until, False, function)
        found = _OPERATORS.setdefault((domain, op_type), [])
        found.append(
            Operator(
                kernel,
                types,
                other,
                frozenset(host),
                check,
                waits,
                prepare,
                traced=traced,
            )
        )
        found.sort(key=lambda each: each.kernel.since, reverse=True)
        return function

    return declare


def find_operator(domain: str, op_type: str, version: int) -> Operator | None:
    """What computes an operator at *version* of *domain*, if something does."""
    for each in operators_of(domain, op_type):
        kernel = each.kernel
        if kernel.since <= version:
            return each if kernel.until is None or version <= kernel.until else None
    return None


def operators_of(domain: str, op_type: str) -> Sequence[Operator]:
    """What there is for all versions of an operator, the newest first."""
    _import_families()
    return _OPERATORS.get((domain, op_type), ())


def all_operators() -> Sequence[Operator]:
    """All that there is."""
    _import_families()
    return [each for found in _OPERATORS.values() for each in found]


def _import_families() -> None:
    if not _OPERATORS:
        for family in _FAMILIES:
            importlib.import_module(f"onnxplug_torch.operators.{family}")


_OPERATORS: Final[dict[tuple[str, str], list[Operator]]] = {}
