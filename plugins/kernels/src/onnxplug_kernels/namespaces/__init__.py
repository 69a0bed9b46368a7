"""What kernels compute with: a namespace of the Array API and what that lacks.

A kernel's first argument *xp* is a :class:`~.standard.Standard`: everything that the
Array API standard has under the name that it has there, and besides what kernels need
more, such as scattering with a reduction.  Each array library has a module here that
says how it does that, chosen once when a kernel is bound.
"""

from __future__ import annotations

import functools
import importlib
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


def namespace_of(xp: Any) -> Standard:
    """The namespace that kernels take for the array library *xp*.

    Of libraries that have no module here what the standard lacks is done by numpy, on
    copies of the arrays on the host.

    Args:
        xp: numpy, cupy, torch, any other module that keeps to the Array API standard
            of 2024.12, or a namespace, which is returned as it is.

    Raises:
        ImportError: *xp* is torch, and ``array_api_compat`` is not installed.
    """
    return xp if isinstance(xp, Standard) else _namespace_of(xp)


@functools.cache
def _namespace_of(xp: Any) -> Standard:
    module, name = _OWN.get(xp.__name__, ("standard", "Standard"))
    owner = importlib.import_module(f"onnxplug_kernels.namespaces.{module}")
    namespace: Standard = getattr(owner, name)(xp)
    return namespace


__all__ = ["Standard", "namespace_of"]
