"""What an EP records of the time that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol


class Profiler(Protocol):
    """Records what an EP does in a run, for the session's trace.

    It may be used from any thread, until the run ends.
    """

    def record(
        self,
        name: str,
        *,
        category: str,
        start_ns: int,
        duration_ns: int,
        details: Mapping[str, object],
    ) -> None:
        """Record one event; the host adds the EP's name and the thread.

        Args:
            name: what was done, as it is to be shown.
            category: ``Node`` for what computes a node, or several at once; for all
                else any other word.
            start_ns: when it began, by :func:`time.perf_counter_ns`.
            duration_ns: how long it took, in ns.
            details: facts that JSON can hold, never changed afterwards.  What the
                command line looks for: ``op_name``, the operator; ``tier``, which of
                the EP's tiers computed it; ``note``, why not a faster one; ``flops``
                and ``bytes``, the work; ``share_of_peak``, the least time that this
                machine needs for the work, of the time it took.
        """


_names: Final[dict[Any, str]] = {}
"""Names of dtypes as ONNX Runtime's traces have them; numpy takes long to tell them."""


def type_shapes(values: Iterable[Any]) -> list[dict[str, list[int]]]:
    """The type and shape of each array, as ONNX Runtime's traces have them."""
    return [
        {_name(value.dtype): list(value.shape)}
        for value in values
        if hasattr(value, "dtype") and hasattr(value, "shape")
    ]


def _name(dtype: Any) -> str:
    try:
        known = _names.get(dtype)
    except TypeError:  # a device's own, which need not be hashable
        return str(dtype)
    if known is not None:
        return known
    others = {"float32": "float", "float64": "double", "object": "string"}
    name = str(dtype)
    return _names.setdefault(dtype, others.get(name, name))
