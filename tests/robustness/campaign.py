"""Tries many damaged models, feeds and operators, and prints what went wrong, as JSON.

    python -m tests.robustness.campaign [KIND …] [--cases 1000] [--from 0]
        [--seconds 600] [--engines compiled,arrays] [--repeat 0] [--only-structures]

Kinds are those of :mod:`.cases`.  Engines are also ``guarded-end`` and
``guarded-start``, compiled programs in memory with guard pages behind or before each
buffer, and ``onnxruntime`` and ``reference``, with whose results others are compared.
Each case runs in a process that may die of it.  Findings of one cause are counted
together, as far as the place of an error tells.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from .cases import KINDS, random_case
from .children import Case, Child
from .findings import Findings, try_case
from .seeds import Seed, node_seeds
from .structures import structures


def numbered(
    kinds: Sequence[str], first: int, count: int, seeds: Sequence[Seed]
) -> Iterator[Case]:
    """Cases of the kinds in turn."""
    for number in range(first, first + count):
        for kind in kinds:
            case = random_case(kind, number, seeds)
            yield case._replace(name=f"{kind} {number}: {case.name}")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", choices=[[], *KINDS])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--engines", default="compiled,arrays")
    parser.add_argument("--repeat", type=int, default=0)
    parser.add_argument("--only-structures", action="store_true")
    arguments = parser.parse_args()
    kinds = arguments.kinds or list(KINDS)
    seeds = structures()
    if not arguments.only_structures and set(kinds) != {"operators"}:
        seeds += node_seeds()
    findings = Findings()
    stop = time.monotonic() + arguments.seconds
    tried: Counter[str] = Counter()
    with Child() as child:
        for case in numbered(kinds, arguments.first, arguments.cases, seeds):
            if time.monotonic() > stop:
                break
            case = case._replace(repeat=arguments.repeat)
            tried[case.name.split()[0]] += 1
            try_case(case, arguments.engines.split(","), child, findings)
    report = {
        "cases": tried,
        "outcomes": dict(sorted(findings.counts.items())),
        "findings": dict(sorted(findings.found.items())),
    }
    print(json.dumps(report, indent=1, ensure_ascii=False, default=str))


if __name__ == "__main__":
    main()
