"""What results are compared with: the other tier, ONNX Runtime, ``onnx.reference``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from .children import Outcome

TOLERANCES: Final = {
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "float32": 1e-3,
    "float64": 1e-6,
}


class Disagreement(NamedTuple):
    """How two engines differ.

    Attributes:
        kind: ``refused by one``, ``other types``, ``other shapes`` or ``other values``.
        text: the rest.
    """

    kind: str
    text: str

    @property
    def key(self) -> str:
        """Equal for those that likely have one cause: without names and numbers."""
        text = re.sub(r"'[^']*'", "'…'", self.text)
        text = re.sub(r" failed on .*?: (?=[A-Z])", ": ", text)
        return re.sub(r"\[[^]]*\]|\([^)]*\)|-?[\d.]+(e[+-]?\d+)?", "#", text)[:160]


DRAWS: Final = re.compile("Random|Bernoulli|Multinomial|Dropout")
"""Operators whose results are other ones each time."""


def disagreement(first: Outcome, second: Outcome) -> Disagreement | None:
    """How two outcomes of one case differ, as far as both say something."""
    if first.kind in ("crash", "hang") or second.kind in ("crash", "hang"):
        return None
    if (first.create is None) != (second.create is None):
        # what one engine finds when the session is made, the other may find in runs
        refused, other = (first, second) if first.create else (second, first)
        accepted = [number for number, run in enumerate(other.runs) if "results" in run]
        if not accepted:
            return None
        who = "first" if refused is first else "second"
        said = (refused.create or {})["error"]
        return Disagreement(
            "refused by one", f"the {who} makes no session: {said[0]}: {said[1]}"
        )
    for number, (one, two) in enumerate(zip(first.runs, second.runs, strict=False)):
        found = _of_run(one, two)
        if found is not None:
            return found._replace(text=f"run {number}: {found.text}")
    return None


def _of_run(one: Mapping[str, Any], two: Mapping[str, Any]) -> Disagreement | None:
    if "error" in one and "error" in two:
        return None
    if "error" in one or "error" in two:
        who = "first" if "error" in one else "second"
        said = (one if "error" in one else two)["error"]
        shapes = _shapes((two if "error" in one else one)["results"])
        return Disagreement(
            "refused by one",
            f"the {who} raises {said[0]}: {said[1]}; the other gives {shapes}",
        )
    for place, (a, b) in enumerate(zip(one["results"], two["results"], strict=True)):
        found = _of_values(a, b)
        if found is not None:
            return found._replace(text=f"output {place}: {found.text}")
    return None


def _shapes(results: Sequence[Any]) -> str:
    return ", ".join(
        f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else type(x).__name__
        for x in results
    )


def _of_values(a: Any, b: Any) -> Disagreement | None:
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return Disagreement("other shapes", f"{len(a)} elements and {len(b)}")
        for x, y in zip(a, b, strict=True):
            found = _of_values(x, y)
            if found is not None:
                return found
        return None
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        if type(a) is not type(b):
            kinds = f"{type(a).__name__} and {type(b).__name__}"
            return Disagreement("other types", kinds)
        return (
            None if repr(a) == repr(b) else Disagreement("other values", "of objects")
        )
    if a.shape != b.shape:
        return Disagreement("other shapes", f"{list(a.shape)} and {list(b.shape)}")
    if a.dtype != b.dtype:
        return Disagreement("other types", f"{a.dtype} and {b.dtype}")
    return _of_arrays(a, b)


def _of_arrays(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> Disagreement | None:
    if a.dtype.kind in "OSU":
        same = np.array([x == y for x, y in zip(a.flat, b.flat, strict=True)], bool)
        same = same.reshape(a.shape)
    elif a.dtype.name in TOLERANCES:
        tolerance = TOLERANCES[a.dtype.name]
        x, y = a.astype(np.float64), b.astype(np.float64)
        # of sums of large numbers what remains depends on the order
        finite = np.abs(x[np.isfinite(x)])
        scale = finite.max() if finite.size else 0
        same = np.isclose(x, y, tolerance, tolerance * min(scale, 1e30), equal_nan=True)
        same |= np.abs(x) > 1e30
    else:
        same = np.asarray(a == b)
    if same.all():
        return None
    place = tuple(int(n) for n in np.unravel_index(np.argmax(~same), same.shape))
    return Disagreement(
        "other values",
        f"{(~same).sum()} of {a.size} differ, the first at {place}: "
        f"{a[place]} and {b[place]} of {a.dtype}{list(a.shape)}",
    )
