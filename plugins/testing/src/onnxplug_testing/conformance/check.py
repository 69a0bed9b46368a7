"""The checks, each entered by a decorator above what carries it out."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug.errors import InvalidArgument

if TYPE_CHECKING:
    from onnxplug_testing.conformance.trial import Trial

GROUPS: Final = (
    "factory",
    "operators",
    "claims",
    "memory",
    "time",
    "failure",
    "options",
    "epcontext",
    "specialisation",
    "preferences",
    "costs",
    "profiling",
    "speed",
)
"""In the order in which they are carried out; each is a module of ``groups``."""

Run: TypeAlias = "Callable[[Trial], None]"


class Check(Record):
    """One question that the kit puts to an EP.

    Attributes:
        group: one of :data:`GROUPS`.
        name: unique in its group.
        run: asks, and tells the trial what was tried, what was not, and what was found.
        share: how much of the time it gets, relative to others.
        doc: one sentence: what is asked.
    """

    group: str
    name: str
    run: Run
    share: float
    doc: str

    @property
    def full_name(self) -> str:
        """``group/name``."""
        return f"{self.group}/{self.name}"


_CHECKS: Final[dict[str, Check]] = {}


def check(group: str, *, share: float = 1.0) -> Callable[[Run], Run]:
    """Enter the function below as a check; its name and docstring are the check's.

    Args:
        share: see :class:`Check`.
    """

    def enter(run: Run) -> Run:
        name = run.__name__.strip("_").replace("_", "-")
        doc = (run.__doc__ or "").split("\n\n")[0]
        entered = Check(group, name, run, share, " ".join(doc.split()))
        _CHECKS[entered.full_name] = entered
        return run

    return enter


def all_checks() -> list[Check]:
    """Every check, by group and in the order of its module."""
    for group in GROUPS:
        importlib.import_module(f"onnxplug_testing.conformance.groups.{group}")
    return sorted(_CHECKS.values(), key=lambda each: GROUPS.index(each.group))


def chosen_checks(only: Iterable[str] = ()) -> list[Check]:
    """Those of the groups, or of the names ``group/name``, in *only*; all if empty.

    Raises:
        InvalidArgument: there is no such group or check.
    """
    checks = all_checks()
    wanted = list(only)
    for name in wanted:
        if not any(name in (each.group, each.full_name) for each in checks):
            known = ", ".join(GROUPS)
            raise InvalidArgument(
                f"there is no check {name!r}; expected a group ({known}), or one of "
                f"its checks, as in {checks[0].full_name}"
            )
    return [
        each
        for each in checks
        if not wanted or each.group in wanted or each.full_name in wanted
    ]
