"""What a check is given: the EP, the time, and whom to tell what came of it."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case, Finding
from onnxplug_testing.conformance.reproduction import save
from onnxplug_testing.conformance.subject import Subject

OUT_OF_TIME: Final = "no time was left"

_OFTEN: Final = 1.0
"""Seconds between two signs of life of a check that has no cases."""

_FIRST: Final = 0.2
"""Seconds that a check has besides, as long as it has tried nothing."""

LATENESS: Final = 3.0
"""A check may last so many times longer than it has processor time."""


class Trial:
    """One check of one EP.

    Attributes:
        subject: the EP.
        seed: of all that is drawn.
        quick: the whole examination has half a minute.
        tried: how many cases were tried so far.
        untried: how many were not, by the reason.
        findings: what was found, each kind once for each node.
        figures: what was measured, by what it is; with the unit in the name.

    Args:
        group: the check's.
        check: its name.
        seconds: of the processor, that it has.
        folder: where to write what reproduces findings; ``None``: nothing is.
        skip: so many cases were tried by a process before this one.
        until: when it is out of time whatever it has used, by ``time.monotonic``.
        tell: hears of each case before it is tried, and now and then of ``None``.
    """

    def __init__(
        self,
        group: str,
        check: str,
        subject: Subject,
        *,
        seed: int = 0,
        seconds: float = 60.0,
        quick: bool = False,
        folder: Path | None = None,
        skip: int = 0,
        until: float = math.inf,
        tell: Callable[[Case | None], None] | None = None,
    ) -> None:
        self.subject = subject
        self.seed = seed
        self.quick = quick
        self.tried = 0
        self.untried: Counter[str] = Counter()
        self.findings: dict[tuple[str, ...], Finding] = {}
        self.figures: dict[str, float] = {}
        self._names = group, check
        self._folder = folder
        self._skip = skip
        self._attempts = 0
        self._tell = tell
        self._told = 0.0
        self._began = time.process_time()
        self._end = self._began + seconds
        self._latest = min(time.monotonic() + LATENESS * seconds, until)

    # what is drawn

    def draw(self, *what: object) -> random.Random:
        """A generator of choices, the same for each *what* and seed."""
        return random.Random(repr((self.seed, *self._names, *what)))

    def numbers(self, *what: object) -> np.random.Generator:
        """A generator of arrays, the same for each *what* and seed."""
        return np.random.default_rng(self.draw(*what).getrandbits(64))

    # how far it is

    @property
    def has_time(self) -> bool:
        """Whether the check's share of the time is not over yet.

        Processor time is counted, so that what is tried does not depend on what else
        the machine does; where that is too much, or the EP waits for a device, or the
        examination is late, the clock counts.  What has tried nothing yet has a little
        more.
        """
        more = 0.0 if self.tried else _FIRST
        return (
            time.process_time() < self._end + more
            and time.monotonic() < self._latest + LATENESS * more
        )

    @property
    def used(self) -> float:
        """Processor time since it began, in s."""
        return time.process_time() - self._began

    def attempt(self, case: Case) -> bool:
        """Say that *case* is tried next, and whether it is to be.

        It is not where a process before this one has tried it, and ended or hung.  So
        the cases have to come in the same order whenever the check runs.
        """
        self._attempts += 1
        if self._attempts <= self._skip:
            return False
        if self._tell is not None:
            self._tell(case)
        self.tried += 1
        return True

    def count(self, number: int = 1) -> None:
        """Say that so many things were tried, which are no cases."""
        self.tried += number
        if self._tell is not None and time.monotonic() - self._told > _OFTEN:
            self._told = time.monotonic()
            self._tell(None)

    def leave_out(self, why: str, number: int = 1) -> None:
        """Say that so many things were not tried, and why."""
        self.untried[why] += number

    def take_back(self, why: str) -> None:
        """Say that the case of the last attempt was none, after all, and why."""
        self.tried -= 1
        self.leave_out(why)

    def in_time(self, cases: Sequence[Any]) -> Iterator[Any]:
        """*cases*, as long as there is time; the others are left out."""
        for position, case in enumerate(cases):
            if not self.has_time:
                self.leave_out(OUT_OF_TIME, len(cases) - position)
                return
            yield case

    # what was found

    def find(
        self,
        sentence: Sentence,
        what: str,
        *,
        node: str = "",
        case: Case | None = None,
        kind: str = "",
        group: str = "",
    ) -> None:
        """Say that *sentence* was broken.

        Args:
            what: what was found, and what is expected.
            node: see :class:`Finding`.
            case: by which it can be seen again.
            kind: findings of one kind are told once; by default *what*, and the node.
            group: whose it is, if it is not the check's own.
        """
        key = (sentence.of, sentence.says, *([kind] if kind else [node, what]))
        before = self.findings.get(key)
        if before is not None:
            self.findings[key] = before._replace(times=before.times + 1)
            return
        feeds = case.feeds if case is not None else {}
        found = Finding(
            group or self._names[0],
            self._names[1],
            sentence,
            what,
            node,
            {name: _dtype(array) for name, array in feeds.items()},
            {name: np.shape(array) for name, array in feeds.items()},
            case.name if case is not None else "",
        )
        if case is not None and self._folder is not None:
            name = "-".join([*self._names, f"{self._attempts}-{len(self.findings)}"])
            found = found._replace(
                file=str(save(case, self._folder / name, found, self.subject))
            )
        self.findings[key] = found

    @contextmanager
    def expecting_no_failure(
        self, sentence: Sentence, node: str = "", case: Case | None = None
    ) -> Iterator[None]:
        """A context in which whatever is raised breaks *sentence*."""
        try:
            yield
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
            self.find(sentence, in_words(error), node=node, case=case)


def _dtype(array: Any) -> str:
    return str(getattr(array, "dtype", type(array).__name__))


def in_words(error: BaseException) -> str:
    """What was raised, on one line of no more than 400 characters."""
    text = " ".join(str(error).split())
    return f"raised {type(error).__name__}: {text}"[:400]


def outcome_of(trial: Trial) -> Mapping[str, Any]:
    """What came of *trial*, as another process can read it."""
    return {
        "tried": trial.tried,
        "untried": dict(trial.untried),
        "findings": list(trial.findings.values()),
        "figures": dict(trial.figures),
        "used": trial.used,
    }
