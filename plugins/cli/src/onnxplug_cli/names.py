"""How EPs are called where there is little room."""

from __future__ import annotations


def name_to_write(ep: str) -> str:
    """The shortest name of *ep* that users can write; its own if that fits several."""
    from onnxplug.errors import PluginError
    from onnxplug.plugins import registry
    from onnxplug.plugins.names import short_name

    short = short_name(ep)
    try:
        return short if registry.resolve(short).name == ep else ep
    except PluginError:
        return ep
