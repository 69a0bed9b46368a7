"""Mixtures of experts, compiled: against their definition in float64, and arrays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxplug

from .differential import refusing, session
from .lowered import commands
from .rarely import crossed

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(35)
EXPERTS, WIDTH, INNER = 7, 48, 64
BOUNDS = {"float32": 4e-6, "float16": 1e-3, "bfloat16": 8e-3}


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


class Mixture:
    """A node, its constants, and what comes of them in float64.

    Args:
        bits: of codes of weights; 0 for floats.
        block: codes that share a scale; 0 for a column's.
        halves: how many halves the first product has; with *third* one in a matrix of
            its own.
    """

    def __init__(
        self, bits: int = 0, block: int = 0, halves: int = 1, third: bool = False,
        dtype: Any = np.float32, zeros: bool = False, biased: bool = True,
        experts: int = EXPERTS, routed: bool = False, **form: Any,
    ) -> None:  # fmt: skip
        self.experts, self.dtype, self.routed = experts, np.dtype(dtype), routed
        self.form = {"k": 3, **form}
        first = INNER if third else halves * INNER
        sizes = [(first, WIDTH), (WIDTH, INNER), *([(INNER, WIDTH)] if third else [])]
        self.weights: list[Array] = []
        self.biases: list[Array | None] = []
        inputs: dict[int, Array] = {}
        step = 3 if bits else 2
        for number, (rows, depth) in enumerate(sizes):
            at = 2 + step * number
            if bits:
                found = self._codes(rows, depth, bits, block, zeros=zeros)
                codes, scales, packed, weights = found
                inputs |= {at: codes, at + 1: scales}
                if packed is not None:
                    inputs[11 + number] = packed
            else:
                weights = normal(experts, rows, depth) / np.float32(depth**0.5)
                weights = weights.astype(dtype)
                inputs[at] = weights
            self.weights.append(weights.astype(np.float64))
            bias = normal(experts, rows).astype(dtype) if biased else None
            if bias is not None:
                inputs[at + step - 1] = bias
            self.biases.append(bias)
        self.constants = inputs
        if bits:
            self.form |= {"expert_weight_bits": bits, "weights_prepacked": 0}
            self.form |= {"block_size": block} if block else {}
        self.operator = "QMoE" if bits else "MoE"

    def _codes(
        self, rows: int, depth: int, bits: int, block: int, *, zeros: bool
    ) -> tuple[Array, Array, Array | None, Array]:
        """Packed codes, scales, packed zero points, and the weights."""
        blocks = depth // block if block else 1
        codes = RNG.integers(
            0, 1 << bits, (self.experts, rows, blocks, depth // blocks)
        )
        scales = np.abs(normal(self.experts, rows, blocks)) / (1 << bits)
        scales = scales.astype(self.dtype)
        points = RNG.integers(0, 1 << bits, (self.experts, rows, blocks))
        if not zeros:
            points[:] = 1 << bits - 1
        weights = (codes - points[..., None]) * scales[..., None].astype(np.float64)
        together = points if block else points.reshape(self.experts, rows)
        return (
            _packed(codes.reshape(self.experts, rows, depth), bits),
            scales if block else scales.reshape(self.experts, rows),
            _packed(together, bits) if zeros else None,
            weights.reshape(self.experts, rows, depth),
        )

    def model(self) -> onnx.ModelProto:
        """With any number of rows."""
        places = ["x", "scores", *(f"c{n}" for n in range(2, 15))]
        if self.routed:
            places[14] = "shares"
        given = {"x", "scores", *(["shares"] if self.routed else [])}
        names = [
            name if name in given or n in self.constants else ""
            for n, name in enumerate(places)
        ]
        while not names[-1]:
            names.pop()
        node = helper.make_node(
            self.operator, names, ["y"], domain="com.microsoft", **self.form
        )
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        columns = {"x": WIDTH, "scores": self.experts, "shares": self.experts}
        graph = helper.make_graph(
            [node],
            "experts",
            [
                helper.make_tensor_value_info(name, kind, ["rows", columns[name]])
                for name in sorted(given)
            ],
            [helper.make_tensor_value_info("y", kind, ["rows", WIDTH])],
            [numpy_helper.from_array(a, f"c{n}") for n, a in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self, rows: int) -> dict[str, Array]:
        """Of so many rows."""
        feeds = {"x": normal(rows, WIDTH), "scores": normal(rows, self.experts)}
        if self.routed:
            feeds["shares"] = np.abs(normal(rows, self.experts))
        return {name: array.astype(self.dtype) for name, array in feeds.items()}

    def expected(self, feeds: dict[str, Array]) -> Array:
        x, scores = (feeds[name].astype(np.float64) for name in ("x", "scores"))
        y = np.zeros_like(x)
        for row, score in enumerate(scores):
            # of equal ones the last
            chosen = sorted(
                range(len(score)), key=lambda e: (score[e], e), reverse=True
            )[: self.form["k"]]
            for expert, share in zip(
                chosen, self._shares(row, feeds, chosen), strict=True
            ):
                y[row] += share * self._given(x[row], expert)
        return y

    def _shares(self, row: int, feeds: dict[str, Array], chosen: list[int]) -> Array:
        score = feeds["scores"][row].astype(np.float64)
        whole = bool(self.form.get("normalize_routing_weights"))
        if self.routed:
            shares = feeds["shares"][row].astype(np.float64)[chosen]
            return shares / shares.sum() if whole else shares
        power = np.exp(score - score.max())
        among = power[chosen] if whole or self.operator == "QMoE" else power
        return power[chosen] / among.sum()

    def _product(self, x: Array, number: int, expert: int) -> Array:
        bias = self.biases[number]
        found = self.weights[number][expert] @ x
        return found if bias is None else found + bias[expert].astype(np.float64)

    def _given(self, x: Array, expert: int) -> Array:
        form, first = self.form, self._product(x, 0, expert)
        name = form.get("activation_type", "relu")
        if name == "swiglu":
            if len(self.weights) == 3:
                gate, other = first, self._product(x, 2, expert)
            elif form["swiglu_fusion"] == 1:
                gate, other = first[::2], first[1::2]
            else:
                gate, other = first[:INNER], first[INNER:]
            limit = form.get("swiglu_limit", np.inf)
            gate, other = np.minimum(gate, limit), np.clip(other, -limit, limit)
            gate = gate / (1 + np.exp(-form.get("activation_alpha", 1.0) * gate))
            inner = gate * (other + form.get("activation_beta", 0.0))
        else:
            inner = {
                "relu": lambda v: np.maximum(v, 0),
                "silu": lambda v: v / (1 + np.exp(-v)),
                "gelu": lambda v: (
                    v / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (v + 0.044715 * v**3)))
                ),
                "identity": lambda v: v,
            }[name](first)
        return self._product(inner, 1, expert)


def _packed(codes: Array, bits: int) -> Array:
    """Codes along the last axis, the first in the low bits."""
    per_byte = 8 // bits
    missing = -codes.shape[-1] % per_byte
    whole = np.pad(codes, [*[(0, 0)] * (codes.ndim - 1), (0, missing)])
    apart = whole.reshape(*whole.shape[:-1], -1, per_byte)
    return (apart << np.arange(per_byte) * bits).sum(-1).astype(np.uint8)


GATED = {"activation_type": "swiglu", "halves": 2}
CASES = {
    "relu": Mixture(),
    "gelu of halves": Mixture(activation_type="gelu", dtype=np.float16),
    "silu, whole shares": Mixture(activation_type="silu", normalize_routing_weights=1),
    "identity of one": Mixture(activation_type="identity", k=1, biased=False),
    "gated in turn": Mixture(
        **GATED, swiglu_fusion=1, swiglu_limit=0.5, activation_alpha=1.702,
        activation_beta=1.0,
    ),
    "gated one behind the other": Mixture(
        **GATED, swiglu_fusion=2, dtype=ml_dtypes.bfloat16
    ),
    "gated apart": Mixture(**GATED, third=True),
    "8 bits": Mixture(8, 16, zeros=True, routed=True),
    "4 bits": Mixture(
        4, 32 // 2, **GATED, swiglu_fusion=1, routed=True, normalize_routing_weights=1
    ),
    "4 bits, zero points": Mixture(4, 16, zeros=True, activation_type="silu"),
    "4 bits of halves": Mixture(4, 0, dtype=np.float16, zeros=True),
    "2 bits, gated apart": Mixture(2, 0, **GATED, third=True),
    "8 bits of columns": Mixture(8, 0, zeros=True, k=EXPERTS),
}  # fmt: skip


def close(found: Array, wanted: Array, dtype: np.dtype[Any], bound: float = 0) -> None:
    limit = (bound or BOUNDS[dtype.name]) * max(1.0, np.abs(wanted).max(initial=0))
    np.testing.assert_allclose(found.astype(np.float64), wanted, 0, limit)


@pytest.mark.parametrize(("name", "threads"), crossed([*CASES], [2, 1]))
def test_rows_meet_the_experts_chosen_for_them(name: str, threads: int) -> None:
    """Of any number of rows, with blocks of some rows and of one."""
    case = CASES[name]
    runner = session(case.model(), compiled=True, threads=threads)
    for rows in (1, 6, 0, 90, 5):
        feeds = case.feeds(rows)
        close(runner.run(None, feeds)[0], case.expected(feeds), case.dtype)
    (partition,) = runner.explain().partitions
    assert partition.tiers == {"compiled": 1}
    assert not [node.note for node in runner.explain().nodes if node.note]


def test_the_same_on_arrays() -> None:
    for case in CASES.values():
        with refusing(1.0, 0):
            runner = session(case.model(), compiled=True)
        feeds = case.feeds(6)
        close(runner.run(None, feeds)[0], case.expected(feeds), case.dtype)


def test_of_equal_scores_the_last_is_chosen() -> None:
    case = CASES["relu"]
    feeds = case.feeds(9)
    feeds["scores"] = np.round(feeds["scores"])
    (found,) = session(case.model(), compiled=True).run(None, feeds)
    close(found, case.expected(feeds), case.dtype)


@pytest.mark.parametrize("bits", [0, 4])
def test_nothing_but_the_chosen_is_of_consequence(bits: int) -> None:
    """Weights that are no numbers of experts that nobody chooses, and rows beside."""
    case = Mixture(bits, 16 if bits else 0, k=2)
    spoilt = case.constants[3 if bits else 2]
    spoilt[3] = np.nan
    runner = session(case.model(), compiled=True)
    for rows in (1, 70):
        feeds = case.feeds(rows)
        feeds["scores"][:, 3] = -50
        (found,) = runner.run(None, feeds)
        assert np.isfinite(found).all()
        feeds["x"][rows // 2] = np.nan
        (beside,) = runner.run(None, feeds)
        assert np.isnan(beside[rows // 2]).all()
        others = np.arange(rows) != rows // 2
        np.testing.assert_array_equal(beside[others], found[others])


def test_a_level_allows_rows_of_bytes() -> None:
    case = Mixture(4, 16, accuracy_level=4, k=2)
    feeds = case.feeds(12)
    (found,) = session(case.model(), compiled=True).run(None, feeds)
    close(found, case.expected(feeds), case.dtype, 0.02)


def test_runs_at_the_same_time_choose_for_themselves() -> None:
    case = CASES["4 bits"]
    runner = session(case.model(), compiled=True, threads=1)
    many = [case.feeds(24) for _ in range(6)]
    wanted = [case.expected(feeds) for feeds in many]

    def run(number: int) -> None:
        for _ in range(20):
            (found,) = runner.run(None, many[number])
            close(found, wanted[number], case.dtype)

    with ThreadPoolExecutor(len(many)) as pool:
        list(pool.map(run, range(len(many))))


def test_a_profile_says_what_turns_have() -> None:
    case = CASES["relu"]
    labels = commands(case.model(), case.feeds(3), 1)
    assert any("MoE 3 of 7" in label for label in labels)


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"k": EXPERTS + 1}, "chooses 8 experts"),
        ({"activation_type": "swiglu"}, "gated"),
    ],
)
def test_what_does_not_fit_is_told_of(form: dict[str, Any], why: str) -> None:
    case = Mixture(**form)
    runner = session(case.model(), compiled=True)
    with pytest.raises(onnxplug.errors.NodeError, match=why):
        runner.run(None, case.feeds(2))
