"""What was recorded for groups of one kind, by what recording asked.

Recording is a function of the answers to its questions, and which question comes next
depends only on those before.  So whoever gets the same answers gets the same piece.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.pieces import Piece

FORM: Final = 0
"""The dtype and shape of a value."""

CONTENT: Final = 1
"""The content of a value, if it is known."""

PLACE: Final = 2
"""Where a value is."""

DESTINATION: Final = "destination"
"""Where a value goes; the argument says whether rows may be apart.  To ask is to take
the place, so this is only asked when it is certain to be the next question."""

REFUSED: Final = "refused"
"""Whether a constant may not be packed in a layout, the argument."""

RESULTS: Final = "results"
"""The dtypes and shapes of all outputs of a call, whose number is the argument."""

WITHIN: Final = "within"
"""Whether a value lies where its channels are those of another value; the argument is
the role of that one and the first of these channels."""

State: TypeAlias = tuple[int, int]
"""A question whose answer is there before it is asked: which, and the role."""


class Question(Record):
    """A question that has to be asked.

    Attributes:
        what: :data:`DESTINATION`, :data:`REFUSED`, :data:`RESULTS` or :data:`WITHIN`.
        role: of the value that it is about.
    """

    what: str
    role: int
    argument: Any


class Fork:
    """What comes after a question, by the answer."""

    __slots__ = ("question", "ways")

    def __init__(self, question: Question) -> None:
        self.question = question
        self.ways: dict[Any, list[Branch]] = {}


class Branch:
    """Some questions whose answers are there, and what comes after them.

    Attributes:
        number: of the questions, among those of a memo.
    """

    __slots__ = ("number", "states", "ways")

    def __init__(self, states: tuple[State, ...], number: int) -> None:
        self.states = states
        self.number = number
        self.ways: dict[Any, Piece | Fork] = {}


class Memo:
    """Pieces of one kind of groups; threads may share it."""

    def __init__(self) -> None:
        self.branches: list[Branch] = []
        self._numbers: dict[tuple[State, ...], int] = {}
        self._count = itertools.count()

    def clear(self) -> None:
        """Keep nothing; who has found something may go on with it."""
        self.branches = []

    def add(self, log: Sequence[tuple[State | Question, Any]], piece: Piece) -> None:
        """Keep what was recorded.

        Args:
            log: the questions in their order, with the answers.
        """
        branches = self.branches
        states: list[State] = []
        answers: list[Any] = []
        for question, answer in log:
            if not isinstance(question, Question):
                states.append(question)
                answers.append(answer)
                continue
            fork = self._branch(branches, states).ways.setdefault(
                _key(answers), Fork(question)
            )
            assert isinstance(fork, Fork) and fork.question == question
            branches = fork.ways.setdefault(answer, [])
            states, answers = [], []
        self._branch(branches, states).ways[_key(answers)] = piece

    def _branch(self, branches: list[Branch], states: Sequence[State]) -> Branch:
        wanted = tuple(states)
        for branch in branches:
            if branch.states == wanted:
                return branch
        # two threads must not have one number for different ones
        number = self._numbers.setdefault(wanted, next(self._count))
        branches.append(Branch(wanted, number))
        return branches[-1]


def _key(answers: Sequence[Any]) -> Any:
    """As ``itemgetter`` gives it."""
    return answers[0] if len(answers) == 1 else tuple(answers)
