"""The same model on two choices of EPs, run on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from onnxplug_cli.comparison.differences import Difference, ToleranceOf, differences

if TYPE_CHECKING:
    from onnxplug import InferenceSession

OpenSession = Callable[[Any, Sequence[str]], "InferenceSession"]
"""Opens a model, a path or a ``ModelProto``, on some EPs."""


class Sides:
    """Two sessions of one model; the second is the reference.

    Attributes:
        runs: how many times the two have run.
        sessions: the two.
        choices: the EPs of each, as they were asked for.
    """

    def __init__(
        self,
        model: Any,
        choices: tuple[Sequence[str], Sequence[str]],
        open_session: OpenSession,
        tolerance_of: ToleranceOf,
    ) -> None:
        self.choices = choices
        self.open_session = open_session
        self.tolerance_of = tolerance_of
        self.runs = 0
        first = open_session(model, choices[0])
        try:
            self.sessions = (first, open_session(model, choices[1]))
        except BaseException:
            first.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self.sessions:
            session.close()

    def of(self, model: Any) -> Sides:
        """Another *model*, on the same two choices."""
        return Sides(model, self.choices, self.open_session, self.tolerance_of)

    def reference(self, model: Any) -> InferenceSession:
        """Another *model*, on the reference's choice only."""
        return self.open_session(model, self.choices[1])

    def run(
        self, names: Sequence[str], inputs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Values by their *names*, of one run of each side."""
        self.runs += 1
        first, second = (
            dict(zip(names, session.run(list(names), inputs), strict=True))
            for session in self.sessions
        )
        return first, second

    def compare(
        self, names: Sequence[str], values: tuple[Mapping[str, Any], Mapping[str, Any]]
    ) -> list[Difference]:
        """How the *values* of two sides differ in those that *names* are of."""
        found, expected = values
        return [
            difference
            for name in names
            for difference in differences(
                name, found[name], expected[name], self.tolerance_of
            )
        ]

    def disagree(
        self, names: Sequence[str], values: tuple[Mapping[str, Any], Mapping[str, Any]]
    ) -> list[str]:
        """Those of *names* whose *values* differ beyond tolerance."""
        return [
            name
            for name in names
            if not all(each.agrees for each in self.compare([name], values))
        ]
