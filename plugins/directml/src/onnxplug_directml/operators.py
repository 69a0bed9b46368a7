"""The operators that the EP takes, in some form."""

from __future__ import annotations

from collections.abc import Iterator

from onnxplug import ep
from onnxplug_directml.lowering import operators as rules  # noqa: F401 - declares them
from onnxplug_directml.lowering.call import RULES


def operators() -> Iterator[ep.OperatorSupport]:
    """Those that have a rule, in every version that there is."""
    for domain, op_type in sorted(RULES):
        yield ep.OperatorSupport(op_type=op_type, domain=domain)
