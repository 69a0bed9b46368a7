"""Loads a session's model, as its options change it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.authoring.arrays import as_texts
from onnxplug.entries import EXTERNAL_FOLDER, RELEASED_ONLY
from onnxplug.ep import DataType
from onnxplug.errors import InvalidModel, OptionError, OutOfMemory, UnknownOutput
from onnxplug.graph import Graph, Model, Weight
from onnxplug.graph.load import load_model
from onnxplug.graph.scopes import all_graphs
from onnxplug.operators import EP_CONTEXT, is_ep_context
from onnxplug.options import SessionOptions

if TYPE_CHECKING:
    import numpy as np

    from onnxplug.authoring.files import Identity
    from onnxplug.compile.ep_context.contexts import Contexts


def load(
    source: str | memoryview,
    options: SessionOptions,
    extra_outputs: Sequence[str],
    files: Mapping[str, Identity] | None = None,
) -> tuple[Model, Contexts | None]:
    """The model of a session, with replaced initializers, sizes for dimensions that it
    only names, and more outputs; and what is compiled in it already, if anything is.

    Args:
        extra_outputs: names of values that become outputs after the model's own.
        files: those of the model when it was loaded before.

    Raises:
        ModelError: it cannot be loaded, or is not in these files any more.
        OptionError: an initializer that was to be replaced, or a dimension that was to
            be fixed, does not exist or differs, or the prepared model would be written
            over the model.
        UnknownOutput: there is no value of a name in *extra_outputs*.
        LoadCancelled: *options* say so.
        OutOfMemory: there is not enough memory for it.
    """
    options.check_load()
    folder = options.config[EXTERNAL_FOLDER]
    try:
        model = load_model(
            source,
            external_data_folder=folder or None,
            external_files=options.external_files,
            external_arrays=options.initializers,
            mapped=options.config["session.use_memory_mapped_model"] == "1",
            released_only=options.config[RELEASED_ONLY] == "1",
        )
    except MemoryError as error:
        raise OutOfMemory.of(error, "loading the model") from error
    if options.denoted_dimensions:
        from onnxplug.prepare.denotations import fix_denoted_dimensions

        fix_denoted_dimensions(model.graph, source, options.denoted_dimensions)
    if options.free_dimensions:
        from onnxplug.prepare.infer import fix_free_dimensions

        fix_free_dimensions(model.graph, options.free_dimensions)
    contexts = None
    if _has_contexts(model):
        # which few models have
        from onnxplug.compile.ep_context.contexts import find_contexts

        contexts = find_contexts(model, options.ep_context_reader)
    options.check_load()
    if files is not None:
        _require_same(model, files)
    for setting, path in (
        ("optimized_model_filepath", options.optimized_model_filepath),
        ("ep.context_file_path", options.config["ep.context_file_path"]),
    ):
        keep_apart(model, setting, path)
    for name, array in options.initializers.items():
        _replace_initializer(model.graph, name, array)
    _add_outputs(model.graph, extra_outputs)
    return model, contexts


def _has_contexts(model: Model) -> bool:
    graphs = [model.graph, *(each.body for each in model.functions.values())]
    return any(
        is_ep_context(node)
        for root in graphs
        if EP_CONTEXT[0] in root.opset_imports
        for graph in all_graphs(root)
        for node in graph.nodes
    )


def _require_same(model: Model, before: Mapping[str, Identity]) -> None:
    changed = [path for path in model.files if before.get(path) != model.files[path]]
    if changed or len(before) != len(model.files):
        names = ", ".join(map(repr, changed)) or "the model"
        raise InvalidModel(
            f"{names} is not as it was when the session was created, and one session "
            "cannot be of two models; create another session"
        )


def keep_apart(model: Model, setting: str, written: str) -> None:
    """Refuse to write over a file of the model, which may be mapped."""
    with contextlib.suppress(OSError):  # it is not there yet
        status = os.stat(written)
        for path, identity in model.files.items():
            if identity[:2] == (status.st_dev, status.st_ino):
                raise OptionError(
                    f"{setting} is {written!r}, and the model is in "
                    f"{path!r}, the same file; choose another"
                )


def _replace_initializer(graph: Graph, name: str, array: np.ndarray[Any, Any]) -> None:
    table = graph.constants if name in graph.constants else graph.defaults
    known = table.get(name)
    if known is None:
        raise OptionError(
            f"the model has no initializer {name!r} to replace; it has "
            f"{[*graph.constants, *graph.defaults][:10] or 'none'}"
        )
    try:
        is_text = DataType.from_numpy(array.dtype) is DataType.STRING
        weight = Weight.from_array(as_texts(array) if is_text else array.view())
    except TypeError as error:
        raise OptionError(
            f"initializer {name!r} is given as an array that is no tensor: {error}"
        ) from error
    if (weight.dtype, weight.shape) != (known.dtype, known.shape):
        raise OptionError(
            f"initializer {name!r} is given as {weight}; the model's is {known}.  "
            "Replacement tensor's dimensions do not match."
        )
    table[name] = weight


def _add_outputs(graph: Graph, names: Sequence[str]) -> None:
    if not names:
        return
    made = {name for node in graph.nodes for name in node.outputs if name}
    made |= {*graph.inputs, *graph.defaults, *graph.constants}
    for name in names:
        if name not in made:
            raise UnknownOutput(
                f"Invalid output name: {name!r}; the model's outputs are "
                f"{graph.outputs}, and no other value of its graph has that name"
            )
    graph.outputs += [name for name in names if name not in graph.outputs]
