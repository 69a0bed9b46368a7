"""Integers at random are what the model can take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxplug_cli.ranges import Range, integer_ranges


def _ranges(text: str, **sizes: int) -> dict[str, Range]:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1, "f": 1]>\n{text}'
    )
    return integer_ranges(model, sizes)


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("y = Gather (table, ids)", 0, 6),
        ("y = Gather <axis = 1> (table, ids)", 0, 2),
        ("y = Gather <axis = -1> (table, ids)", 0, 2),
        ("y = GatherElements <axis = 1> (table, ids)", 0, 2),
        ("y = ScatterElements (table, ids, table)", 0, 6),
        ("y = GatherND (table, ids)", 0, 2),
        ("a = Identity (ids) b = Cast <to = 7> (a) y = Gather (table, b)", 0, 6),
        ("a = Unsqueeze (ids, one) b = Concat <axis = 0> (a, a) y = Gather (table, b)",
         0, 6),
        ("a = Relu (table) y = Gather (a, ids)", 0, 6),
        ("a = Gather (table, ids) b = Gather <axis = 1> (table, ids) y = Sum (a, b)",
         0, 2),
        ("y = ReverseSequence (table, ids)", 1, 7),
        ("y, i = TopK (table, ids)", 1, 3),
        ("y = f.embed (ids)", None, None),
        ("y = com.microsoft.EmbedLayerNormalization (ids, , table)", 0, 6),
    ],
)  # fmt: skip
def test_indices_are_within_what_they_index(body: str, low: int, high: int) -> None:
    found = _ranges(f"""
        graph (int64[2, 2] ids) => (y)
        <float[7, 3] table = {{{", ".join("0" * 21)}}}, int64[1] one = {{1}}>
        {{ {body} }}
    """)
    assert [(each.low, each.high) for each in found.values()] == (
        [] if low is None else [(low, high)]
    )


def test_bodies_and_functions_are_looked_into() -> None:
    found = _ranges("""
        graph (int64[4] a, int64[4] b, int64[4] c, bool on) => (x, y, z)
        <float[5] five = {0, 0, 0, 0, 0}, int64 n = {3}, bool yes = {1}>
        {
            x = If (on) <
                then_branch = g1 () => (float[4] p) { p = Gather (five, a) },
                else_branch = g2 () => (float[4] q) { q = Gather (five, a) }
            >
            y0, y = Loop (n, yes, b) <
                body = g3 (int64 i, bool go, int64[4] s) =>
                    (bool more, int64[4] t, float[4] u)
                { more = Identity (go) t = Identity (s) u = Gather (five, s) }
            >
            z = f.deep (c)
        }
        <domain: "f", opset_import: ["": 21]>
        deep (i) => (o) { w = Identity (i) o = OneHot (w, w, w) }
    """)
    assert {name: each[:2] for name, each in found.items()} == {
        "a": (0, 4),
        "b": (0, 4),
    }


def test_a_function_that_calls_itself_ends() -> None:
    found = _ranges("""
        graph (int64[4] a) => (y) { y = f.again (a) }
        <domain: "f", opset_import: ["": 21, "f": 1]>
        again (i) => (o) { o = f.again (i) }
    """)
    assert found == {}


def test_sizes_that_are_said_count() -> None:
    text = "graph (float[N, 2] x, int64[M] i) => (y) { y = Gather (x, i) }"
    assert _ranges(text)["i"][:2] == (0, 0)
    assert _ranges(text, N=9)["i"][:2] == (0, 8)


def test_quantised_inputs_have_any_number_of_their_type() -> None:
    found = _ranges("""
        graph (uint8[4] x, int8[4] y, int32[4] z, uint8[4] mask) => (a, b, c, d)
        <float s = {1}>
        {
            a = Cast <to = 1> (x)
            b = DequantizeLinear (y, s)
            c = Cast <to = 1> (z)
            d = Cast <to = 9> (mask)
        }
    """)
    assert {name: each[:2] for name, each in found.items()} == {
        "x": (0, 255),
        "y": (-128, 127),
        "mask": (0, 255),
    }


def test_what_is_contradicted_is_not_found() -> None:
    found = _ranges("""
        graph (int64[1] k) => (y, z) <float[1, 5] t = {0, 0, 0, 0, 0}>
        { y, i = TopK (t, k) z = Gather (t, k) }
    """)
    assert found == {}


def test_a_model_of_tokens_runs_on_numbers_at_random(cli, tmp_path: Path) -> None:
    table = np.arange(300 * 2, dtype=np.float32).reshape(300, 2)
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        graph (int64[N, 16] ids, int64[N, 16] mask) => (float[N, 16, 2] y)
        {
            e = Gather (table, ids)
            f = Cast <to = 1> (mask)
            m = Unsqueeze (f, last)
            y = Mul (e, m)
        }
    """)
    for name, array in (("table", table), ("last", np.array([-1]))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "tokens.onnx")
    outcome = cli("run", tmp_path / "tokens.onnx", "random", "--ep", "cpu",
                  "--dim", "N=8", "--output", tmp_path / "out.npz")  # fmt: skip
    assert "random, 0 to 299: indices of 'table' → ids: int64[8, 16]" in outcome.out
    assert "random → mask: int64[8, 16]" in outcome.out
    found = np.load(tmp_path / "out.npz")["y"]
    assert found.max() > 400
