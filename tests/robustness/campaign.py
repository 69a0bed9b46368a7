"""Tries many damaged models, feeds and operators, and prints what went wrong, as JSON.

    python -m tests.robustness.campaign [KIND …] [--cases 1000] [--from 0]
        [--seconds 600] [--engines compiled,arrays] [--repeat 0] [--show]

Kinds are those of :mod:`.cases`.  Each case runs in a process that may die of it.
Findings of one cause are counted together, as far as the place of an error tells.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx

from .cases import KINDS, random_case
from .children import Case, Child, Outcome
from .oracles import DRAWS, disagreement
from .seeds import Seed, node_seeds
from .structures import structures

ORACLES = ("onnxruntime", "reference")
"""Engines whose own failures are none of ours."""


class Findings:
    """What went wrong, by kind and cause."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.found: dict[str, dict[str, Any]] = {}

    def add(self, kind: str, key: str, engine: str, case: Case, text: str) -> None:
        """Count a finding, and keep it if it is the first one of its cause."""
        entry = self.found.setdefault(
            f"{kind}: {key}",
            {"count": 0, "engine": engine, "case": case.name, "text": text},
        )
        entry["count"] += 1
        if "model" not in entry or len(case.model) < entry["size"]:
            entry.update(
                engine=engine,
                case=case.name,
                text=text,
                size=len(case.model),
                model=described(case),
                program=reproducer(case, engine),
            )


def described(case: Case) -> str:
    """The model as text, as far as it can be read."""
    try:
        text = onnx.printer.to_text(onnx.load_from_string(case.model))
    except Exception as error:  # noqa: BLE001 (it is broken on purpose)
        return f"the model is no protobuf message: {error}"
    return text if len(text) < 4000 else text[:4000] + " …"


def reproducer(case: Case, engine: str) -> str:
    """A program that does the same."""
    lines = [
        "import numpy as np, onnxplug",
        "from numpy import array, nan, inf",
        f"model = bytes.fromhex({case.model.hex()!r})",
        f"providers = [('CPUExecutionProvider', {{'compile': {engine != 'arrays'}}})]",
        "session = onnxplug.InferenceSession(model, providers=providers)",
    ]
    for feeds in case.runs:
        parts = [f"{name!r}: {_expression(value)}" for name, value in feeds.items()]
        lines.append(f"session.run(None, {{{', '.join(parts)}}})")
    return "\n".join(lines)


def _expression(value: Any) -> str:
    array, layout = value if isinstance(value, tuple) else (value, "")
    if not isinstance(array, np.ndarray):
        return repr(array)
    if array.dtype.kind in "OV" or array.dtype.isbuiltin != 1:
        text = f"np.array({array.tolist()!r}, {str(array.dtype)!r})"
    elif array.size > 100 and array.dtype.kind == "f":
        text = f"np.linspace(-1, 1, {array.size}).astype({array.dtype.name!r})"
        text += f".reshape({array.shape})"
    else:
        flat = array.reshape(-1).tolist()
        text = f"np.array({flat!r}, {array.dtype.str!r}).reshape({array.shape})"
    return f"{text} # {layout}" if layout else text


def try_case(
    case: Case, engines: Sequence[str], child: Child, findings: Findings
) -> dict[str, Outcome]:
    """Run a case on each engine, and add what is wrong."""
    outcomes: dict[str, Outcome] = {}
    for engine in engines:
        if engine in ORACLES and not any(
            "results" in run for o in outcomes.values() for run in o.runs
        ):
            continue
        outcome = outcomes[engine] = child.run(case, engine)
        findings.counts[f"{engine}: {outcome.kind}"] += 1
        if outcome.is_finding and engine not in ORACLES:
            findings.add(
                outcome.kind, f"{engine} {outcome.key}", engine, case, outcome.text
            )
    names = list(outcomes)
    for name in names[1:] if not DRAWS.search(case.ops) else ():
        found = disagreement(outcomes[names[0]], outcomes[name])
        if found is None:
            continue
        pair = f"{names[0]} and {name}"
        findings.counts[f"{pair}: {found.kind}"] += 1
        key = found.key if found.kind == "refused by one" else case.ops
        findings.add(f"{pair}: {found.kind}", key, pair, case, found.text)
    return outcomes


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
