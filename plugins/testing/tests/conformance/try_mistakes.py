"""Lets the conformance kit look for the planted mistakes, and notes what it finds.

    python plugins/testing/tests/conformance/try_mistakes.py [NAME …]

examines one EP after the other, all of them or those of the mistakes that are named,
and writes ``planted/outcomes.json`` and the tables of ``planted-mistakes.md``.  Each
check of the mistake's group has the time that it has where all are carried out, and
the first that tells of the mistake ends it; where none does, the others are asked, of
which one counts that quotes the sentence that is broken.  It takes up to two minutes
for each, and five for what is not found.

    python plugins/testing/tests/conformance/try_mistakes.py --one NAME

prints the outcome of one mistake as JSON.
"""

from __future__ import annotations

import importlib
import itertools
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
OUTCOMES: Final = HERE / "planted" / "outcomes.json"
PAGE: Final = HERE.parents[3] / "docs" / "explanation" / "planted-mistakes.md"
BEGIN, END = "<!-- outcomes {} -->", "<!-- end of outcomes {} -->"

Outcome = dict[str, str]
"""``by``: the check that found it, empty if none did; ``says``: what that said of it,
or, where ``by`` is empty, of anything else."""


def mistakes() -> Mapping[str, Any]:
    """All planted mistakes, by name."""
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    planted = importlib.import_module("planted.mistake")
    for module in itertools.chain.from_iterable(planted.SETS):
        importlib.import_module(f"planted.{module}")
    found: Mapping[str, Any] = planted.MISTAKES
    return found


def outcome_of(name: str) -> Outcome:
    """What the kit finds of a mistake, in this process, which has started no EP."""
    import onnxplug
    from onnxplug_testing.conformance import (
        Settings,
        all_checks,
        carry_out,
        examine,
        find_subject,
    )
    from onnxplug_testing.conformance.subject import BrokenDevices

    mistake = mistakes()[name]
    factory = mistake.factory()
    onnxplug.register_ep_library("planted", factory)
    group, settings = mistake.group.lower(), Settings()
    try:
        subject = find_subject(factory.name, "", None)
    except BrokenDevices:  # of which a report tells all the same
        report = examine(factory.name, only=[group], settings=settings)
        return _first(report.findings, mistake)
    every = all_checks()
    shares = sum(each.share for each in every)
    other = ""
    for check in sorted(every, key=lambda each: each.group != group):
        seconds = settings.seconds * check.share / shares
        findings = carry_out(check, subject, settings, seconds).findings
        if check.group != group:
            findings = [each for each in findings if quotes(each, mistake.breaks)]
        outcome = _first(findings, mistake)
        if outcome["by"]:
            return outcome
        other = other or outcome["says"]
    return {"by": "", "says": other}


def _first(findings: Sequence[Any], mistake: Any) -> Outcome:
    """What comes of *findings*, of which the first counts that tells of *mistake*."""
    other = ""
    for finding in findings:
        by = f"{finding.group}/{finding.check}"
        says = " ".join(f"{finding.node} {finding.what}".split())
        if blames(finding, mistake.blames):
            return {"by": by, "says": says}
        other = other or f"{by}: {says}"
    return {"by": "", "says": other}


def blames(finding: Any, words: Sequence[str]) -> bool:
    """Whether a finding names one of *words*, in whatever it says."""
    said = (
        finding.group,
        finding.check,
        finding.sentence.of,
        finding.sentence.says,
        finding.node,
        finding.what,
    )
    text = " ".join(said).lower()
    return any(word.lower() in text for word in words)


def quotes(finding: Any, sentence: str) -> bool:
    """Whether what a finding quotes of the contract is *sentence*, or in it."""
    quoted, broken = (
        " ".join(each.split()) for each in (finding.sentence.says, sentence)
    )
    return quoted in broken


def tried_apart(name: str) -> Outcome:
    """What the kit finds of a mistake, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", name],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    outcome: Outcome = json.loads(done.stdout.splitlines()[-1])
    return outcome


def table(outcomes: Mapping[str, Outcome], number: int) -> str:
    """The rows of one of the page's tables, and what they add up to."""
    rows = [
        "| mistake | EP | group | what a finding has to say | found by |",
        "| --- | --- | --- | --- | --- |",
    ]
    of_set = {name: each for name, each in mistakes().items() if each.set == number}
    for name, mistake in of_set.items():
        style = "device" if mistake.is_of_the_device else "compile"
        by = f"`{outcomes[name]['by']}`" if outcomes[name]["by"] else "**nothing**"
        finding = mistake.finding.replace("|", "\\|")
        rows.append(f"| `{name}` | {style} | {mistake.group} | {finding} | {by} |")
    found = sum(bool(outcomes[name]["by"]) for name in of_set)
    return f"{found} of {len(of_set)} are found.\n\n" + "\n".join(rows)


def page_with(outcomes: Mapping[str, Outcome]) -> str:
    """The page, as it has to be for these outcomes."""
    text = PAGE.read_text("utf-8")
    for number in sorted({mistake.set for mistake in mistakes().values()}):
        begin, end = BEGIN.format(number), END.format(number)
        before, after = text.split(begin)[0], text.split(end)[1]
        text = f"{before}{begin}\n\n{table(outcomes, number)}\n\n{end}{after}"
    return text


def main(names: Sequence[str]) -> None:
    """Try the mistakes, and write down what was found."""
    outcomes = json.loads(OUTCOMES.read_text("utf-8")) if OUTCOMES.exists() else {}
    for name in names or mistakes():
        outcomes[name] = tried_apart(name)
        print(name, outcomes[name])
    ordered = {name: outcomes[name] for name in mistakes() if name in outcomes}
    OUTCOMES.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    if ordered.keys() == mistakes().keys():
        PAGE.write_text(page_with(ordered), "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(outcome_of(sys.argv[2])))
    else:
        main(sys.argv[1:])
