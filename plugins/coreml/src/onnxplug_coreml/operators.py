"""The operators that the EP takes, in some form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onnxplug import ep
from onnxplug_coreml.lowering import lower  # noqa: F401 - declares the rules
from onnxplug_coreml.lowering.call import RULES


def operators() -> Iterator[ep.OperatorSupport]:
    """Those that have a rule, in every version that ONNX has but the first of some."""
    for op_type in sorted(RULES):
        yield ep.OperatorSupport(op_type=op_type, since=_SINCE.get(op_type, 1))


_SINCE: Final = {"PRelu": 7, "Upsample": 7}
"""Versions before are not taken in any form."""
