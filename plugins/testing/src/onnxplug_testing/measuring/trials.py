"""Tries nodes in an engine, and appends a line of JSON for each to a file.

What is expected comes from the suite, or else from onnxplug's CPU EP.  A process tries
one operator, since an engine may end it.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import resource
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug_testing.measuring.special_values import MASKED
from onnxplug_testing.measuring.variations import (
    Variation,
    suite_cases,
    variations,
)
from onnxplug_testing.measuring.whole_numbers import whole_numbers

SECONDS_PER_OPERATOR = 300
_MEMORY = 4 * 2**30

_SIGNALS: Final = frozenset({"DFT", "STFT"})
"""Operators that add up a whole signal: where that cancels, a result is as far off as
the greatest ones are rounded."""

_NEAR_IN_64_BITS = 1e-10, 1e-10
"""Relative and absolute: what is computed in 32 bits and widened is farther off."""


class Untaken(Exception):
    """The EP does not take the node, and says why."""


Answer: TypeAlias = Callable[[Variation], Callable[[], Sequence[Any]]]
"""What runs a model of one node in the engine.  It raises :class:`Untaken` where the
node is not its to compute, which is found out before what is expected is computed;
other exceptions, its own and those of the run, count against the engine."""


def run_operator(
    start: Callable[[], Answer],
    name: str,
    cases: Sequence[Variation],
    results: Path,
    skip: int,
    kind: str,
    int64_bits: int,
) -> None:
    """Append a line for every variation of *name*'s cases after the first *skip*."""
    answer = start()
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    number = 0
    with results.open("a", encoding="utf-8") as file:
        for position, case in enumerate(cases):
            whole = whole_numbers(case, position, int64_bits=int64_bits)
            for tried in itertools.chain(variations(case, position), whole):
                number += 1
                if number <= skip or not tried.kind.startswith(kind):
                    continue
                line = describe(tried) | {"number": number}
                # found without a result after it where the engine ends the process
                file.write(json.dumps(line | {"started": number}) + "\n")
                file.flush()
                try:
                    line |= try_out(answer, tried, int64_bits)
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


def try_out(answer: Answer, tried: Variation, int64_bits: int = 64) -> dict[str, Any]:
    """How the engine's answer compares.

    Args:
        int64_bits: in how many bits the engine computes int64; if 32, whole numbers
            with results beyond them are not asked for.
    """
    failure: Exception | None = None
    try:
        run_it = answer(tried)
    except Untaken as error:
        return {"result": "refused", "detail": str(error).strip()[-200:]}
    except Exception as error:  # noqa: BLE001 (whatever compiling raises)
        failure = error
    expected = tried.expected
    if expected is None:
        try:
            expected = cpu_answer(tried)
        except Exception as error:  # noqa: BLE001 (not a variation ONNX allows)
            return {"result": "no answer", "detail": str(error)[:200]}
    if int64_bits == 32 and tried.kind.startswith("whole") and _is_beyond(expected):
        return {"result": "no answer", "detail": "the result is beyond 32 bits"}
    if failure is None:
        try:
            return compare(expected, run_it(), tried)
        except Exception as error:  # noqa: BLE001 (whatever running raises)
            failure = error
    return {"result": "raised", "detail": str(failure).strip()[-200:]}


def _is_beyond(results: Sequence[Any]) -> bool:
    """Whether 32 bits do not hold what is int64."""
    low, high = -(2**31), 2**31 - 1
    return any(
        array.size and (array.min() < low or array.max() > high)
        for array in results
        if array.dtype == np.int64
    )


def cpu_answer(tried: Variation) -> tuple[Any, ...]:
    """What onnxplug's CPU EP gives."""
    import onnxplug

    session = onnxplug.InferenceSession(
        tried.model(), providers=["CPUExecutionProvider"]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(session.run(None, tried.feeds()))


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
        if (
            right.dtype == np.float64
            and tried.kind == "dtype"
            and "float32" not in kinds
        ):
            near = _NEAR_IN_64_BITS
        if tried.node.op_type in _SIGNALS and right.dtype == np.float32 and right.size:
            rounding = float(np.finfo(np.float32).eps * np.abs(right).max())
            near = near[0], max(near[1], rounding)
        if right.dtype.kind in "biu":
            good = np.array_equal(right, ours)
        else:
            wide = [a.astype(np.float64) for a in (ours, right)]
            if tried.node.op_type in MASKED:
                wide[0][np.isnan(wide[1]) & (wide[0] == 0)] = np.nan
            good = np.allclose(
                wide[0], wide[1], rtol=near[0], atol=near[1], equal_nan=True
            )
        if not good:
            wide = [np.asarray(a, np.float64) for a in (ours, right)]
            with np.errstate(all="ignore"):
                error = np.abs(wide[0] - wide[1])
            worst = float(np.fmax.reduce(error, axis=None, initial=0.0))
            detail = f"output {position} is off by {worst:.3g}"
            return {"result": "wrong values", "detail": detail}
    return {"result": "right"}


def run(
    start: Callable[[], Answer],
    results: Path,
    names: Sequence[str],
    kind: str,
    *,
    int64_bits: int = 64,
) -> None:
    """Measure the operators that *results* does not hold yet, a process for each.

    Args:
        start: called in each process.
        names: of operators; empty for all.
        kind: of variations, or what theirs begin with; empty for all.
        int64_bits: in how many bits the engine computes int64.
    """
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
            arguments = (start, name, cases[name], results, skip, kind, int64_bits)
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
                    # it did so by itself: the trial before had no part in it
                    amend(results, name, skip - 1, "crashed", "right")
                else:
                    # the trial before may have spoilt the memory: again without it
                    ended.add(last["started"])
                    skip = last["started"] - 1
                    amend(results, name, skip, "right", "crashed")
                continue
            finished.add(name)
            if "finished" not in last:
                print(name, how, last, flush=True)
                with results.open("a", encoding="utf-8") as file:
                    line = {"op": name, "finished": 0, "how": how}
                    file.write(json.dumps(line) + "\n")


def amend(results: Path, name: str, number: int, before: str, after: str) -> None:
    """Record another result of trial *number*, if it is *before*: of the process that
    ended after it, or did not."""
    found: dict[str, Any] = {}
    for text in results.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if (line["op"], line.get("number")) == (name, number) and "result" in line:
            found = line
    if found.get("result") == before:
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found | {"result": after}) + "\n")
