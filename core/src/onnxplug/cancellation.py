"""Flags by which making a session is cancelled, and by which runs end that make one."""

from __future__ import annotations

from collections.abc import Callable


class Flag:
    """Shared by options and their copies; of a pickled copy it is down."""

    __slots__ = ("up",)

    def __init__(self) -> None:
        self.up = False

    def __reduce__(self) -> tuple[type[Flag], tuple[()]]:
        return Flag, ()


class RunFlag(Flag):
    """Up when a run ends that needs a session made anew; then another's flag.

    Attributes:
        is_over: whether the run is to end; ``None`` after it.
    """

    __slots__ = ("_after", "is_over")

    def __init__(self, after: Flag, is_over: Callable[[], bool]) -> None:
        self._after = after
        self.is_over: Callable[[], bool] | None = is_over

    @property
    def up(self) -> bool:  # type: ignore[override]
        return self._after.up if self.is_over is None else self.is_over()
