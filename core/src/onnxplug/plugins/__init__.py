"""Plugins: found from metadata, loaded when first used."""

from onnxplug.plugins.find import GROUP, FoundPlugin, find_plugins
from onnxplug.plugins.registry import PluginRecord, PluginRegistry, PluginState

registry = PluginRegistry()
"""The plugins of this process."""

__all__ = [
    "GROUP",
    "FoundPlugin",
    "PluginRecord",
    "PluginRegistry",
    "PluginState",
    "find_plugins",
    "registry",
]
