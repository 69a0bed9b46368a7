"""Finds the kernel of an operator at an opset version, importing one family at most.

A kernel is a plain function ``kernel(xp, *inputs, **attributes)``: *xp* is the array
namespace (numpy, cupy), inputs are positional in the order of the ONNX operator with
``None`` for one that is left out, and attributes are keyword-only parameters whose
defaults are ONNX's.  So a signature *is* the operator's schema.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from onnxplug_kernels.families import FAMILIES

Function = TypeVar("Function", bound=Callable[..., Any])

OUTPUT_COUNT: Final = "output_count"


class UnsupportedAttribute(NotImplementedError):
    """An attribute that the kernel of this operator version does not know."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One implementation of one operator.

    Attributes:
        since: first opset version of *domain* that the function is right for.
        until: last such version; ``None`` when it holds for all later ones.
        host_only: needs numpy arrays (strings, sequences of Python objects).
    """

    domain: str
    op_type: str
    since: int
    until: int | None
    host_only: bool
    function: Callable[..., Any]

    def bind(
        self, xp: Any, attributes: Mapping[str, object], *, output_count: int
    ) -> Callable[..., Any]:
        """A function of the inputs alone, returning one value or a tuple of them.

        *output_count* is how many outputs the node asks for, counted to the last one
        that is used; a kernel that can save work takes a parameter of that name.
        More values than asked for may come back.

        Raises:
            UnsupportedAttribute: the kernel has no parameter for an attribute.
        """
        parameters = _keyword_parameters(self.function)
        unknown = sorted(attributes.keys() - parameters)
        if unknown:
            raise UnsupportedAttribute(
                f"{self.op_type} since version {self.since} has no attribute "
                f"{', '.join(map(repr, unknown))}; "
                f"it has: {', '.join(sorted(parameters - {OUTPUT_COUNT})) or 'none'}"
            )
        arguments = dict(attributes)
        if OUTPUT_COUNT in parameters:
            arguments[OUTPUT_COUNT] = output_count
        return functools.partial(self.function, xp, **arguments)


def operator(
    op_type: str,
    *,
    since: int,
    until: int | None = None,
    domain: str = "",
    host_only: bool = False,
) -> Callable[[Function], Function]:
    """Declare the decorated function a kernel of *op_type*.

    A function may carry several declarations.
    """

    def declare(function: Function) -> Function:
        kernels = _KERNELS.setdefault((domain, op_type), [])
        kernels.append(Kernel(domain, op_type, since, until, host_only, function))
        kernels.sort(key=lambda kernel: kernel.since, reverse=True)
        return function

    return declare


def find_kernel(domain: str, op_type: str, version: int) -> Kernel | None:
    """The kernel of an operator at opset *version* of *domain*, if there is one."""
    family = FAMILIES.get((domain, op_type))
    if family is None:
        return None
    importlib.import_module(f"onnxplug_kernels.{family}")
    for kernel in _KERNELS.get((domain, op_type), ()):
        if kernel.since <= version:
            return kernel if kernel.until is None or version <= kernel.until else None
    return None


_KERNELS: Final[dict[tuple[str, str], list[Kernel]]] = {}


@functools.cache
def _keyword_parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    )
