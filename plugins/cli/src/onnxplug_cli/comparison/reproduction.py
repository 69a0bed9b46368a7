"""A part of a model as a model of its own, with what it was fed."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx.external_data_helper import (
    load_external_data_for_tensor,
    uses_external_data,
)

from onnxplug.errors import ModelError
from onnxplug_cli.comparison.steps import is_constant, used

MAX_BYTES: Final = 1 << 30
"""Of weights; a model of much more is more than protobuf writes."""


class NotReproducible(ValueError):
    """The part cannot be a model of its own; the text says why."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A model of a part of another, and its inputs.

    Attributes:
        model: an ``onnx.ModelProto``.
        inputs: by name: numpy arrays.
    """

    model: Any
    inputs: Mapping[str, Any]

    def save(self, folder: Path, command: str) -> None:
        """Write ``model.onnx``, ``inputs.npz``, and a ``README.md`` with *command*.

        Raises:
            OSError: it cannot be written.
        """
        from onnxplug_cli.npz import write_npz

        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(self.model, folder / "model.onnx", format="protobuf")
        write_npz(folder / "inputs.npz", self.inputs)
        text = f"In this folder, this compares both again:\n\n    {command}\n"
        (folder / "README.md").write_text(text, encoding="utf-8")


def reproduce(
    model: onnx.ModelProto,
    folder: Path | None,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    values: Mapping[str, Any],
) -> Reproduction:
    """*nodes* of *model* as a model of its own; constants stay constants.

    Args:
        folder: where the model's external data is; ``None`` if it has none.
        outputs: of what the nodes make.
        values: of *outputs*, and of what the nodes use and is not constant.

    Raises:
        NotReproducible: an input is no tensor, or the weights are too large or cannot
            be read.
    """
    made = {name for node in nodes for name in node.output}
    needed = sorted(set().union(*map(used, nodes)) - made)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    constants = {
        name: node
        for node in filter(is_constant, model.graph.node)
        for name in node.output
    }
    inputs: dict[str, Any] = {}
    weights: list[str] = []
    makers: list[onnx.NodeProto] = []
    sparse = [s for s in model.graph.sparse_initializer if s.values.name in needed]
    for name in needed:
        if name in values:
            inputs[name] = _array(name, values[name])
        elif name in tensors:
            weights.append(name)
        elif name in constants:
            makers.append(constants[name])
    if sum(_nbytes(tensors[name]) for name in weights) > MAX_BYTES:
        raise NotReproducible(f"its weights have more than {MAX_BYTES >> 30} GiB")
    graph = onnx.helper.make_graph(
        [*makers, *nodes],
        "part",
        [typed(name, array) for name, array in inputs.items()],
        [typed(name, _array(name, values[name])) for name in outputs],
        [_own(tensors[name], folder) for name in weights],
        sparse_initializer=sparse,
    )
    part = onnx.helper.make_model(
        graph,
        ir_version=model.ir_version,
        opset_imports=model.opset_import,
        functions=model.functions,
    )
    return Reproduction(part, inputs)


def _array(name: str, value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise NotReproducible(f"{name!r} is no tensor, and a file cannot hold it")
    return value


def typed(name: str, array: Any) -> onnx.ValueInfoProto:
    """A value that has the type and the shape of *array*."""
    kind = onnx.TensorProto.STRING
    if array.dtype.kind not in "OSUT":
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, array.shape)


def _nbytes(tensor: onnx.TensorProto) -> int:
    if tensor.data_type == onnx.TensorProto.STRING:
        return int(tensor.ByteSize())
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return int(math.prod(tensor.dims)) * int(dtype.itemsize)


def _own(tensor: onnx.TensorProto, folder: Path | None) -> onnx.TensorProto:
    """*tensor* with its data inside."""
    if not uses_external_data(tensor):
        return tensor
    own = onnx.TensorProto()
    own.CopyFrom(tensor)
    if folder is None:
        raise NotReproducible(f"the data of {tensor.name!r} is in another file")
    try:
        load_external_data_for_tensor(own, os.fspath(folder))
    except (OSError, ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise NotReproducible(f"{tensor.name!r} cannot be read: {error}") from error
    own.data_location = onnx.TensorProto.DEFAULT
    del own.external_data[:]
    return own


def read_model(model: Any) -> tuple[onnx.ModelProto, Path | None]:
    """*model* without its external data, and the folder of that.

    Args:
        model: a path, bytes, or a ``ModelProto``.

    Raises:
        ModelError: what is at the path is no model that the ``onnx`` package reads.
    """
    if isinstance(model, onnx.ModelProto):
        return model, None
    try:
        if isinstance(model, bytes):
            return onnx.load_model_from_string(model), None
        path = Path(model)
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise ModelError(f"the model cannot be searched: {error}") from error
    return proto, path.parent
