"""What a start depends on: equal for two processes only if it serves both."""

from __future__ import annotations

import marshal
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import onnxplug
from onnxplug.authoring.entries import MARSHAL, fingerprint
from onnxplug.authoring.files import lasting_state
from onnxplug.authoring.source_state import state_of
from onnxplug.entries import CHECK, CHECK_RESULTS
from onnxplug.options import SessionOptions
from onnxplug.search_path import installed_state

if TYPE_CHECKING:
    from onnxplug.session.request import SessionRequest

FORMAT: Final = 1
"""Of entries; what reads others is told by the source."""

_FOREIGN: Final = (
    "_initializers",
    "_external_initializers",
    "_external_files",
    "_requests",
    "_domains",
    "_policy",
    "_ep_context_reader",
    "enable_profiling",
    "optimized_model_filepath",
)
"""Options that no plain value stands for, or by which something is written."""

_PLAIN: Final = (
    "intra_op_num_threads",
    "logid",
    "_config",
    "_free_dimensions",
    "_denoted_dimensions",
)


def key_of(request: SessionRequest) -> str | None:
    """The name of what is kept for *request*; ``None`` if nothing can be."""
    options, source = request.options, request.source
    if (
        not isinstance(source, str)
        or request.registry is not None
        or request.policy is not None
        or request.files is not None
        or request.belied
        or options.is_load_cancelled
    ):
        return None
    said = _plain(options)
    if said is None:
        return None
    try:
        model = lasting_state(os.stat(source))
        installed = installed_state()
    except (OSError, ValueError):  # the first to tell is who loads the model
        return None
    if model is None or installed is None:
        return None
    whole: Any = (
        FORMAT,
        onnxplug.__version__,
        state_of(os.path.dirname(onnxplug.__file__ or "")),
        np.__version__,
        sys.hexversion,
        installed,
        sorted(each for each in os.environ.items() if each[0].startswith("ONNXPLUG_")),
        (os.path.abspath(source), *model),
        said,
        request.providers,
        request.provider_options,
        request.disabled,
        request.falls_back,
        request.cpu_stands_in,
    )
    try:
        return fingerprint(marshal.dumps(whole, MARSHAL)).hex()[:40]
    except (ValueError, TypeError):
        return None


def _plain(options: SessionOptions) -> tuple[Any, ...] | None:
    values = vars(options)
    if type(options) is not SessionOptions or any(map(values.get, _FOREIGN)):
        return None
    config = values["_config"]
    if values["log_severity_level"] >= 0 or CHECK_RESULTS in config:
        return None
    if any(key.startswith("ep.") for key in config) or os.environ.get(CHECK):
        return None
    level = int(values["graph_optimization_level"])
    strictness = type(options.strictness).__qualname__
    return level, strictness, *[values[name] for name in _PLAIN]
