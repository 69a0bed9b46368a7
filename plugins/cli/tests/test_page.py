"""``onnxplug explain --html`` and ``Explanation.to_html``, without a browser."""

from __future__ import annotations

import html
import itertools
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxplug
from onnxplug.errors import InvalidArgument, RequirementMissing
from onnxplug.escape import escape

pytest.importorskip("fast_sugiyama", reason="lays out the graphs of pages")

from onnxplug_cli.page.layout import lay_out  # which needs it


def data_of(page: str) -> Any:
    """What the script of *page* reads."""
    (text,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page
    )
    return json.loads(text)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 40))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = draw(st.lists(pairs.filter(lambda pair: pair[0] < pair[1]), unique=True))
    return count, edges


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_nodes_stand_below_what_they_read_and_beside_each_other(graph) -> None:
    count, edges = graph
    layout = lay_out(count, edges)
    assert len(layout.columns) == len(layout.rows) == count
    for (source, target), way in zip(edges, layout.ways, strict=True):
        assert layout.rows[source] < layout.rows[target]
        assert way is not None
        assert len(way) == layout.rows[target] - layout.rows[source] - 1
    places = sorted(zip(layout.rows, layout.columns, strict=True))
    for (row, column), (next_row, next_column) in itertools.pairwise(places):
        assert row != next_row or next_column - column >= 0.999
    assert min(layout.rows) == 0 <= min(layout.columns)
    assert max(layout.columns) <= layout.width - 1
    assert max(layout.rows) == layout.height - 1


def test_an_edge_that_nobody_could_follow_is_not_drawn() -> None:
    chain = [(node, node + 1) for node in range(300)]
    layout = lay_out(301, [*chain, (0, 50), (0, 300)])
    assert [way is None for way in layout.ways] == [*([False] * 301), True]
    assert [*layout.rows] == [*range(301)]


def test_what_crosses_without_end_takes_no_time() -> None:
    """As searching the best ranks would, or swapping neighbours while that helps."""
    edges = [
        (50 * row + (7 * n * n + row) % 50, 50 * (row + 1) + n)
        for row in range(60)
        for n in range(50)
    ]
    edges += [(source - 3, target) for source, target in edges if source % 50 > 2]
    began = time.thread_time()
    lay_out(50 * 61, list(dict.fromkeys(edges)))
    assert time.thread_time() - began < 10


def test_nodes_without_edges_are_not_all_in_one_row() -> None:
    layout = lay_out(100, [])
    assert set(Counter(layout.rows).values()) == {10}
    assert layout.width == 10


def test_no_node_is_a_layout() -> None:
    assert lay_out(0, []).height == 0


MODEL = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[4] x, bool c) => (float[4] z) {
        [first] y = Mul (x, x)
        [choice] z = If (c) <
            then_branch = here () => (float[4] t) { t = Relu (y) },
            else_branch = there () => (float[4] u) { u = Add (y, y) }
        >
    }
