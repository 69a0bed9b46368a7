"""Prepared models that ``SessionOptions.optimized_model_filepath`` asks for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onnxplug.compile.ep_context.files import write_whole
from onnxplug.compile.load import keep_apart
from onnxplug.errors import InvalidModel, OptionError
from onnxplug.graph.export import describe, export_graph
from onnxplug.graph.placing import WeightsFile, place

if TYPE_CHECKING:
    from onnxplug.graph import Graph, Model
    from onnxplug.options import SessionOptions

_FILE = "session.optimized_model_external_initializers_file_name"
_ABOVE = "session.optimized_model_external_initializers_min_size_in_bytes"


def write_prepared(graph: Graph, model: Model, options: SessionOptions) -> None:
    """Write *graph*, what was prepared of *model*, as a model of its own.

    It says of itself what *model* says, such as the metadata that programs read.
    Its initializers are in a file beside it if the options name one.

    Raises:
        InvalidModel: it is beyond protobuf's limit of 2 GiB.
        OptionError: the initializers' file would not be beside it, or is one of the
            model's own.
        Fail: a file cannot be written.
    """
    path, name = options.optimized_model_filepath, options.config[_FILE]
    file = WeightsFile(name)
    try:
        exported = export_graph(
            graph,
            weights="external" if name else "inline",
            inline_up_to=int(options.config[_ABOVE]) - 1,
            ir_version=model.ir_version,
            recomputes=True,
        )
        describe(exported.model, model)
        if name:
            beside = os.path.join(os.path.dirname(path), name)
            if os.path.basename(name) != name:
                raise OptionError(
                    f"{_FILE} is {name!r}; expected the name of a file, which will be "
                    "beside the model"
                )
            keep_apart(model, _FILE, beside)
            place(exported.model.graph, exported.weights, file.add)
        data = exported.model.SerializeToString()
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        raise InvalidModel(
            f"the prepared model cannot be written to {path!r}: {error}; name a file "
            f"for its initializers by {_FILE}"
        ) from error
    if name:
        write_whole(beside, file.parts)
    write_whole(path, [data])
