"""Measures the plans that there are for a model, and chooses one.

First each EP by itself, in turns.  Then parts of the model are given to another EP than
the one that was fastest, one after the other, and those parts together of which each
brought something.  Each plan is timed whole, with the borders that it has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.record import Record
from onnxplug.calibration.inputs import shape_in_words
from onnxplug.calibration.plan import Plan, Spans, mixed
from onnxplug.calibration.process import SessionProcess, libraries_of
from onnxplug.calibration.race import Contender, Report, race
from onnxplug.calibration.segments import segments
from onnxplug.calibration.verdict import Measured, Verdict
from onnxplug.entries import CALIBRATE
from onnxplug.selection import CPU
from onnxplug.tolerances import tolerance_for
from onnxplug.verify.compare import difference

if TYPE_CHECKING:
    from onnxplug.calibration.subject import Subject
    from onnxplug.session.request import SessionRequest

_MARGIN: Final = 0.03
"""The share of a run's time that a plan has to save to be chosen instead of one with
fewer borders, or of the one that needs no verdict."""


_NEAR: Final = 1.5
"""An EP that takes so many times as long as the fastest may be better at a part of work
that is of one kind."""


_SHORT: Final = 5e-4
"""Seconds of a run that is too short for borders to be worth anything."""


class Limits(Record):
    """How long measuring may take.

    Attributes:
        seconds: that each plan is timed for.
        timeout: that making its session may take, and each of its rounds.
    """

    seconds: float = 1.0
    timeout: float = 300.0


def measure(
    subject: Subject,
    feed: Mapping[str, Any],
    limits: Limits,
    report: Report,
    check: Callable[[], None],
) -> Verdict:
    """The verdict on *subject* where its inputs are *feed*.

    Args:
        report: called now and then with how far it is.
        check: called while others work; raises if all is to end.

    Raises:
        OptionError: the model, or an EP, cannot be had in another process.
        NothingUsable: no EP can run it.
    """
    with ExitStack() as stack:
        trials = Trials(subject, feed, limits, report, check, stack)
        best = trials.singles()
        best = trials.mix(best)
        shapes = {name: shape_in_words(value) for name, value in feed.items()}
        date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Verdict(best.plan, subject.static, trials.measured(), shapes, date)


class NothingUsable(Exception):
    """No EP ran the model; the text says what became of each."""


class Trials:
    """The plans that are tried.

    Args:
        stack: closes what is left of them.
    """

    def __init__(
        self,
        subject: Subject,
        feed: Mapping[str, Any],
        limits: Limits,
        report: Report,
        check: Callable[[], None],
        stack: ExitStack,
    ) -> None:
        self._subject = subject
        self._feed = feed
        self._limits = limits
        self._report = report
        self._check = check
        self._stack = stack
        self._libraries = libraries_of(subject.registry)
        self._reference: dict[str, Any] = {}
        self._tried: list[Contender] = []

    def measured(self) -> tuple[Measured, ...]:
        """What was measured, in order."""
        return tuple(each.measured() for each in self._tried)

    def singles(self) -> Contender:
        """The fastest EP by itself.

        Raises:
            NothingUsable: none can be used.
        """
        # the CPU EP first, with whose outputs those of others are compared
        names = sorted(self._subject.candidates, key=lambda name: name != CPU)
        field = [self._opened(self._subject.alone(name)) for name in names]
        race([each for each in field if each.is_in], self._limits.seconds, self._report)
        usable = _usable(field)
        if not usable:
            told = "; ".join(str(each.measured()) for each in field)
            raise NothingUsable(told)
        best = min(usable, key=lambda each: each.pace)
        static = next((e for e in usable if e.plan == self._subject.static), None)
        if static is not None and not _is_faster(best, static):
            best = static
        return best

    def mix(self, best: Contender) -> Contender:
        """The fastest plan, *best* or one that gives parts to the other EPs."""
        parts = segments(self._subject.graph)
        others = [each for each in _usable(self._tried) if each is not best]
        for each in self._tried:
            if each is not best:
                each.close()
        if len(parts) < 2 or best.pace < _SHORT:
            return best
        base = best
        if len({part.kind for part in parts}) == 1:
            # an EP that is far behind is so at each third of work of one kind
            others = [each for each in others if each.pace < _NEAR * base.pace]
        for other in others:
            gains: list[Spans] = []
            for spans in _choices(parts):
                plan = self._mixed(base, other, spans)
                found = self._against(base, plan)
                if found is None or not _is_faster(found, base):
                    continue
                gains.append(spans)
                best = self._better(found, best)
            together = tuple({span for spans in gains for span in spans})
            plan = self._mixed(base, other, together)
            if len(gains) > 1 and plan not in [each.plan for each in self._tried]:
                found = self._against(base, plan)
                if found is not None and _is_faster(found, base):
                    best = self._better(found, best)
        return best

    def _mixed(self, base: Contender, other: Contender, spans: Spans) -> Plan:
        subject = self._subject
        count, with_cpu = len(subject.graph.nodes), subject.cpu_fallback
        names = base.plan.first, other.plan.first
        return mixed(*names, spans, count, with_cpu=with_cpu)

    def _better(self, found: Contender, best: Contender) -> Contender:
        return found if found.pace < best.pace else best

    def _against(self, base: Contender, plan: Plan) -> Contender | None:
        """*plan*, measured in turns with *base*; ``None`` if it cannot be used."""
        found = self._opened(plan)
        if found.is_in and not found.difference:
            # what was measured of the base before was at another time
            base.seconds.clear()
            base.busy = 0.0
            race([base, found], self._limits.seconds, self._report)
        found.close()
        return found if _usable([found]) and base.is_in else None

    def _opened(self, plan: Plan) -> Contender:
        self._report(f"loading {plan}", None)
        self._check()
        request = _request_of(self._subject, plan)
        make = functools.partial(
            SessionProcess,
            request,
            self._feed,
            self._libraries,
            self._limits.timeout,
            self._check,
        )
        found = Contender(plan, make)
        self._stack.callback(found.close)
        self._tried.append(found)
        self._compare(found)
        return found

    def _compare(self, found: Contender) -> None:
        """Note how what *found* gives differs from the first's that gave anything."""
        outputs, found.outputs = found.outputs, {}
        if not self._reference:
            self._reference = outputs
            return
        for name, value in outputs.items():
            text = difference(
                value, self._reference[name], _tolerance_of(value), repr(name)
            )
            if text:
                found.difference = text
                return


