"""Loads what an entry point leads to, and tells in words why it could not be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from onnxplug.errors import (
    PluginBlocked,
    PluginConflict,
    PluginError,
    PluginIncompatible,
    PluginLoadError,
)
from onnxplug.guard import FAILURES
from onnxplug.plugins.library import check_factory
from onnxplug.plugins.names import short_name
from onnxplug.plugins.record import PluginRecord, PluginState
from onnxplug.plugins.requires import unmet_requirement
from onnxplug.plugins.settings import BLOCK

if TYPE_CHECKING:
    from onnxplug.ep import EpFactory
    from onnxplug.plugins.library import Library

_ERRORS: Final[dict[PluginState, type[PluginError]]] = {
    PluginState.BLOCKED: PluginBlocked,
    PluginState.CONFLICT: PluginConflict,
    PluginState.INCOMPATIBLE: PluginIncompatible,
    PluginState.FAILED: PluginLoadError,
}


def load_found(record: PluginRecord) -> dict[str, EpFactory]:
    """The factories of a found plugin's library.

    Raises:
        PluginIncompatible: its distribution needs another onnxplug.
        Exception: whatever the library raises.
    """
    from onnxplug import __version__

    (supplier,) = record.suppliers
    # before importing: what a newer onnxplug has would be an ImportError otherwise
    unmet = unmet_requirement(supplier.requirements, "onnxplug", __version__)
    if unmet:
        raise PluginIncompatible(
            f"{supplier.distribution} needs {unmet!r}, and this is onnxplug "
            f"{__version__}; install versions of the two that fit",
            plugin=record.name,
        )
    return record.library.load()


def settle(record: PluginRecord, factories: Mapping[str, EpFactory]) -> None:
    """Give a record what its library supplied for it."""
    try:
        if record.name not in factories:
            raise LookupError(
                f"{record.library.source} supplies {sorted(factories) or 'no EP'}, "
                f"and not {record.name!r}, which its entry point is named for"
            )
        check_factory(factories[record.name])
    except FAILURES as error:  # spi_version is what the plugin wrote, or forgot
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


@contextmanager
def undone_on_error(name: str, library: Library) -> Iterator[None]:
    """Whatever goes wrong in here undoes the load of a library registered as *name*.

    Raises:
        PluginError: for whatever was raised.
    """
    try:
        yield
    except BaseException as error:
        library.discard()
        if isinstance(error, PluginError):
            raise
        if isinstance(error, FAILURES):
            raise PluginLoadError(
                f"library {name!r} ({library.source}) could not be loaded: "
                f"{type(error).__name__}: {error}",
                plugin=name,
            ) from error
        raise
