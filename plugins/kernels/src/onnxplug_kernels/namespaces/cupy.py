"""CuPy's namespace: numpy's, with the elements on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.namespaces.numpy import NumpyLike
from onnxplug_kernels.namespaces.standard import Standard


class Cupy(NumpyLike):
    """CuPy, which has numpy's dtypes but for those of ml_dtypes.

    Names of the standard that the installed CuPy lacks are array_api_compat's.
    """

    def __init__(self, library: Any) -> None:
        import cupy

        super().__init__(cupy)
        for name, value in vars(library).items():
            if not (name.startswith("_") or hasattr(cupy, name) or name in vars(self)):
                setattr(self, name, value)

    def to_numpy(self, x: Any) -> np.ndarray[Any, Any]:
        host: np.ndarray[Any, Any] = (
            x if isinstance(x, np.ndarray) else self.library.asnumpy(x)
        )
        return host

    def erf(self, x: Any) -> Any:
        from cupyx.scipy import special

        return special.erf(x)

    def scatter(
        self, x: Any, index: tuple[Any, ...], updates: Any, reduction: str
    ) -> Any:
        if reduction == "mul":
            # CuPy's multiply has no ``at``
            return Standard.scatter(self, x, index, updates, reduction)
        return super().scatter(x, index, updates, reduction)

    def unique(
        self, x: Any, axis: int | None, *, equal_nan: bool = True
    ) -> tuple[Any, Any, Any]:
        if axis is None:
            return super().unique(x, axis, equal_nan=equal_nan)
        # CuPy sorts subarrays, but does not say where each is from
        found = np.unique(
            self.to_numpy(x),
            return_index=True,
            return_inverse=True,
            return_counts=True,
            axis=axis,
            equal_nan=equal_nan,
        )[1:]
        indices, inverse, counts = map(self.from_numpy, found)
        return indices, inverse, counts
