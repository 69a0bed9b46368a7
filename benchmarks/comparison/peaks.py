"""Prints what the processor can do at most, as onnxplug's profiler measures it.

python benchmarks/comparison/peaks.py CORES
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

MEASURED = "measure what this machine can do"  # the event's name


def main(arguments: Sequence[str]) -> None:
    """Run a small model with profiling, and print the rates of its trace."""
    import onnxplug

    cores = [int(core) for core in arguments[0].split(",")]
    os.sched_setaffinity(0, cores)
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4096])
        for name in "xy"
    )
    graph = helper.make_graph([helper.make_node("Exp", "x", "y")], "exp", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    with tempfile.TemporaryDirectory() as folder:
        options = onnxplug.SessionOptions()
        options.intra_op_num_threads = len(cores)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "trace")
        session = onnxplug.InferenceSession(model, options)
        session.run(None, {"x": np.zeros(4096, np.float32)})
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    (rates,) = (event["args"] for event in events if event["name"] == MEASURED)
    print(json.dumps({name: float(rates[name]) for name in ("GFLOP/s", "GB/s")}))


if __name__ == "__main__":
    main(sys.argv[1:])
