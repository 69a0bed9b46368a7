"""A small computation on one EP and device, and whether the numbers are right.

The numbers are whole and small, so that every EP has them exactly, whatever precision
it computes with.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug.ep import EpDevice, raise_interruption
from onnxplug.guard import in_words
from onnxplug.selection.order import CPU

_TOLERANCE: Final = 1e-3

_LOG: Final = logging.getLogger("onnxplug.cli")


class Verdict(StrEnum):
    """What came of a computation."""

    OK = "ok"
    WRONG = "wrong"
    FAILED = "failed"
    REFUSED = "refused"
    """The EP does not take the operator, which it need not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A computation on one device.

    Attributes:
        detail: why it is not ok; empty when it is.
        remedy: what to do; empty when nothing needs doing.
    """

    op: str
    verdict: Verdict
    detail: str = ""
    remedy: str = ""


class Trial(Record):
    """An operator, two float32 inputs of one shape, and what it should give."""

    op: str
    a: list[Any]
    b: list[Any]
    expected: list[Any]


TRIALS: Final = (
    Trial("Add", [1, 2, 3, 4], [10, 20, 30, 40], [11, 22, 33, 44]),
    Trial("MatMul", [[1, 2], [3, 4]], [[5, 6], [7, 8]], [[19, 22], [43, 50]]),
)


def makers_of(distribution: str) -> str:
    """Whom to tell about an EP of *distribution*, which may be one that was registered
    by hand."""
    whose = distribution
    if distribution == "registered":
        whose = "the library that was registered"
    return f"tell the makers of {whose}"


def known_remedy(error: BaseException) -> str:
    """What the EP says is to be done about an error, or about what led to it."""
    found: BaseException | None = error
    while found is not None:
        remedy = getattr(found, "remedy", "")
        if isinstance(remedy, str) and remedy:
            return remedy
        found = found.__cause__
    return ""


def compute(
    trial: Trial, pair: EpDevice, distribution: str, options: Mapping[str, str]
) -> Check:
    """Run *trial* on *pair*, whose EP *distribution* supplies, and on nothing else.

    Args:
        options: of the EP.
    """
    from onnxplug.errors import UnassignedNode

    verdict = Verdict.FAILED
    remedy = makers_of(distribution)
    try:
        found = _run(trial, pair, options)
    except UnassignedNode as error:
        reasons = [said for told in error.reasons.values() for said in told]
        verdict, remedy = Verdict.REFUSED, ""
        detail = "; ".join(reasons) or str(error)
    # whatever a plugin raises, SystemExit too, is what was looked for
    except (Exception, SystemExit) as error:  # noqa: BLE001
        raise_interruption(error)
        _LOG.debug("%s", error)
        if isinstance(error.__cause__ or error, ImportError):
            remedy = f"install {distribution} again, with all that it needs"
        remedy = known_remedy(error) or remedy
        detail = in_words(error)
    else:
        if _is_near(found, trial.expected):
            return Check(op=trial.op, verdict=Verdict.OK)
        verdict = Verdict.WRONG
        detail = f"found {_text(found)}, expected {_text(trial.expected)}"
    return Check(op=trial.op, verdict=verdict, detail=detail, remedy=remedy)


def _run(trial: Trial, pair: EpDevice, given: Mapping[str, str]) -> Any:
    import numpy as np

    from onnxplug import InferenceSession, SessionOptions

    options = SessionOptions()
    options.add_provider_for_devices([pair], dict(given))
    options.add_session_config_entry("session.check_results", "1")
    if pair.ep_name != CPU:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    inputs = {"a": np.array(trial.a, np.float32), "b": np.array(trial.b, np.float32)}
    with InferenceSession(_model(trial), options) as session:
        (found,) = session.run(None, inputs)
    return found


def _model(trial: Trial) -> bytes:
    import numpy as np
    from onnx import TensorProto, helper

    shape = np.shape(trial.a)
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name in "aby"
    }
    graph = helper.make_graph(
        [helper.make_node(trial.op, ["a", "b"], ["y"])],
        "doctor",
        [values["a"], values["b"]],
        [values["y"]],
    )
    opset = helper.make_opsetid("", 13)
    model = helper.make_model(graph, ir_version=8, opset_imports=[opset])
    serialized: bytes = model.SerializeToString()
    return serialized


def _is_near(found: Any, expected: list[Any]) -> bool:
    import numpy as np

    array = np.asarray(expected, np.float32)
    return found.shape == array.shape and bool(
        (np.abs(found - array) <= _TOLERANCE).all()  # false for NaN, too
    )


def _text(numbers: Any) -> str:
    import numpy as np

    text = np.array2string(
        np.asarray(numbers, np.float32),
        separator=", ",
        threshold=16,
        formatter={"float_kind": lambda number: f"{number:g}"},
    )
    return " ".join(text.split())
