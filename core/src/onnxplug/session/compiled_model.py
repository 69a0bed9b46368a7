"""Compiled models that the config entries of a session ask for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onnxplug.compile.ep_context.write import ContextSettings, write_compiled
from onnxplug.errors import Fail, OptionError
from onnxplug.warn import warn_user

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.graph import Model
    from onnxplug.options import SessionOptions


def write_as_asked(built: BuiltModel, model: Model, options: SessionOptions) -> None:
    """Write the compiled model, if an EP serialises any part of it; else warn.

    Raises:
        OptionError: there is no path for it.
        Fail: the file is there already, or cannot be written.
        EpError, OutOfMemory: an EP failed to serialise.
    """
    config = options.config
    path = config["ep.context_file_path"] or default_path(model.path)
    if not path:
        raise OptionError(
            "ep.context_enable is '1', and the model was not loaded from a path; set "
            "ep.context_file_path"
        )
    if os.path.exists(path):
        raise Fail(
            f"ep.context_enable is '1', and the file {path!r} exists already; remove "
            "it, or set ep.context_file_path to another"
        )
    settings = ContextSettings(
        path,
        embed=config["ep.context_embed_mode"] == "1",
        prefix=config["ep.context_node_name_prefix"],
        initializers=config["ep.context_model_external_initializers_file_name"],
        share=config["ep.share_ep_contexts"] == "1",
        stop_sharing=config["ep.stop_share_ep_contexts"] == "1",
        if_none="nothing",
    )
    written = write_compiled(built, model, settings)
    if not written.nodes:
        reasons = "; ".join(
            dict.fromkeys(
                f"{left.ep}: {left.reason.detail}"
                for left in built.explanation.not_written
            )
        )
        warn_user(
            f"no EP of the session serialised what it compiled, and {path!r} was not "
            f"written ({reasons or 'nothing was compiled'})"
        )


def default_path(model: str | None) -> str:
    """The path of a compiled model as ONNX Runtime derives it; empty from memory."""
    if model is None:
        return ""
    return f"{model.removesuffix('.onnx')}_ctx.onnx"