def _usable(found: Sequence[Contender]) -> list[Contender]:
    return [
        each
        for each in found
        if each.seconds and not each.failure and not each.difference
    ]


def _is_faster(one: Contender, other: Contender) -> bool:
    return one.pace < other.pace * (1 - _MARGIN)


def _choices(parts: Sequence[Any]) -> Iterator[Spans]:
    """What is given to another EP: each part, and all parts of one kind."""
    seen: set[Spans] = set()
    kinds = dict.fromkeys(part.kind for part in parts)
    for spans in (
        *(tuple(p.span for p in parts if p.kind == kind) for kind in kinds),
        *((part.span,) for part in parts),
    ):
        if spans not in seen and len(spans) < len(parts):
            seen.add(spans)
            yield spans


def _tolerance_of(value: Any) -> tuple[float, float]:
    """How far right values of this type may be apart; of parts of sequences and maps as
    of float32."""
    dtype = getattr(value, "dtype", None)
    found = tolerance_for("float32" if dtype is None else dtype.name)
    return found.relative, found.absolute


def _request_of(subject: Subject, plan: Plan) -> SessionRequest:
    """What the session of *plan* is asked for, in which no EP is done without."""
    options = subject.request.options.snapshot()
    options.add_session_config_entry(CALIBRATE, "0")
    options.enable_profiling = False
    options.optimized_model_filepath = ""
    providers = [
        each._replace(options=dict(each.options), error_on_failure=each.name != CPU)
        for each in plan.requests(subject.candidates)
    ]
    return subject.request._replace(
        options=options, providers=providers, policy=None, provider_options=None
    )
