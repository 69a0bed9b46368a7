"""Session options that a model carries in its metadata, as ONNX Runtime writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from onnxplug.errors import InvalidModel, OptionWarning
from onnxplug.graph.load import read_metadata
from onnxplug.levels import ExecutionMode, GraphOptimizationLevel
from onnxplug.options import SessionOptions
from onnxplug.suggest import did_you_mean
from onnxplug.warn import warn_user

KEY: Final = "ort_config"
"""The metadata's key; the value is JSON, whose member is that of :data:`MEMBER`."""

MEMBER: Final = "session_options"

_OPTIONS: Final[Mapping[str, Callable[[int], Any]]] = {
    "inter_op_num_threads": int,
    "intra_op_num_threads": int,
    "execution_mode": ExecutionMode,
    "graph_optimization_level": GraphOptimizationLevel,
    "enable_profiling": bool,
}


def set_from_model(options: SessionOptions, source: str | memoryview) -> None:
    """Set what the model at a path, or in memory, says of *options*, if anything.

    Raises:
        InvalidModel: what it says is not JSON, or of another form.
    """
    text = read_metadata(source).get(KEY)
    if text is None:
        return
    import json

    try:
        stated = json.loads(text)[MEMBER]
        given = {name: _number(value) for name, value in stated.items()}
        known = given.keys() & _OPTIONS
        values = {name: _OPTIONS[name](given[name]) for name in known}
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise InvalidModel(
            f"the model's metadata {KEY!r} is {text[:200]!r}; expected JSON such as "
            f'{{"{MEMBER}": {{"intra_op_num_threads": 2}}}} ({error})'
        ) from error
    for name in given.keys() - known:
        warn_user(
            f"the model's metadata {KEY!r} sets {name!r}, which has no effect"
            f"{did_you_mean(name, _OPTIONS)}",
            OptionWarning,
        )
    for name, value in values.items():
        setattr(options, name, value)


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value
