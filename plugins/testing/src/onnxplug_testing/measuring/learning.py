"""Learns an allow-list from the results of trials.

An operator's entry says what was seen right (versions, element types, attributes and
so on) and refuses combinations of features that hold for trials that went wrong and
for none that went right.  What no combination tells apart, the entry refuses whole.
"""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring import features as words
from onnxplug.authoring.allow_list import AllowList
from onnxplug.authoring.operators import having

_NOT_TRIED: Final = {"no answer", "harness"}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An engine, and what is known of it besides what is measured.

    Attributes:
        about: which engine of which version, as the table says it.
        refuses: it is asked first, and refuses by itself what it does not take: such
            trials tell nothing.
        lacks: element types that do not count, with the reason.
        left_out: operators that are not taken at all, with the reason.
        manual: combinations of features that are refused whatever was measured.
        everywhere: those that are refused so in every operator.
        int64_bits: in how many bits it computes int64; extremes are not tried.
        looks_at_indices: it fails where one is out of range.
        widens: it computes 16-bit types in 32 bits, and narrows at the end.
    """

    about: Mapping[str, str]
    refuses: bool = False
    lacks: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    manual: Mapping[str, Sequence[tuple[str, ...]]] = field(default_factory=dict)
    everywhere: Sequence[tuple[str, ...]] = ()
    int64_bits: int = 64
    looks_at_indices: bool = True
    widens: bool = False


_NOT_COUNTED: Final = {"test_clip_min_greater_than_max"}
"""Cases that older versions of their operator do not define."""

_PREFERENCE: Final = (
    "types", "attribute", "flattens", "negative", "dynamic", "unsized", "fed", "held",
    "since",
    "omits", "inputs", "outputs", "empty", "rank",
)  # fmt: skip

_ANY: Final = AllowList({}, "the engine")

Trial = tuple[frozenset[str], bool, dict[str, Any]]


def write_table(results: Path, subject: Subject, table: Path) -> None:
    """Write the allow-list to *table*; print what it leaves out."""
    import onnx

    by_operator = _by_operator(results, subject)
    operators = {}
    for name, trials in sorted(by_operator.items()):
        why = "random" if name in having("random") else subject.left_out.get(name)
        if why:
            print(f"{name}: left out, {why}")
            continue
        entry = learn(trials, subject)
        wrong = collections.Counter(t[2]["result"] for t in trials if not t[1])
        if entry is None:
            print(f"{name}: left out, {dict(wrong)} of {len(trials)}")
            continue
        operators[name] = entry
        let_through = [t for t in trials if not t[1] and allows(entry, t[0]) is None]
        lost = [t for t in trials if t[1] and allows(entry, t[0]) is not None]
        print(
            f"{name}: {len(trials)} trials, wrong {dict(wrong)}, "
            f"let through {len(let_through)}, right but refused {len(lost)}, "
            f"rules {entry.get('refused', [])}"
        )
    measured = {
        **subject.about,
        "onnx": onnx.__version__,
        "trials": sum(map(len, by_operator.values())),
    }
    _write(
        {
            "measured with": measured,
            "lacks": dict(subject.lacks),
            "int64 bits": subject.int64_bits,
            "looks at indices": subject.looks_at_indices,
            "operators": operators,
        },
        table,
    )


def narrow_table(results: Path, subject: Subject, table: Path) -> None:
    """Take from the allow-list *table* what trials of whole numbers, made later, show
    to be wrong, and element types that the engine is known to lack since; print it.

    Raises:
        ValueError: another engine, or another version, was measured for *table*.
    """
    known = json.loads(table.read_text(encoding="utf-8"))
    about = {name: known["measured with"].get(name) for name in subject.about}
    if about != dict(subject.about):
        raise ValueError(f"{table} is of {about}, and this is {dict(subject.about)}")
    by_operator = _by_operator(results, subject)
    known["lacks"] = dict(subject.lacks)
    for name, entry in sorted(known["operators"].items()):
        entry["types"] = [
            types for types in entry["types"] if not _lacking(types, subject)
        ]
        if "refused" in entry:
            rules = [
                rule
                for rule in entry["refused"]
                if not any(
                    word.startswith("types=") and _lacking(word[6:], subject)
                    for word in rule
                )
            ]
            entry["refused"] = rules
        trials = by_operator.get(name, [])
        for core in sorted(map(sorted, _cores_of_whole(trials, entry))):
            (types,) = (word for word in core if word.startswith("types="))
            if core == [types]:
                entry["types"].remove(types.removeprefix("types="))
            else:
                entry.setdefault("refused", []).append(core)
            print(f"{name}: {' and '.join(core)}")
        if not entry["types"]:
            del known["operators"][name]
    count = sum(map(len, by_operator.values()))
    known["measured with"]["trials of whole numbers"] = count
    _write(known, table)


def _lacking(types: str, subject: Subject) -> bool:
    return not subject.lacks.keys().isdisjoint(types.split(","))


def _by_operator(results: Path, subject: Subject) -> dict[str, list[Trial]]:
    """The trials that tell something."""
    found: dict[str, list[Trial]] = {}
    for line in read_results(results):
        if subject.refuses and line["result"] == "refused":
            continue
        good = line["result"] == "right"
        facts = frozenset(trial_features(line))
        found.setdefault(line["op"], []).append((facts, good, line))
    return found


def _write(content: Mapping[str, Any], table: Path) -> None:
    """A line for each operator, so that changes can be read."""
    lines = ["{"]
    for name, value in content.items():
        if name != "operators":
            lines.append(f"{json.dumps(name)}: {json.dumps(value)},")
    operators = content["operators"]
    lines.append('"operators": {')
    lines.append(
        ",\n".join(f"{json.dumps(n)}: {json.dumps(e)}" for n, e in operators.items())
    )
    lines += ["}", "}"]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(operators)} operators in {table}")


def read_results(results: Path) -> Iterable[dict[str, Any]]:
    """The trials; one that ended the process counts as ``crashed``.

    A trial made again is taken as it was the last time.
    """
    trials: dict[tuple[str, int], dict[str, Any]] = {}
    for text in results.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if "types" in line:
            key = line["op"], line["number"]
            trials[key] = {"result": "crashed", **line}
    for line in trials.values():
        odd = line["kind"] != "suite" and line["case"] in _NOT_COUNTED
        if line["result"] not in _NOT_TRIED and not odd and not _is_empty_by_run(line):
            yield line


def _is_empty_by_run(line: Mapping[str, Any]) -> bool:
    """Whether it failed on a tensor of which the model does not tell that it is empty.

    Nothing in a model tells such nodes from others: a rule would refuse every node of
    dynamic shape.  One that ends the process counts all the same.
    """
    return (
        line["dynamic"]
        and line["result"] not in ("right", "crashed")
        and any(
            shape is not None and 0 in shape and position not in line["constants"]
            for position, shape in enumerate(line["shapes"])
        )
    )


def trial_features(line: Mapping[str, Any]) -> Iterable[str]:
    """The words for a trial, as they are for a model's node."""
    constants = frozenset(line["constants"])
    shapes = []
    for position, shape in enumerate(line["shapes"]):
        is_list = (
            position > 0
            and shape is not None
            and len(shape) == 1
            and line["types"][position] == "int64"
        )
        fixed = not line["dynamic"] or (line.get("sized") and is_list)
        symbolic = shape is not None and not fixed and position not in constants
        shapes.append([None] * len(shape) if symbolic else shape)
    return words.features(
        operator=line["op"],
        since=line["since"],
        types=line["types"],
        shapes=shapes,
        outputs=line["outputs"],
        attributes=line["attributes"],
        defaults=defaults(line["op"], line["since"]),
        constants=constants,
    )


