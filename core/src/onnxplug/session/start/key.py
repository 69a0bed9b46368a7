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
from onnxplug.entries import CHECK, CHECK_RESULTS, EXTERNAL_FOLDER
from onnxplug.interruption import raise_interruption
from onnxplug.options import SessionOptions
from onnxplug.session.start.weights import MOST

if TYPE_CHECKING:
    from onnxplug.selection.request import ProviderRequest
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


def key_of(request: SessionRequest, around: tuple[Any, ...]) -> str | None:
    """The name of what is kept for *request*; ``None`` if nothing can be.

    Args:
        around: what :func:`~onnxplug.search_path.surroundings` says.
    """
    options, source = request.options, request.source
    if (
        request.registry is not None
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
        model = _state(source)
        folder = options.config[EXTERNAL_FOLDER]
        beside = _place(folder) if folder else ()
    except (OSError, ValueError) as error:
        raise_interruption(error)
        return None  # the first to tell is who loads the model
    if model is None:
        return None
    whole: Any = (
        FORMAT,
        onnxplug.__version__,
        state_of(os.path.dirname(onnxplug.__file__ or "")),
        np.__version__,
        sys.hexversion,
        around,
        model,
        beside,
        said,
        _plain_providers(request.providers),
        request.provider_options,
        request.disabled,
        request.falls_back,
        request.cpu_stands_in,
    )
    try:
        return fingerprint(marshal.dumps(whole, MARSHAL)).hex()[:40]
    except (ValueError, TypeError) as error:
        raise_interruption(error)
        return None


def _state(source: str | memoryview) -> tuple[Any, ...] | None:
    """What tells a model from others; ``None`` if that is not known yet, or takes long.

    Raises:
        OSError: its file is not there.
    """
    if isinstance(source, memoryview):
        return (fingerprint(source),) if source.nbytes <= MOST else None
    state = lasting_state(os.stat(source))
    return None if state is None else (*_place(source), *state)


def _place(path: str) -> tuple[str, str]:
    """A path as it was given, as files of a model are, and what it is then."""
    return path, os.path.abspath(path)


def _plain(options: SessionOptions) -> tuple[Any, ...] | None:
    values = vars(options)
    if not vars(type(options)).get("_is_plain") or any(map(values.get, _FOREIGN)):
        return None
    config = values["_config"]
    if values["log_severity_level"] >= 0 or CHECK_RESULTS in config:
        return None
    if any(key.startswith("ep.") for key in config) or os.environ.get(CHECK):
        return None
    level = int(values["graph_optimization_level"])
    strictness = type(options.strictness).__qualname__
    return level, strictness, *[values[name] for name in _PLAIN]


def _plain_providers(providers: Any) -> Any:
    """*providers* with plain values for requests of one."""
    requests: Any = sys.modules.get("onnxplug.selection.request")
    if requests is None or not isinstance(providers, list | tuple):
        return providers
    request = requests.ProviderRequest
    return [
        _plain_request(each) if type(each) is request else each for each in providers
    ]


def _plain_request(request: ProviderRequest) -> tuple[Any, ...]:
    name, options, error_on_failure, devices, origin, kept_from = request
    if type(options) is not dict:
        options = dict(options)
    # a device is no plain value, and has no entry
    return name, options, error_on_failure, devices, origin.value, kept_from
