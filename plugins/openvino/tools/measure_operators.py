"""Measures which nodes OpenVINO's CPU plugin computes as ONNX defines them.

    python tools/measure_operators.py run --results FILE [OP …]
    python tools/measure_operators.py table --results FILE
    python tools/measure_operators.py run --kind whole --results MORE
    python tools/measure_operators.py narrow --results MORE

``run`` tries each variation of each node case, and appends a line of JSON for each;
operators already in the file are skipped.  ``table`` writes the allow-list,
``onnxplug_openvino/operators.json``, from them, and prints the failures that the
list would let through: there must be none.  ``narrow`` takes from the list what trials
of one kind, made later, show to be wrong.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

import onnxplug_openvino
from onnxplug_openvino.engine import import_openvino
from onnxplug_testing.measuring.learning import narrow_table, write_table
from onnxplug_testing.measuring.subjects import openvino_subject
from onnxplug_testing.measuring.trials import Answer, Untaken, run
from onnxplug_testing.measuring.variations import Variation

TABLE: Final = Path(onnxplug_openvino.__file__).with_name("operators.json")


def start() -> Answer:
    """OpenVINO as what is asked."""
    core = import_openvino().Core()

    def answer_one(tried: Variation) -> Callable[[], tuple[Any, ...]]:
        try:
            compiled = core.compile_model(
                core.read_model(tried.model().SerializeToString()),
                "CPU",
                {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1},
            )
        except RuntimeError as error:
            raise Untaken(str(error)) from error
        return functools.partial(answer, compiled, tried)

    return answer_one


def answer(compiled: Any, tried: Variation) -> tuple[Any, ...]:
    """What OpenVINO gives."""
    import openvino

    request = compiled.create_infer_request()
    held = []  # tensors of a given type do not hold their arrays
    # by position: an input that is handed through has the name of its output
    pairs = zip(compiled.inputs, tried.feeds().values(), strict=True)
    for position, (port, array) in enumerate(pairs):
        array = np.ascontiguousarray(array).reshape(array.shape)
        kind = port.get_element_type()
        raw = array.view(np.uint16) if array.dtype.name == "bfloat16" else array.copy()
        held.append(raw)
        request.set_input_tensor(
            position, openvino.Tensor(raw, list(array.shape), kind)
        )
    request.infer()
    outputs = []
    for position, port in enumerate(compiled.outputs):
        tensor = request.get_output_tensor(position)
        data = np.array(tensor.data)
        if port.get_element_type() == openvino.Type.bf16:
            import ml_dtypes

            data = data.view(ml_dtypes.bfloat16)
        outputs.append(data)
    return tuple(outputs)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "table", "narrow"])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--kind", default="", help="try only this kind of variation")
    parser.add_argument("operators", nargs="*")
    arguments = parser.parse_intermixed_args()
    subject = openvino_subject({"openvino": import_openvino().__version__})
    if arguments.command == "run":
        run(
            start,
            arguments.results,
            arguments.operators,
            arguments.kind,
            int64_bits=subject.int64_bits,
        )
    elif arguments.command == "table":
        write_table(arguments.results, subject, TABLE)
    else:
        narrow_table(arguments.results, subject, TABLE)


if __name__ == "__main__":
    main()