"""


@pytest.fixture
def session(toy):
    with onnxplug.InferenceSession(
        onnx.parser.parse_model(MODEL), providers=[toy]
    ) as session:
        yield session


def test_bodies_are_graphs_of_the_nodes_that_have_them(session) -> None:
    data = data_of(session.explain().to_html("g"))
    assert [graph["way"] for graph in data["graphs"]] == [
        "",
        "If 'choice'.then_branch",
        "If 'choice'.else_branch",
    ]
    names = [node[1] for node in data["nodes"]]
    assert [graph["owner"] for graph in data["graphs"]] == [
        -1,
        *[names.index("choice")] * 2,
    ]
    # what bodies take from outside comes to the node that has them
    ((source, target, way, values, *_),) = data["graphs"][0]["edges"]
    assert (names[source], names[target], way, values) == ("first", "choice", [], ["y"])
    assert [each["name"] for each in data["eps"]][-1] == "host"
    assert data["report"] == str(session.explain())


@pytest.mark.parametrize(
    "name",
    ["</script><script>alert(1)</script>", "<!--", "\x1b[31m", '"><b>', "\ud7ff😀"],
)
def test_no_name_ends_the_data(name: str, toy) -> None:
    nodes = [onnx.helper.make_node("Relu", ["x"], [name], name=name)]
    infos = [
        onnx.helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, [4])
        for each in ("x", name)
    ]
    graph = onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:])
    opsets = [onnx.helper.make_opsetid("", 21)]
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    with onnxplug.InferenceSession(model, providers=[toy]) as session:
        page = session.explain().to_html(name)
    assert data_of(page)["nodes"][0][1] == escape(name)
    assert page.count("</script>") == 2
    assert html.escape(name) in page or not name.isprintable()


def test_a_page_fetches_nothing(session) -> None:
    page = session.explain().to_html("g")
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"\w+://[^\"'\s]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_times_come_from_a_trace(tmp_path: Path, toy) -> None:
    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    model = onnx.parser.parse_model(MODEL)
    with onnxplug.InferenceSession(model, options, providers=[toy]) as session:
        feeds = {"x": np.ones(4, np.float32), "c": np.array(True)}
        for _ in range(3):
            session.run(None, feeds)
        trace = session.end_profiling()
        data = data_of(session.explain().to_html("g", trace))
    assert data["times"].startswith("a run takes ")
    assert "mean of 2 runs" in data["times"]
    of_parts = {part["number"]: part["lines"][-1] for part in data["partitions"]}
    assert of_parts[0].endswith(" a run")
    choice = next(node for node in data["nodes"] if node[1] == "choice")
    assert choice[6]
    assert 0 < choice[7] <= 1


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[]", '[{"ph": "X"}]', "\x00"])
def test_what_is_no_trace_is_refused(session, tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=r"trace\.json is "):
        session.explain().to_html("g", str(path))


def test_the_command_writes_a_page_with_times(cli, save_model, toy, tmp_path) -> None:
    page = tmp_path / "page.html"
    model = save_model(["Mul", "Relu"], {"a": ["N"], "b": ["N"]})
    words = ["explain", model, "--ep", toy, "--dim", "N=4", "--html", page, "--profile"]
    outcome = cli(*words)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("2 nodes: 2 on ToyExecutionProvider")
    data = data_of(page.read_text(encoding="utf-8"))
    assert data["title"] == "model.onnx"
    assert "mean of 5 runs" in data["times"]
    assert data["nodes"][0][5] == ["value0: float32[4], 16 B"]


def test_times_without_a_page_are_refused(cli, save_model, toy) -> None:
    assert cli("explain", save_model(), "--ep", toy, "--profile").code == 2


def test_what_is_missing_is_named(
    session, monkeypatch: pytest.MonkeyPatch, cli, save_model, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    explanation = session.explain()
    with pytest.raises(RequirementMissing, match=r"pip install 'onnxplug-cli\[html\]'"):
        explanation.to_html()
    shown = explanation._repr_html_()
    assert html.escape(str(explanation)) in shown
    assert "pip install" in shown
    page = tmp_path / "page.html"
    outcome = cli("explain", save_model(), "--ep", "toy", "--html", page)
    assert outcome.code == 1
    assert "pip install 'onnxplug-cli[html]'" in outcome.err
    assert not page.exists()
    monkeypatch.setitem(sys.modules, "onnxplug_cli.page", None)
    with pytest.raises(RequirementMissing, match="made by onnxplug-cli"):
        explanation.to_html()


def test_a_notebook_has_the_page_in_a_frame(session) -> None:
    shown = session.explain()._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert 'sandbox="allow-scripts"' in shown
    (inner,) = re.findall(r'srcdoc="([^"]*)"', shown)
    assert data_of(html.unescape(inner))["nodes"]


def test_a_model_of_no_nodes_has_a_page() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] x) {}
    """)
    with onnxplug.InferenceSession(model, providers=["cpu"]) as session:
        assert data_of(session.explain().to_html())["graphs"] == []