def defaults(name: str, since: int) -> dict[str, Any]:
    """ONNX's defaults of the attributes that choose."""
    import onnx

    found = {}
    schema = onnx.defs.get_schema(name, since, "")
    for attribute in schema.attributes.values():
        value = onnx.helper.get_attribute_value(attribute.default_value)
        if isinstance(value, bytes):
            value = value.decode()
        if value is not None and words.chooses(attribute.name, value):
            found[attribute.name] = value
    return found


def learn(trials: list[Trial], subject: Subject) -> dict[str, Any] | None:
    """An operator's entry; ``None`` when nothing of it can be trusted."""
    never_made = {ep.DataType(each).onnx for each in subject.lacks}
    trials = [
        trial
        for trial in trials
        if not subject.lacks.keys() & {dtype for dtype in trial[2]["types"] if dtype}
        and trial[2]["attributes"].get("to") not in never_made
    ]
    if subject.widens:
        trials += [twin for trial in trials for twin in _narrower(trial)]
    cores = _cores_of_whole(trials)
    good = [facts for facts, right, _ in trials if right]
    good = [facts for facts in good if not any(facts >= core for core in cores)]
    if not good:
        return None
    bad = {facts for facts, right, _ in trials if not right}
    rules = [*subject.everywhere, *subject.manual.get(trials[0][2]["op"], ())]
    while True:
        entry = _entry(good, rules, trials)
        left = [facts for facts in bad if allows(entry, facts) is None]
        if not left:
            break
        rule = _best_rule(left, good)
        if rule is None:
            # no features tell these from right answers: give those up as well
            cores.update(_core(trial, trials) for trial in trials if trial[0] in left)
            before = len(good)
            good = [facts for facts in good if not any(facts >= core for core in cores)]
            if not good or len(good) == before:
                return None
            continue
        rules.append(rule)
    return entry


