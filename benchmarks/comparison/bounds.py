"""What bounds a model's time: its arithmetic, and what it must read and write."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx
from onnx import helper, shape_inference

from .arithmetic import products

PEAKS = Path(__file__).with_name("peaks.py")
PROCESSES = 5


class Work(NamedTuple):
    """What a run of a model takes at least.

    Attributes:
        flops: floating-point operations of convolutions, matrix products and those of
            recurrent layers, a multiplication and an addition as two.
        nbytes: bytes of weights, inputs and outputs; of a weight that rows are only
            gathered from, those of the rows.
    """

    flops: int
    nbytes: int


def work(model: onnx.ModelProto) -> Work:
    """The work of *model*, all of whose shapes follow from the file.

    Products of unknown sizes are not counted, nor are those within loops, branches and
    functions.
    """
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    values = [
        value
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.HasField("tensor_type")
    ]
    for value in values:
        tensor = value.type.tensor_type
        shapes[value.name] = tuple(size.dim_value for size in tensor.shape.dim)
    nbytes = sum(
        _nbytes(value.type.tensor_type.elem_type, shapes[value.name])
        for value in (*graph.input, *graph.output)
        if value.type.HasField("tensor_type")
    )
    for weight in graph.initializer:
        readers = [node for node in graph.node if weight.name in node.input]
        if all(n.op_type == "Gather" and n.input[0] == weight.name for n in readers):
            gathered = [shapes[node.output[0]] for node in readers]
        else:
            gathered = [tuple(weight.dims)]
        nbytes += sum(_nbytes(weight.data_type, shape) for shape in gathered)
    return Work(sum(products(node, shapes) for node in graph.node), nbytes)


def _nbytes(data_type: int, shape: Sequence[int]) -> int:
    itemsize = helper.tensor_dtype_to_np_dtype(data_type).itemsize
    return math.prod(shape) * int(itemsize)


def measured_peaks(cores: Sequence[int]) -> dict[str, Any]:
    """10⁹ float32 operations and 10⁹ bytes a second, by onnxplug's profiler.

    The first on registers alone, by instructions that multiply and add; the second
    read from memory; by as many threads as *cores*.  The best of some processes, as
    whatever else the machine does only lessens them.
    """
    command = [sys.executable, str(PEAKS), ",".join(map(str, cores))]
    best: dict[str, Any] = {}
    for _ in range(PROCESSES):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        for name, rate in json.loads(done.stdout).items():
            best[name] = max(rate, best.get(name, 0.0))
    return best
