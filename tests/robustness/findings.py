"""What went wrong, by kind and cause, with a program that does the same again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx

from .children import Case, Child, Outcome
from .oracles import DRAWS, disagreement

ORACLES: Final = ("onnxruntime", "reference")
"""Engines whose own failures are none of ours."""


class Findings:
    """What went wrong, by kind and cause."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.found: dict[str, dict[str, Any]] = {}

    def __str__(self) -> str:
        return "\n\n".join(
            f"{key}, {entry['count']} times, as in {entry['case']}:\n{entry['text']}\n"
            f"{entry['model']}\n{entry['program']}"
            for key, entry in self.found.items()
        )

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
        if found.kind != "refused by one":
            findings.add(f"{pair}: {found.kind}", case.ops, pair, case, found.text)
        elif name not in ORACLES:  # which know and allow other operators and feeds
            findings.add(f"{pair}: {found.kind}", found.key, pair, case, found.text)
    return outcomes