def _narrower(trial: Trial) -> Iterable[Trial]:
    """A float32 *trial* that NaN or infinity made wrong, in the 16-bit types.

    Those are computed in 32 bits and narrowed at the end, where the lowest number of 32
    bits becomes infinity: right alone, and wrong with another node behind it.
    """
    facts, right, line = trial
    by_values = line["kind"] == "special" and line["result"] == "wrong values"
    if right or not by_values or "float32" not in line["types"]:
        return
    for dtype in ("float16", "bfloat16"):
        types = [dtype if name == "float32" else name for name in line["types"]]
        words_now = {word for word in facts if not word.startswith("types=")}
        words_now.add(f"types={words.type_signature(types)}")
        yield frozenset(words_now), False, {**line, "types": types}


_SAME_VALUES: Final = {"suite": 0, "dynamic": 0, "constant": 0, "special": 1}
"""Kinds of trials that feed what others of the same case do, in another way."""


def _core(wrong: Trial, trials: Iterable[Trial]) -> frozenset[str]:
    """What refuses a *wrong* trial and its like, whatever the ranks and versions.

    That an input is fed and not constant belongs to it only if the case was right with
    constants, and with the same values where it is values that were wrong.
    """
    facts, _, line = wrong
    core = {w for w in facts if w.startswith(("types=", "attribute:", "dynamic"))}
    group = _SAME_VALUES.get(line["kind"])
    alike = [
        others
        for others, right, other in trials
        if right
        and core <= others
        and other["case"] == line["case"]
        and (
            line["result"] != "wrong values"
            or (group is not None and group == _SAME_VALUES.get(other["kind"]))
        )
    ]
    for word in facts:
        if word.startswith(("unsized:", "fed:", "held")) and any(
            word not in others for others in alike
        ):
            core.add(word)
    return frozenset(core)


