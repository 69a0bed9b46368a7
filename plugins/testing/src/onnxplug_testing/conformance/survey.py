"""Asks an EP about many nodes at once: which it claims, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import onnx
from onnx import helper, numpy_helper

from onnxplug import ep
from onnxplug_testing.conformance.cases import load_suite
from onnxplug_testing.conformance.subject import Subject
from onnxplug_testing.conformance.taps import Asked, ignoring_failures, listening
from onnxplug_testing.measuring.variations import Variation

_OF_EACH: Final = 12
"""Cases of an operator that are asked about, where nobody says how many."""

_WITH_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})


class Answer(NamedTuple):
    """What an EP says of a case.

    Attributes:
        case: it.
        reason: why it is refused; ``None`` if it is claimed.
    """

    case: Variation
    reason: ep.Reason | None


def survey(
    subject: Subject,
    suite: Mapping[str, Sequence[Variation]],
    *,
    of_each: int = _OF_EACH,
    domain: str = "",
) -> dict[str, list[Answer]]:
    """What the EP says of *suite*'s cases, by operator, with lists such as axes fed and
    again as constants; those left out that cannot be asked about with others.  Of
    ONNX's own cases it is asked once, if the subject knows the answers.

    Args:
        of_each: cases of an operator that are asked about at most.
        domain: of the operators, in place of ONNX's own.
    """
    is_known = suite is load_suite() and not domain and of_each <= _OF_EACH
    if subject.answers is not None and is_known:
        return _first(subject.answers, suite, of_each)
    by_opset: dict[int, list[Variation]] = {}
    for operator, cases in suite.items():
        if operator in _WITH_BODIES:
            continue
        for case in cases[:of_each]:
            asked = by_opset.setdefault(case.opset, [])
            asked.append(case)
            if case.lists() - case.constants:  # as models have them
                asked.append(replace(case, constants=case.constants | case.lists()))
    answers: dict[str, list[Answer]] = {}
    for opset, cases in sorted(by_opset.items()):
        for answer in _ask(subject, opset, cases, domain):
            answers.setdefault(answer.case.node.op_type, []).append(answer)
    return answers


def _first(
    answers: Mapping[str, Sequence[Answer]],
    suite: Mapping[str, Sequence[Variation]],
    of_each: int,
) -> dict[str, list[Answer]]:
    """Those of *answers* that are of the first cases of each operator."""
    found = {}
    for operator, said in answers.items():
        names = {case.case for case in suite[operator][:of_each]}
        found[operator] = [each for each in said if each.case.case in names]
    return found


def claimed_of(answers: Sequence[Answer]) -> list[Variation]:
    """The cases that are claimed, each once: fed where that is, and else with lists as
    constants."""
    found: dict[str, Variation] = {}
    for answer in answers:
        if answer.reason is None:
            found.setdefault(answer.case.case, answer.case)
    return list(found.values())


def ask(subject: Subject, model: bytes, **session: Any) -> Asked | None:
    """The first question that the host puts to the EP of *model*; ``None``: it puts
    none."""
    # what is raised then is for others to look at
    with listening(subject, until_asked=True) as talk, ignoring_failures():
        subject.session(model, **session).close()
    return talk.asked[0] if talk.asked else None


def _ask(
    subject: Subject, opset: int, cases: Sequence[Variation], domain: str
) -> list[Answer]:
    asked = ask(subject, joined(opset, cases, domain))
    if asked is None:  # some case spoils the model
        half = len(cases) // 2
        parts = (cases[:half], cases[half:]) if half else ()
        return [
            answer for part in parts for answer in _ask(subject, opset, part, domain)
        ]
    reasons = asked.reasons()
    found = []
    for index, node in asked.nodes.items():
        number = node.name.removeprefix("case ")
        if number.isdecimal() and index in reasons:
            found.append(Answer(cases[int(number)], reasons[index]))
    return found


def joined(opset: int, cases: Sequence[Variation], domain: str = "") -> bytes:
    """One model of all *cases*, which share nothing; names begin with the case's
    position and ``/``."""
    nodes: list[onnx.NodeProto] = []
    inputs: list[onnx.ValueInfoProto] = []
    outputs: list[onnx.ValueInfoProto] = []
    weights: dict[str, onnx.TensorProto] = {}
    for number, case in enumerate(cases):
        node = onnx.NodeProto()
        node.CopyFrom(case.node)
        node.name, node.domain = f"case {number}", domain
        for names in (node.input, node.output):
            renamed = [name and f"{number}/{name}" for name in names]
            del names[:]
            names.extend(renamed)
        nodes.append(node)
        for place, (name, array) in enumerate(
            zip(node.input, case.inputs, strict=True)
        ):
            if not name or array is None:
                continue
            if place in case.constants:
                weights[name] = numpy_helper.from_array(array, name)
            elif name not in {i.name for i in inputs[-9:]}:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                shape = [
                    f"{name}_{axis}" if case.dynamic else size
                    for axis, size in enumerate(array.shape)
                ]
                inputs.append(helper.make_tensor_value_info(name, kind, shape))
        outputs += [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(node.output, case.output_types, strict=False)
            if name
        ]
    graph = helper.make_graph(nodes, "many", inputs, outputs, list(weights.values()))
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())
