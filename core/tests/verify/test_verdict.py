"""Which nodes a family that failed takes with it."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug.ep import DataType, Node
from onnxplug.graph import Graph, Model
from onnxplug.verify.verdict import FailedFamilies, FamilyVerdict, Verdict

PASSED, FAILED = Verdict.PASSED, Verdict.FAILED


def family(
    verdict: Verdict, *operators: tuple[str, str, DataType], name: str = "some"
) -> FamilyVerdict:
    return FamilyVerdict(name, frozenset(operators), verdict, "off by 1")


def vetoed(graph: Graph, *verdicts: FamilyVerdict) -> list[str]:
    veto = FailedFamilies(verdicts, "see the doctor")
    return [node.op_type for node in graph.nodes if veto(graph, node)]


GRAPH = """
    agraph (float[2] x, float16[2] h, int64[1] i, bool[2] c) => (y, z, w) {
        y = Gather (x, i)
        z = Where (c, h, h)
        w = Cast <to = 10> (x)
    }
"""


def test_by_operator_and_by_the_type_of_any_tensor(
    parse: Callable[[str], Model], typed: Callable[[Model], Graph]
) -> None:
    graph = typed(parse(GRAPH))
    f32, f16, i64 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT64
    for operators, expected in (
        ([("", "Gather", f32)], ["Gather"]),
        ([("", "Gather", i64)], ["Gather"]),
        ([("", "Gather", f16)], []),
        ([("", "Where", f16)], ["Where"]),
        ([("", "Where", f32)], []),
        ([("", "Cast", f16)], ["Cast"]),
        ([("", "Cast", f32)], ["Cast"]),
        ([("other", "Cast", f32)], []),
        ([("", "Cast", f32), ("", "Where", f16)], ["Where", "Cast"]),
    ):
        assert vetoed(graph, family(FAILED, *operators)) == expected
        assert vetoed(graph, family(PASSED, *operators)) == []


def test_what_is_unknown_may_be_of_the_type(parse: Callable[[str], Model]) -> None:
    graph = parse("agraph (x) => (y) { y = Neg (x) }").graph
    assert vetoed(graph, family(FAILED, ("", "Neg", DataType.FLOAT32))) == ["Neg"]


def test_elements_of_sequences_and_optionals_count(
    parse: Callable[[str], Model],
) -> None:
    graph = parse(
        """agraph (seq(float[2]) s, optional(float[2]) o, int64 i) => (y, z) {
            y = SequenceLength (s)
            z = OptionalHasElement (o)
        }"""
    ).graph
    graph.types["y"] = graph.types["z"] = graph.types["i"]
    found = [
        vetoed(graph, family(FAILED, ("", op, DataType.FLOAT32)))
        for op in ("SequenceLength", "OptionalHasElement")
    ]
    assert found == [["SequenceLength"], ["OptionalHasElement"]]
    assert not vetoed(graph, family(FAILED, ("", "SequenceLength", DataType.FLOAT16)))


def test_the_reason_names_the_family_what_was_found_and_what_to_do(
    parse: Callable[[str], Model], typed: Callable[[Model], Graph]
) -> None:
    graph = typed(parse(GRAPH))
    cast: Node = graph.nodes[-1]
    verdict = family(FAILED, ("", "Cast", DataType.FLOAT16), name="casts")
    reason = FailedFamilies([verdict], "see the doctor")(graph, cast)
    assert str(reason) == (
        "verify: family 'casts' failed on this device: off by 1; see the doctor"
    )
