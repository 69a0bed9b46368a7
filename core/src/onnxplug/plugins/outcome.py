"""What came of loading a plugin: its factory, or in words why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from onnxplug.errors import (
    PluginBlocked,
    PluginConflict,
    PluginError,
    PluginIncompatible,
    PluginLoadError,
)
from onnxplug.guard import FAILURES
from onnxplug.interruption import raise_interruption
from onnxplug.plugins.library import check_factory
from onnxplug.plugins.names import short_name
from onnxplug.plugins.record import PluginRecord, PluginState
from onnxplug.plugins.settings import BLOCK

if TYPE_CHECKING:
    from onnxplug.ep import EpFactory

_ERRORS: Final[dict[PluginState, type[PluginError]]] = {
    PluginState.BLOCKED: PluginBlocked,
    PluginState.CONFLICT: PluginConflict,
    PluginState.INCOMPATIBLE: PluginIncompatible,
    PluginState.FAILED: PluginLoadError,
}


def accept(record: PluginRecord, factories: Mapping[str, EpFactory]) -> None:
    """Give a record what its library supplied for it."""
    try:
        if record.name not in factories:
            raise LookupError(
                f"{record.library.source} supplies {sorted(factories) or 'no EP'}, "
                f"and not {record.name!r}, which its entry point is named for"
            )
        check_factory(factories[record.name])
    except FAILURES as error:  # spi_version is what the plugin wrote, or forgot
        raise_interruption(error)
        fail(record, error)
    else:
        record.factory = factories[record.name]
        record.state = PluginState.READY


def fail(record: PluginRecord, error: BaseException) -> None:
    """Keep why a plugin could not be loaded."""
    if isinstance(error, PluginIncompatible):
        reason = f"{record} is incompatible: {error}"
        state = PluginState.INCOMPATIBLE
    else:
        remedy = (
            f"install {record.distribution} again, with all that it needs"
            if isinstance(error, ImportError)
            else f"tell the makers of {record.distribution}"
        )
        reason = (
            f"{record} could not be loaded: {type(error).__name__}: {error}\n"
            f"To remedy this, {remedy}; "
            f"{BLOCK}={short_name(record.name)} leaves it out."
        )
        state = PluginState.FAILED
    record.reason, record.error, record.state = reason, error, state


def error_of(record: PluginRecord) -> PluginError:
    """What to raise when an EP is asked for that cannot be had."""
    return _ERRORS[record.state](record.reason, plugin=record.name)


def log(error: Exception) -> None:
    """Log what is wrong with a plugin that nobody named, or that is gone."""
    import logging

    logging.getLogger("onnxplug.plugins").warning("%s", error)