def _cores_of_whole(
    trials: list[Trial], entry: Mapping[str, Any] | None = None
) -> set[frozenset[str]]:
    """What refuses the trials of whole numbers that went wrong, and their like.

    Other trials with the same features, of small numbers, may have gone right: so it is
    the types, and the fewest features that tell a wrong trial from the right ones of
    its kind, or none if nothing does.

    Args:
        entry: only trials that it allows count.
    """
    cores = set()
    for facts, right, line in trials:
        if right or not line["kind"].startswith("whole"):
            continue
        if entry is not None and allows(entry, facts) is not None:
            continue
        types = frozenset(word for word in facts if word.startswith("types="))
        told = sorted(
            word
            for word in facts
            if word.startswith(_TOLD) and not word.startswith(_FREE)
        )
        alike = [
            others
            for others, went_right, other in trials
            if went_right and types <= others and other["kind"] == line["kind"]
        ]
        cores.add(types | _telling(told, alike))
    return {core for core in cores if not any(other < core for other in cores)}


_TOLD: Final = ("attribute:", "dynamic", "unsized:", "fed:", "held")

_FREE: Final = "attribute:equation="
"""Of many values, of which few were tried in each type."""


def _telling(words: Sequence[str], alike: list[frozenset[str]]) -> frozenset[str]:
    """The fewest of *words* that none of *alike* has together; none if all have."""
    for size in (0, 1, 2, 3):
        for chosen in map(frozenset, itertools.combinations(words, size)):
            if not any(chosen <= others for others in alike):
                return chosen
    return frozenset()


def _best_rule(
    left: list[frozenset[str]], good: list[frozenset[str]]
) -> tuple[str, ...] | None:
    """The shortest combination in most of *left* and in none of *good*.

    Where something had no elements, that is held to be the reason.
    """
    empty = [facts for facts in left if _empties(facts)]
    if empty:
        found = _find_rule(empty, good, lambda rule: bool(_empties(rule)))
        if found is not None:
            return found
    return _find_rule(left, good, lambda rule: True)


def _empties(words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith("empty:")]


def _find_rule(
    left: list[frozenset[str]],
    good: list[frozenset[str]],
    fits: Callable[[tuple[str, ...]], bool],
) -> tuple[str, ...] | None:

    def weight(word: str) -> int:
        return _PREFERENCE.index(word.partition("=")[0].partition(":")[0])

    for size in (1, 2, 3):
        counts: collections.Counter[tuple[str, ...]] = collections.Counter()
        for facts in left:
            combinations = itertools.combinations(sorted(facts), size)
            counts.update(filter(fits, combinations))
        for rule, _ in sorted(
            counts.items(),
            key=lambda item: (-item[1], sum(map(weight, item[0])), item[0]),
        ):
            wanted = frozenset(rule)
            if not any(facts >= wanted for facts in good):
                return rule
    return None


def _entry(
    good: list[frozenset[str]], rules: list[tuple[str, ...]], trials: list[Trial]
) -> dict[str, Any]:
    seen: dict[str, set[str]] = {}
    for facts in good:
        for word in facts:
            kind, _, value = word.partition("=")
            if kind.startswith(("since", "types", "inputs", "omits", "outputs")):
                seen.setdefault(kind, set()).add(value)
            elif kind.startswith("attribute:"):
                seen.setdefault("attributes", set()).add(
                    word.removeprefix("attribute:")
                )
            elif kind.startswith("empty:"):
                seen.setdefault("empty", set()).add(kind.removeprefix("empty:"))
    chosen: dict[str, Any] = {}
    for since in sorted({trial[2]["since"] for trial in trials}):
        chosen |= defaults(trials[0][2]["op"], since)
    entry: dict[str, Any] = {
        kind: sorted(values, key=lambda v: (len(v), v))
        for kind, values in sorted(seen.items())
    }
    if chosen:
        entry["defaults"] = chosen
    if rules:
        entry["refused"] = [list(rule) for rule in rules]
    return entry


def allows(entry: Mapping[str, Any], facts: Iterable[str]) -> str | None:
    """Why *entry* refuses a node with these features; ``None`` if it does not."""
    reason = _ANY.refusal_of(entry, frozenset(facts))
    return None if reason is None else str(reason)
