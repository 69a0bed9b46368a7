"""What kernels compute with: a namespace of the Array API and what that lacks.

A kernel's first argument *xp* has everything that the Array API standard has under the
name that it has there, and besides what kernels need more, such as scattering with a
reduction: see :class:`~.standard.Standard`.  Each array library has a module here that
says how it does that, chosen once when a kernel is bound.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any, Final

from onnxplug_kernels.namespaces.standard import Standard

_OWN: Final = {
    "numpy": ("numpy", "Numpy"),
    "cupy": ("cupy", "Cupy"),
    "torch": ("torch", "Torch"),
    "array_api_compat.numpy": ("numpy", "Numpy"),
    "array_api_compat.cupy": ("cupy", "Cupy"),
    "array_api_compat.torch": ("torch", "Torch"),
}
"""By the name of an array library: the module here, and the class in it."""

_PREFIX: Final = "onnxplug_kernels.namespaces."


def namespace_of(xp: Any, **where: Any) -> Any:
    """The namespace that kernels take for the array library *xp*.

    Of libraries that have no module here what the standard lacks is done by numpy, on
    copies of the arrays on the host.

    Args:
        xp: numpy, cupy, torch, any other module that keeps to the Array API standard
            of 2024.12, or a namespace, which is returned as it is.
        where: for torch ``device``, on which arrays are made.

    Raises:
        ImportError: *xp* is torch or CuPy, and ``array_api_compat`` is not installed.
    """
    return xp if xp.__name__.startswith(_PREFIX) else _namespace_of(xp, **where)


@functools.cache
def _namespace_of(xp: Any, **where: Any) -> ModuleType:
    name, owner = _OWN.get(xp.__name__, ("standard", "Standard"))
    if name == "cupy":
        xp = importlib.import_module("array_api_compat.cupy")
    module = importlib.import_module(_PREFIX + name)
    return as_module(getattr(module, owner)(xp, **where))


def as_module(functions: Standard) -> ModuleType:
    """A module with *functions* and, beside them, those of their library.

    Kernels of small arrays spend much of their time finding functions, and Python finds
    those of a module without ``__getattr__`` faster than those of any other object.
    Modules within a library, which numpy imports when they are asked for, are in
    ``library``.
    """
    library = functions.library
    namespace = ModuleType(_PREFIX + library.__name__)
    own = {*vars(functions), *dir(type(functions))}
    for name, value in vars(library).items():
        if not name.startswith("_"):
            setattr(namespace, name, value)
    for name in own:
        if not name.startswith("_"):
            setattr(namespace, name, getattr(functions, name))
    return namespace


__all__ = ["Standard", "as_module", "namespace_of"]
