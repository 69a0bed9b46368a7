"""Runs mutants in a process of its own, which may crash, hang, or want all memory.

Prints a line before each mutant, and after it what came of it, so that the process
which started this one knows where it stopped.  Arguments: a seed, how many mutants of
a kind to take, and after how many operators of a sort to take no more.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from mutations import Case, mutants, suite

from onnxplug_kernels import find_kernel

SECONDS: Final = 20
BYTES: Final = 4 << 30


def chosen(seed: int, each: int, models: int) -> Iterator[Case]:
    """*each* mutants of every kind, of the first *models* models of each operator."""
    seen: Counter[tuple[str, int]] = Counter()
    for case in suite():
        seen[case.op_type, case.version] += 1
        if seen[case.op_type, case.version] > models:
            continue
        if find_kernel(case.domain, case.op_type, case.version) is None:
            continue
        rng = random.Random(zlib.crc32(case.name.encode()) ^ seed)
        kinds: dict[str, list[Case]] = {}
        for mutant in mutants(case, rng):
            kinds.setdefault(mutant.kind, []).append(mutant)
        for group in kinds.values():
            yield from rng.sample(group, min(each, len(group)))


def outcome(case: Case) -> str:
    """``ok``, ``refused``, or what is wrong with the result or the refusal."""
    kernel = find_kernel(case.domain, case.op_type, case.version)
    assert kernel is not None
    try:
        function = kernel.bind(
            np,
            case.attributes,
            output_count=len(case.outputs),
            inputs=[None if x is None else "x" for x in case.inputs],
        )
        results = function(*(frozen(x) for x in case.inputs))
    except MemoryError:
        return "no memory"
    except (ValueError, IndexError, TypeError, ArithmeticError, NotImplementedError):
        return "refused"
    for result in results if isinstance(results, tuple) else (results,):
        if result is not None and not isinstance(result, np.ndarray | list):
            return f"gave {type(result).__name__}"
    return "ok"


def frozen(x: Any) -> Any:
    """A copy of *x* that cannot be written to, of its own memory to its last byte."""
    if x is None:
        return None
    copy = x.copy()
    copy.flags.writeable = False
    return copy


def main(seed: int, each: int, models: int) -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except ImportError:  # Windows has no such limits
        pass
    warnings.simplefilter("ignore")
    for case in chosen(seed, each, models):
        print(json.dumps(str(case)), flush=True)
        if hasattr(signal, "alarm"):
            # its default action ends the process, also where no Python code runs
            signal.alarm(SECONDS)
        with np.errstate(all="ignore"):
            print(json.dumps(outcome(case)), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
