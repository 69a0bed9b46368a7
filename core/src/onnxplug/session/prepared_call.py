"""Prepared calls: of a plan that is one partition, where all is that it takes.

Which inputs and outputs these are, fed or bound, is decided once.  Whatever is out of
the ordinary is left to the ordinary way, which knows what to do or to raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from onnxplug.ep import HOST
from onnxplug.run.plan import only_partition
from onnxplug.session.outputs import DeclaredShapes, own

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.session.inputs import InputChecker

PreparedCall: TypeAlias = Callable[[Any], list[Any] | None]
"""The results for a feed, or for a binding; ``None``, and nothing done, when it is not
for this way."""


def not_prepared(given: Any) -> None:
    """Leaves every call to the ordinary way."""
    return None


def prepare_fed(
    built: BuiltModel, checker: InputChecker, declared: DeclaredShapes
) -> PreparedCall:
    """Calls with a feed, on the host; a closed model is left to the ordinary way."""
    step = only_partition(built.plan, HOST)
    if step is None or built.direct_call is None:
        return not_prepared
    compute = built.while_open(built.direct_call)
    pass_on, check_shapes = checker.pass_on, declared.check
    # where the EP's results are compared with what is stated, once will do
    doubts = ("all",) if step.doubts is None else step.doubts

    def call(feed: Mapping[str, Any]) -> list[Any] | None:
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

    return call
