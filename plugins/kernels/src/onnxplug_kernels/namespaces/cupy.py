"""CuPy's namespace: numpy's, with the elements on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.namespaces.numpy import NumpyLike


class Cupy(NumpyLike):
    """CuPy, which has numpy's dtypes but for those of ml_dtypes."""

    def to_numpy(self, x: Any) -> np.ndarray[Any, Any]:
        host: np.ndarray[Any, Any] = (
            x if isinstance(x, np.ndarray) else self.library.asnumpy(x)
        )
        return host

    def erf(self, x: Any) -> Any:
        from cupyx.scipy import special  # type: ignore[import-not-found]

        return special.erf(x)

    @staticmethod
    def take(x: Any, indices: Any, *, axis: int) -> Any:
        return x.take(indices, axis=axis)

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
