"""The fast path of a run: one EP on the host, nothing to convert, nothing to copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from onnxplug.compile.model import BuiltModel
from onnxplug.run.plan import RunPartition
from onnxplug.session.inputs import InputChecker
from onnxplug.session.outputs import DeclaredShapes, own

FastRun: TypeAlias = Callable[[Mapping[str, Any]], list[Any] | None]
"""The results for a feed; ``None``, and nothing done, when it is not for this path."""


def fast_run(
    built: BuiltModel, checker: InputChecker, declared: DeclaredShapes
) -> FastRun:
    """The fast path of a session's runs.

    What it needs is bound here once.  Whatever is out of the ordinary, a closed model
    included, is left to the ordinary way, which knows what to do or to raise.
    """
    if built.direct_call is None:
        return no_fast_run
    compute = built.while_open(built.direct_call)
    pass_on, check_shapes = checker.pass_on, declared.check
    (step,) = built.plan.steps
    assert isinstance(step, RunPartition)
    # where the EP's results are compared with what is stated, once will do
    doubts = ("all",) if step.doubts is None else step.doubts

    def run(feed: Mapping[str, Any]) -> list[Any] | None:
        inputs = pass_on(feed)
        if inputs is None:
            return None
        results = compute(inputs)
        if results is None:
            return None
        owned = own(results, inputs)
        if doubts:
            check_shapes(owned)
        return owned

    return run


def no_fast_run(feed: Mapping[str, Any]) -> None:
    """Leaves every run to the ordinary way."""
    return None
