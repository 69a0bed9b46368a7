"""Plugins: found from metadata, loaded when first used, or registered by hand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from onnxplug.attached import attached
from onnxplug.plugins.find import GROUP, find_plugins
from onnxplug.plugins.metadata import FoundPlugin
from onnxplug.plugins.record import Failed, Found, Loaded, PluginRecord, PluginState
from onnxplug.plugins.registry import PluginRegistry

if TYPE_CHECKING:
    from onnxplug.plugins.target import LibraryForm, LibraryRecord

registry = PluginRegistry(sessions=attached)
"""The plugins of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=registry.start_child)

register_ep_library = registry.register_ep_library
unregister_ep_library = registry.unregister_ep_library
libraries = registry.libraries


def register_execution_provider_library(
    name: str, path: str | os.PathLike[str]
) -> None:
    """ONNX Runtime's spelling of :func:`register_ep_library`."""
    registry.register_ep_library(name, path)


def unregister_execution_provider_library(name: str) -> None:
    """ONNX Runtime's spelling of :func:`unregister_ep_library`."""
    registry.unregister_ep_library(name)


def __getattr__(name: str) -> Any:
    if name not in ("LibraryForm", "LibraryRecord"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onnxplug.plugins import target

    return getattr(target, name)


__all__ = [
    "GROUP",
    "Failed",
    "Found",
    "FoundPlugin",
    "LibraryForm",
    "LibraryRecord",
    "Loaded",
    "PluginRecord",
    "PluginRegistry",
    "PluginState",
    "find_plugins",
    "libraries",
    "register_ep_library",
    "register_execution_provider_library",
    "registry",
    "unregister_ep_library",
    "unregister_execution_provider_library",
]
