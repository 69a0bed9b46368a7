"""Measures which nodes OpenVINO's CPU plugin computes as ONNX defines them.

    python tools/measure_operators.py run --results FILE [OP …]
    python tools/measure_operators.py table --results FILE

``run`` tries each variation of each node case, and appends a line of JSON for each;
operators already in the file are skipped.  ``table`` writes the allow-list,
``onnxplug_openvino/operators.json``, from them, and prints the failures that the
list would let through: there must be none.

What is expected comes from the suite, or else from onnxplug's CPU EP.  A process runs
one operator, since OpenVINO may end it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from variations import Variation, suite_cases, variations

SECONDS_PER_OPERATOR = 300
_MEMORY = 4 * 2**30


def run_operator(
    name: str, cases: Sequence[Variation], results: Path, skip: int, kind: str
) -> None:
    """Append a line for every variation of *name*'s cases after the first *skip*."""
    from onnxplug_openvino.engine import import_openvino

    openvino = import_openvino()
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    core = openvino.Core()
    number = 0
    with results.open("a", encoding="utf-8") as file:
        for position, case in enumerate(cases):
            for tried in variations(case, position):
                number += 1
                if number <= skip or not tried.kind.startswith(kind):
                    continue
                line = describe(tried) | {"number": number}
                # found without a result after it where OpenVINO ends the process
                file.write(json.dumps(line | {"started": number}) + "\n")
                file.flush()
                try:
                    line |= try_out(core, tried)
                except Exception as error:  # noqa: BLE001 (whatever a trial raises)
                    text = str(error).strip().splitlines()
                    line |= {"result": "harness", "detail": " ".join(text)[:300]}
                file.write(json.dumps(line) + "\n")
        file.write(json.dumps({"op": name, "finished": number}) + "\n")


def describe(tried: Variation) -> dict[str, Any]:
    """The facts of a trial that the allow-list may look at."""
    import onnx

    attributes = {}
    for attribute in tried.node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode()
        if not isinstance(value, int | float | str):
            value = None  # that it is there is all that is looked at
        attributes[attribute.name] = value
    return {
        "op": tried.node.op_type,
        "case": tried.case,
        "kind": tried.kind,
        "since": tried.since,
        "types": [a.dtype.name if a is not None else None for a in tried.inputs],
        "shapes": [list(a.shape) if a is not None else None for a in tried.inputs],
        "outputs": [bool(name) for name in tried.node.output],
        "attributes": attributes,
        "constants": sorted(tried.constants),
        "dynamic": tried.dynamic,
        "sized": tried.sized,
    }


def try_out(core: Any, tried: Variation) -> dict[str, Any]:
    """How OpenVINO's answer compares."""
    model = tried.model()
    expected = tried.expected
    if expected is None:
        try:
            expected = cpu_answer(model, tried)
        except Exception as error:  # noqa: BLE001 (not a variation ONNX allows)
            return {"result": "no answer", "detail": str(error)[:200]}
    try:
        compiled = core.compile_model(
            core.read_model(model.SerializeToString()),
            "CPU",
            {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1},
        )
    except RuntimeError as error:
        return {"result": "refused", "detail": str(error).strip()[-200:]}
    try:
        found = answer(compiled, tried)
    except Exception as error:  # noqa: BLE001 (whatever running raises)
        return {"result": "raised", "detail": str(error).strip()[-200:]}
    return compare(expected, found, tried)


def cpu_answer(model: Any, tried: Variation) -> tuple[Any, ...]:
    """What onnxplug's CPU EP gives."""
    import onnxplug

    session = onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(session.run(None, tried.feeds()))


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


def compare(
    expected: Sequence[Any], found: Sequence[Any], tried: Variation
) -> dict[str, Any]:
    """Dtype, shape and values, in this order."""
    if len(expected) != len(found):
        return {"result": "wrong count", "detail": f"{len(found)} outputs"}
    rtol, atol = tried.tolerance
    for position, (right, ours) in enumerate(zip(expected, found, strict=True)):
        if right.dtype != ours.dtype:
            detail = f"output {position} is {ours.dtype}, not {right.dtype}"
            return {"result": "wrong dtype", "detail": detail}
        if right.shape != ours.shape:
            detail = f"output {position} is {ours.shape}, not {right.shape}"
            return {"result": "wrong shape", "detail": detail}
        coarse = {"float16": (1e-2, 2e-3), "bfloat16": (3e-2, 1e-2)}
        near = coarse.get(right.dtype.name, (rtol, atol))
        kinds = {a.dtype.name for a in tried.inputs if a is not None}
        for name in kinds & coarse.keys():
            near = max(near, coarse[name])
        if right.dtype.kind in "biu":
            good = np.array_equal(right, ours)
        else:
            wide = [a.astype(np.float64) for a in (ours, right)]
            good = np.allclose(*wide, rtol=near[0], atol=near[1], equal_nan=True)
        if not good:
            wide = [np.asarray(a, np.float64) for a in (ours, right)]
            with np.errstate(all="ignore"):
                error = np.abs(wide[0] - wide[1])
            worst = float(np.nanmax(error)) if error.size else 0.0
            detail = f"output {position} is off by {worst:.3g}"
            return {"result": "wrong values", "detail": detail}
    return {"result": "right"}


def run(results: Path, names: Sequence[str], kind: str) -> None:
    """Measure the operators that *results* does not hold yet, a process for each."""
    finished = set()
    if results.exists():
        for text in results.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if "finished" in line:
                finished.add(line["op"])
    cases = suite_cases()  # which takes ten seconds: the processes inherit them
    context = multiprocessing.get_context("fork")
    for name in names or list(cases):
        skip = 0
        ended: set[int] = set()  # trials at which a process ended
        while name not in finished:
            arguments = (name, cases[name], results, skip, kind)
            process = context.Process(target=run_operator, args=arguments)
            process.start()
            process.join(SECONDS_PER_OPERATOR)
            how = f"process ended with {process.exitcode}"
            if process.is_alive():
                process.kill()
                process.join()
                how = "took too long"
            last = json.loads(results.read_text(encoding="utf-8").splitlines()[-1])
            if "started" in last and how != "took too long":
                print(name, how, last, flush=True)
                if last["started"] in ended:
                    skip = last["started"]
                else:
                    # the trial before may have spoilt the memory: again without it
                    ended.add(last["started"])
                    skip = last["started"] - 1
                    blame(results, name, skip)
                continue
            finished.add(name)
            if "finished" not in last:
                print(name, how, last, flush=True)
                with results.open("a", encoding="utf-8") as file:
                    line = {"op": name, "finished": 0, "how": how}
                    file.write(json.dumps(line) + "\n")


def blame(results: Path, name: str, number: int) -> None:
    """Record that the process ended after trial *number*, if it seemed right."""
    for text in results.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if (line["op"], line.get("number")) == (name, number) and (
            line.get("result") == "right"
        ):
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line | {"result": "crashed"}) + "\n")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--kind", default="", help="try only this kind of variation")
    parser.add_argument("operators", nargs="*")
    arguments = parser.parse_intermixed_args()
    if arguments.command == "run":
        run(arguments.results, arguments.operators, arguments.kind)
    else:
        from build_table import write_table

        write_table(arguments.results)


if __name__ == "__main__":
    main()
