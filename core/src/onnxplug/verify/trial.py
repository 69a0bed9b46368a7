"""Runs a probe by one EP alone, and judges it by what the CPU EP computes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug.compile.build import build_model
from onnxplug.compile.load import load
from onnxplug.entries import CHECK_RESULTS
from onnxplug.errors import SessionRefused, UnassignedNode
from onnxplug.guard import FAILURES, close_after, in_words
from onnxplug.interruption import raise_interruption
from onnxplug.options import SessionOptions
from onnxplug.run.device import device_at
from onnxplug.selection import SessionContext
from onnxplug.session.runner import ModelRunner
from onnxplug.shapes.symbols import forget_all
from onnxplug.verify.compare import difference
from onnxplug.verify.stopwatch import Phase
from onnxplug.verify.verdict import FamilyVerdict, Verdict

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.ep import Probe
    from onnxplug.plugins import PluginRegistry
    from onnxplug.selection import ChosenEp
    from onnxplug.verify.stopwatch import Stopwatch

Create: TypeAlias = "Callable[[SessionContext], ChosenEp]"
"""Creates an EP for a session of its own."""


class Computed(Record):
    """What one EP made of a probe's model.

    Attributes:
        results: by the outputs' names.
        operators: domain and operator of each node that it ran.
    """

    results: dict[str, Any]
    operators: list[tuple[str, str]]


def judge(
    probe: Probe,
    subject: Create,
    reference: Create,
    registry: PluginRegistry,
    stopwatch: Stopwatch,
) -> FamilyVerdict:
    """Run *probe* by an EP, and compare with the CPU EP, the *reference*.

    Args:
        registry: where owners of devices' memory are looked up.
        stopwatch: told of each phase.
    """
    try:
        expected = _compute(probe, reference, registry, stopwatch)
    except FAILURES as error:
        raise_interruption(error)
        return unverified(
            probe, f"the CPU EP cannot run the probe: {_message(error)}", error
        )
    try:
        found = _compute(probe, subject, registry, stopwatch)
    except UnassignedNode as error:
        raise_interruption(error)
        reasons = [said for told in error.reasons.values() for said in told]
        why = "; ".join(reasons) or _message(error)
        return unverified(probe, f"the EP does not claim it: {why}")
    except (SessionRefused, _NotCreated) as error:
        return unverified(probe, _message(error), error)
    except FAILURES as error:
        raise_interruption(error)
        if not _would_last(error):
            return unverified(probe, _message(error), error)
        return _verdict(probe, Verdict.FAILED, f"it raised {_message(error)}")
    names = {(domain, op_type) for domain, op_type, _ in probe.operators}
    if names.isdisjoint(found.operators):
        ran = ", ".join(sorted({op_type for _, op_type in found.operators})) or "none"
        return unverified(
            probe,
            "the EP ran none of its operators; what the host made of the probe has "
            f"{ran}",
        )
    for name, result in expected.results.items():
        text = difference(found.results[name], result, probe.tolerance, f"{name!r}")
        if text:
            return _verdict(probe, Verdict.FAILED, text)
    return _verdict(probe, Verdict.PASSED)


def unverified(
    probe: Probe,
    why: str,
    error: BaseException | None = None,
    *,
    timeouts: int | None = None,
) -> FamilyVerdict:
    """The verdict on a probe that shows nothing.

    Args:
        error: what it came of, if of one; it may not come again.
        timeouts: how often it was itself what time ran out on; ``None``: there was
            time for it.
    """
    lasts = error is None or _would_last(error)
    found = _verdict(probe, Verdict.UNVERIFIED, why)
    return found._replace(lasts=lasts, timeouts=timeouts)


def _verdict(probe: Probe, verdict: Verdict, detail: str = "") -> FamilyVerdict:
    return FamilyVerdict(probe.family, probe.operators, verdict, _short(detail))


class _NotCreated(Exception):
    """The EP could not be created, which says nothing of what it computes."""


def _compute(
    probe: Probe, create: Create, registry: PluginRegistry, stopwatch: Stopwatch
) -> Computed:
    """What the EP that *create* gives computes alone, its results checked.

    Raises:
        Exception: whatever keeps it from that.
    """
    stopwatch.begin(Phase.COMPILING)
    options = SessionOptions()
    options.add_session_config_entry(CHECK_RESULTS, "1")
    model, _ = load(memoryview(probe.model), options, ())
    forget_all(model.graph, model.functions.values())
    try:
        ep = create(SessionContext(None, options.threads, options.config, registry))
    except FAILURES as error:
        raise_interruption(error)
        raise _NotCreated(
            f"the EP could not be created for it: {_message(error)}"
        ) from error
    devices = functools.partial(device_at, registry=registry)
    built = build_model(model, [ep], [], options, (), devices)
    try:
        runner = ModelRunner(built, None)
        stopwatch.begin(Phase.RUNNING)
        results = runner.run(probe.inputs, None)
    except BaseException as error:
        close_after(error, built.close)
        raise
    operators = list(_operators(built, ep.name))
    built.close()
    return Computed(dict(zip(runner.output_names, results, strict=True)), operators)


def _operators(built: BuiltModel, ep: str) -> Iterator[tuple[str, str]]:
    for node in built.explanation.nodes:
        if node.ep == ep:
            yield node.domain, node.op_type


def _would_last(error: BaseException) -> bool:
    """Whether *error* would come again: not if memory was full or a device busy, nor if
    it is a warning that this process makes an error of."""
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, MemoryError | Warning | _NotCreated):
            return False
        each = each.__cause__ or each.__context__
    return True


def _message(error: BaseException) -> str:
    return str(error) if isinstance(error, _NotCreated) else in_words(error)


_LONGEST: Final = 400
"""Characters of a detail: it is part of messages."""


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
