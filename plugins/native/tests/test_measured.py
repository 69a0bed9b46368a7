"""What a library takes and was not seen to compute rightly, it does not get."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxplug
from onnxplug import errors
from onnxplug.graph.load import load_model
from onnxplug_native import measured, provider
from onnxplug_native.functions.environment import SessionOptions
from onnxplug_native.regions import regions

EXAMPLE = "ExampleExecutionProvider"

MUL: dict[str, Any] = {
    "since": ["14"],
    "types": ["float32"],
    "inputs": ["2"],
    "outputs": ["0"],
    "refused": [["held"]],
}
"""Wrong with a constant before another factor."""

CHAIN = """
<ir_version: 10, opset_import: ["": 21]>
chain (float[n, 3] x, float[n, 3] y) => (float[n, 3] v4) <float[1, 3] k = {1, 2, 3}>
{
  v0 = Add(x, x)
  v1 = Mul(v0, y)
  v2 = Mul(v1, y)
  v3 = Mul(k, v2)
  v4 = Mul(v3, y)
}
"""


@pytest.fixture
def write_list(tmp_path: Path) -> Callable[..., Path]:
    """Writes what was measured of the example."""

    def write(operators: object, **about: object) -> Path:
        facts = {"ep": EXAMPLE, "vendor": "Example Inc.", "version": "1.2.3"} | about
        table = {"measured with": facts, "lacks": {}, "operators": operators}
        path = tmp_path / "list.json"
        path.write_text(json.dumps(table))
        return path

    return write


def open_session(**options: str) -> onnxplug.InferenceSession:
    given = {name.replace("__", "."): value for name, value in options.items()}
    model = onnx.parser.parse_model(CHAIN).SerializeToString()
    return onnxplug.InferenceSession(model, providers=[(EXAMPLE, given), "cpu"])


def run(session: onnxplug.InferenceSession) -> None:
    random = np.random.default_rng(0)
    x, y = (random.standard_normal((2, 3), np.float32) for _ in range(2))
    (found,) = session.run(None, {"x": x, "y": y})
    expected = (x + x) * y**3 * np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def on_example(session: onnxplug.InferenceSession) -> list[str]:
    """The outputs of the nodes that the library has."""
    nodes = [each.node for each in session.explain().nodes if each.ep == EXAMPLE]
    return [node.removeprefix("Mul giving ").strip("'") for node in nodes]


@pytest.mark.parametrize(
    ("macros", "mode"), [([], "one_group"), ([], ""), (["KERNELS"], "")]
)
def test_a_node_measured_wrong_is_refused_and_the_others_are_not(
    register, write_list, macros, mode
) -> None:
    register(*macros)
    path = str(write_list({"Mul": MUL}))
    with open_session(onnxplug__allow_list=path, mode=mode) as session:
        assert on_example(session) == ["v1", "v2", "v4"]
        (refused,) = [n for n in session.explain().nodes if "'v3'" in n.node]
        (reason,) = [each.reason for each in refused.passed_over if each.ep == EXAMPLE]
        assert reason.code == "other"
        assert reason.detail.startswith(f"{EXAMPLE} of library 'example' (libexample_")
        assert reason.detail.endswith(
            "measured in version 1.2.3: wrong in it with held"
        )
        run(session)


def test_a_group_is_split_around_what_is_refused(register, write_list) -> None:
    """And what is left is asked about again, together where nothing is between."""
    register()
    path = str(write_list({"Mul": MUL}))
    with open_session(onnxplug__allow_list=path, mode="one_group") as session:
        parts = [p for p in session.explain().partitions if p.ep == EXAMPLE]
        assert [part.nodes for part in parts] == [2, 1]


def test_a_library_cannot_take_what_it_is_not_asked_about(register, write_list) -> None:
    register()
    path = str(write_list({"Mul": MUL}))
    with pytest.warns(errors.EpWarning, match="takes Mul .* it was not asked"):
        session = open_session(onnxplug__allow_list=path, mode="stubborn")
    with session:
        assert on_example(session) == []
        run(session)


def test_a_list_of_another_version_is_used_and_said_so(register, write_list) -> None:
    register()
    path = str(write_list({"Mul": MUL}, version="1.2.2"))
    with open_session(onnxplug__allow_list=path) as session:
        assert on_example(session) == ["v1", "v2", "v4"]
        told = str(session.explain())
    assert "measured in version 1.2.2 (this is 1.2.3): wrong in it" in told


def test_the_list_that_comes_with_the_host_is_used_unless_the_library_is_trusted(
    register, write_list, monkeypatch
) -> None:
    register()
    shipped = measured.Measured.parse(write_list({"Mul": MUL}).read_bytes())
    monkeypatch.setattr(measured, "_shipped", lambda: (shipped,))
    with open_session() as session:
        assert on_example(session) == ["v1", "v2", "v4"]
    (pair,) = [each for each in onnxplug.get_ep_devices() if each.ep_name == EXAMPLE]
    assert pair.metadata["measured_version"] == "1.2.3"
    told: list[dict[str, str]] = []
    monkeypatch.setattr(
        provider,
        "SessionOptions",
        lambda entries: told.append(dict(entries)) or SessionOptions(entries),
    )
    with open_session(onnxplug__trust_library="1") as session:
        assert on_example(session) == ["v1", "v2", "v3", "v4"]
    (entries,) = told
    assert "ep.exampleexecutionprovider.speed" in entries
    assert not [name for name in entries if "onnxplug" in name]


def test_a_library_has_the_options_with_which_it_was_measured(
    register, write_list, monkeypatch
) -> None:
    register()
    # the library itself suggests one of them otherwise
    path = write_list({"Mul": MUL}, options={"speed": "slow", "accuracy": "f32"})
    shipped = measured.Measured.parse(path.read_bytes())
    monkeypatch.setattr(measured, "_shipped", lambda: (shipped,))
    (pair,) = [each for each in onnxplug.get_ep_devices() if each.ep_name == EXAMPLE]
    assert pair.default_options == {"speed": "fast", "accuracy": "f32"}


@pytest.mark.parametrize(
    ("operators", "about", "options", "told"),
    [
        ({}, {}, {"onnxplug.allowlist": "x"}, "no option 'onnxplug.allowlist'; those"),
        ({}, {}, {"onnxplug.trust_library": "1"}, "leave one of them out"),
        ({}, {}, {"onnxplug.allow_list": "/no/such"}, "is no allow-list: .*No such"),
        ({}, {"ep": "Other"}, {}, "in which Other was measured"),
        ([], {}, {}, "expected a JSON object of objects"),
        ({}, {"version": 3}, {}, "does not say which EP, vendor, version"),
        ({}, {"options": {"a": 1}}, {}, "'options' of 'measured with' is no object"),
        ({"Mul": []}, {}, {}, "the entry of Mul is no object"),
        ({"Mul": {"types": "float32"}}, {}, {}, "'types' of Mul is 'float32'"),
        ({"Mul": {"refused": [[]]}}, {}, {}, r"'refused' of Mul is \[\[\]\]"),
    ],
)
def test_options_that_ask_for_no_list_are_errors(
    register, write_list, operators, about, options, told
) -> None:
    register()
    path = str(write_list(operators, **about))
    model = onnx.parser.parse_model(CHAIN).SerializeToString()
    given = {"onnxplug.allow_list": path} | options
    with pytest.raises(errors.OptionError, match=told):
        onnxplug.InferenceSession(model, providers=[(EXAMPLE, given), "cpu"])


@pytest.mark.parametrize(
    ("operators", "reason"),
    [
        (
            {"Mul": MUL, "If": MUL},
            "Neg giving 'p' in its body: Neg was not seen to be right in it",
        ),
        ({"Mul": MUL}, "If was not seen to be right in it, bodies and all"),
    ],
)
def test_bodies_are_judged_and_other_domains_are_not(
    operators: dict[str, Any], reason: str
) -> None:
    graph = load_model(
        onnx.parser.parse_model(
            """
            <ir_version: 10, opset_import: ["": 21, "acme": 1]>
            g (float[3] x, bool c) => (float[3] y, float[3] z)
            {
              y = If(c) <
                then_branch = one () => (float[3] p) { p = Neg(x) },
                else_branch = two () => (float[3] q) { q = Mul(x, x) }
              >
              z = acme.Anything(x)
            }
            """
        )
    ).graph
    table = {
        "measured with": {"ep": "E", "vendor": "V", "version": "1"},
        "lacks": {},
        "operators": operators,
    }
    judge = measured.Judge("E", "1", measured.Measured.parse(json.dumps(table)))
    refused = judge.refusals(graph, {0, 1})
    assert {index: each.detail for index, each in refused.items()} == {
        0: f"E, measured in version 1: {reason}"
    }


@pytest.mark.parametrize("fits", [False, True])
def test_int64_is_left_where_it_may_not_fit_in_32_bits(write_list, fits) -> None:
    """As by a library that computes it in no more."""
    graph = load_model(
        onnx.parser.parse_model(
            """
            <ir_version: 10, opset_import: ["": 21]>
            g (float[n] x, int64[1] k) => (int64[1] y, int64[1] z) <int64[1] s>
            { s = Shape(x) y = Add(s, s) z = Add(k, k) }
            """
        )
    ).graph
    shape = {**MUL, "since": ["21"], "inputs": ["1"], "refused": []}
    path = write_list({"Shape": shape, "Add": {**MUL, "types": ["int64"]}})
    path.write_text(json.dumps(json.loads(path.read_text()) | {"int64 bits": 32}))
    options = {
        "onnxplug.allow_list": str(path),
        "onnxplug.int64_in_32_bits": fits,
    }
    found = measured.choose_list(EXAMPLE, "Example Inc.", options)
    refused = measured.Judge("E", "1.2.3", found).refusals(graph, {0, 1, 2})
    assert list(refused) == ([] if fits else [2])
    assert fits or refused[2].detail == (
        "E, measured in version 1.2.3: 'k' is int64 and may not fit in "
        f"{EXAMPLE}'s 32 bits (option onnxplug.int64_in_32_bits takes it all the same)"
    )


def test_regions_hide_no_path_between_their_nodes() -> None:
    """A diamond whose one side is refused, with a body that reads from both sides."""
    graph = load_model(
        onnx.parser.parse_model(
            """
            <ir_version: 10, opset_import: ["": 21]>
            g (float[3] x, bool c) => (float[3] s, float[3] u)
            {
              a = Neg(x)
              b = Abs(a)
              d = Exp(a)
              s = Add(b, d)
              u = If(c) <
                then_branch = one () => (float[3] p) { p = Mul(d, a) },
                else_branch = two () => (float[3] q) { q = Identity(b) }
              >
              t = Sin(d)
            }
            """
        )
    ).graph
    found = list(regions(graph, range(6), {1}))
    assert [[node.index for node in each.nodes] for each in found] == [
        [0, 2, 5],
        [3, 4],
    ]
    assert [(list(each.inputs), list(each.outputs)) for each in found] == [
        (["x"], ["a", "d"]),
        (["b", "d", "c", "a"], ["s", "u"]),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_regions_of_random_graphs(seed) -> None:
    random = np.random.default_rng(seed)
    reads = [random.integers(0, max(i, 1), 2).tolist() for i in range(30)]
    lines = [
        f"v{i} = Add(v{a}, v{b})" if i else "v0 = Neg(x)"
        for i, (a, b) in enumerate(reads)
    ]
    text = f"g (float x) => (float v29) {{ {' '.join(lines)} }}"
    header = '<ir_version: 10, opset_import: ["": 21]>'
    graph = load_model(onnx.parser.parse_model(f"{header} {text}")).graph
    refused = set(random.choice(30, 8, replace=False).tolist())
    before: list[set[int]] = [set()]
    for a, b in reads[1:]:
        before.append(before[a] | before[b] | {a, b})
    found = [
        {node.index for node in each.nodes}
        for each in regions(graph, range(30), refused)
    ]
    assert sorted(index for each in found for index in each) == sorted(
        set(range(30)) - refused
    )
    for each in found:
        between = {r for i in each for r in refused if r in before[i]}
        assert not [r for r in between if before[r] & each]


def test_lists_that_come_with_the_host_are_lists() -> None:
    for each in measured._shipped():
        assert measured.measured(each.ep, each.vendor) is each
        assert each.version and each.operators.operators
