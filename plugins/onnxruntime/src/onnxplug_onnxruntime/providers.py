"""How ONNX Runtime reads the EPs that a session is to have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxplug.selection import normalise
from onnxplug.warn import warn_user


def check_and_normalize_provider_args(
    providers: Sequence[Any] | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """The names of EPs, and the options of each as texts.

    Raises:
        OptionError: an entry is of no known form, or the two lists do not fit.
    """
    requests = normalise(_as_texts(providers), _as_texts(provider_options))
    for request in requests:
        if request.name not in available_provider_names:
            warn_user(
                f"Specified provider {request.name!r} is not in available provider "
                f"names.  Available providers: {', '.join(available_provider_names)}"
            )
    return [each.name for each in requests], [dict(each.options) for each in requests]


def _as_texts(entries: Any) -> Any:
    """*entries*, with names and values of options as texts."""
    if not isinstance(entries, list | tuple):
        return entries
    return [
        (entry[0], _text_options(entry[1]))
        if isinstance(entry, tuple) and len(entry) == 2
        else _text_options(entry)
        for entry in entries
    ]


def _text_options(options: Any) -> Any:
    if not isinstance(options, Mapping):
        return options
    return {str(key): str(value) for key, value in options.items()}
