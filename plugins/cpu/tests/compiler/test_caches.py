"""Attention with a cache, compiled and on arrays, beside its definition in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug_testing.grouped_attention import CASES, POSITIONS, Grouped

from .differential import refusing, session
from .rarely import crossed

Array = np.ndarray[Any, Any]


def check(
    case: Grouped, found: list[Array], bound: float, *, in_place: bool = False
) -> None:
    """In place, what is behind the rows in use stays."""
    for image, wanted in enumerate(case.expected()):
        for ours, right in zip(found, wanted, strict=True):
            part = ours[image].astype(np.float64)
            part = part[: len(right)] if ours.ndim == 3 else part[:, : right.shape[1]]
            limit = bound * max(1.0, np.abs(right).max())
            np.testing.assert_allclose(part, right, 0, limit)
        behind = max(case.lengths[image], case.rows)
        for ours in () if in_place else found[1:]:
            assert not ours[image, :, behind:].any()


MORE = {
    "added to a prompt": Grouped([30, 19], 30, 64, added=(2, 1), sinks=True),
    "added to halves": Grouped([9], 3, 12, added=(1, 1), dtype=np.float16),
    "codes of 8 bits": Grouped([7, 3], 1, 20, bits=8),
    "codes of 4 bits": Grouped([37, 33], 1, 40, bits=4, channels=True, heads=8),
    "codes of several tokens": Grouped(
        [19], 5, 24, groups=4, bits=4, rotated=0, local_window_size=6, sinks=True
    ),
    "codes of a prompt": Grouped(
        [40, 29], 40, 64, bits=8, channels=True, rotated=0, added=(1, 1)
    ),
    "codes of 4 bits of a prompt": Grouped(
        [45], 40, 46, bits=4, rotated=0, packed=True
    ),
    "codes beside halves": Grouped([7, 3], 1, 9, bits=8, dtype=np.float16, rotated=0),
    "norms": Grouped([7, 3], 1, 20, norms=True, qk_norm_epsilon=1e-3),
    "norms of a prompt": Grouped(
        [21, 21],
        20,
        32,
        norms=True,
        packed=True,
        added=(1, 4),
        local_window_size=6,
        q_norm_epsilon=0.5,
        k_norm_epsilon=0.25,
    ),
    "a token of many groups": Grouped([300], 1, 511, heads=8, groups=1, rotated=0),
    "a long prompt": Grouped([300, 290], 260, 511, rotated=0, groups=4),
    "a long window": Grouped([300], 40, 511, rotated=0, local_window_size=40),
    "sinks of many queries": Grouped([60], 40, 64, rotated=0, sinks=True, softcap=3.0),
    "a long prompt of halves": Grouped(
        [300, 290], 260, 511, rotated=0, dtype=np.float16
    ),
    "pairs of bfloat16": Grouped(
        [7, 3], 1, 9, rotated=8, rotary_interleaved=1, dtype=ml_dtypes.bfloat16
    ),
}
BOUNDS = {"float32": 4e-6, "float16": 1e-3, "bfloat16": 8e-3}


@pytest.mark.parametrize(("name", "threads"), crossed([*CASES, *MORE], [2, 1]))
def test_groups_of_heads_attend_to_a_cache(name: str, threads: int) -> None:
    case = (CASES | MORE)[name]
    model = as_exported(case)
    ours = session(model, compiled=True, threads=threads)
    notes = [node.note for node in ours.explain().nodes if node.note]
    assert not notes, notes
    check(case, ours.run(None, feeds_of(case)), BOUNDS[case.dtype.name])


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_the_same_on_arrays(name: str) -> None:
    case = (CASES | MORE)[name]
    with refusing(1.0, 0):
        ours = session(as_exported(case), compiled=True)
    check(case, ours.run(None, feeds_of(case)), BOUNDS[case.dtype.name])


def test_how_long_sequences_are_is_fed_as_a_number() -> None:
    """No plan is made for one more token, as long as caches have room."""
    case = Grouped([7], 1, 20)
    model = case.model()
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    ours = session(model, compiled=True)
    for length in range(1, 21):
        case.lengths = [length]
        lengths = np.array([length - 1], np.int32)
        total = np.array(length, np.int32)
        feeds = {**case.feeds, "lengths": lengths, "total": total}
        check(case, ours.run(None, feeds), 4e-6)
    report = ours.explain()
    (node,) = report.nodes
    plans = report.partitions[0].counts["plans"]
    assert (plans, node.tier, node.note) == (1, "compiled", "")
    # beyond that the cache grows
    feeds = {**feeds, "total": np.array(23, np.int32)}
    assert ours.run(None, feeds)[1].shape[2] == 23
    with pytest.raises(onnxplug.errors.NodeError):
        ours.run(None, {**feeds, "lengths": np.array([22], np.int32)})


def as_exported(case: Grouped) -> Any:
    """The model, with the total length as exporters write it: a size of the mask."""
    model = case.model()
    graph = model.graph
    (total,) = [value for value in graph.input if value.name == "total"]
    graph.input.remove(total)
    mask = helper.make_tensor_value_info("mask", onnx.TensorProto.INT64, [1, "all"])
    graph.input.append(mask)
    nodes = [
        helper.make_node("Shape", ["mask"], ["sizes"], start=1, end=2),
        helper.make_node("Cast", ["sizes"], ["total"], to=onnx.TensorProto.INT32),
    ]
    for node in reversed(nodes):
        graph.node.insert(0, node)
    return model


def feeds_of(case: Grouped) -> dict[str, Array]:
    feeds = {name: array for name, array in case.feeds.items() if name != "total"}
    return {**feeds, "mask": np.ones((1, int(case.feeds["total"])), np.int64)}


FAULTS: dict[str, dict[str, Array]] = {
    "length": {"lengths": np.array([20], np.int32)},
    "negative": {"lengths": np.array([-2], np.int32)},
    "largest": {"lengths": np.array([np.iinfo(np.int32).max], np.int32)},
    "position": {"places": np.array([[POSITIONS]])},
    "rows of no past": {
        "lengths": np.array([24], np.int32),
        "mask": np.ones((1, 30), np.int64),
    },
}


@pytest.mark.parametrize("on_arrays", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_cache_has_not_is_an_error(fault: str, on_arrays: bool) -> None:
    case = Grouped([7], 1, 20, places=True)
    model, feeds = as_exported(case), feeds_of(case)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    with refusing(1.0 if on_arrays else 0.0, 0):
        ours = session(model, compiled=True)
    wanted = ours.run(None, feeds)
    with pytest.raises(onnxplug.errors.NodeError, match="GroupQueryAttention"):
        ours.run(None, {**feeds, **FAULTS[fault]})
    for found, right in zip(ours.run(None, feeds), wanted, strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("read_elsewhere", [False, True])
@pytest.mark.parametrize(("runs", "dtype"), [(1, np.float16), (3, np.float32)])
def test_a_cache_that_is_bound_as_past_and_present(
    read_elsewhere: bool, runs: int, dtype: Any
) -> None:
    """It is updated where it is, unless something else reads the past."""
    case = Grouped([7], 1, 20, dtype=dtype)
    model = as_exported(case)
    if read_elsewhere:
        double = helper.make_node("Add", ["past_k", "past_k"], ["double"])
        model.graph.node.append(double)
        shape = case.feeds["past_k"].shape
        element = helper.np_dtype_to_tensor_dtype(case.dtype)
        value = helper.make_tensor_value_info("double", element, shape)
        model.graph.output.append(value)
    ours = session(model, compiled=True)
    for _ in range(runs):
        binding = ours.io_binding()
        binding.bind_output("y")
        names, caches, feeds = ["y"], {}, feeds_of(case)
        for name, array in feeds.items():
            value = onnxplug.OrtValue.ortvalue_from_numpy(array.copy())
            binding.bind_ortvalue_input(name, value)
            if name.startswith("past"):
                caches[name] = value, value.numpy()
                binding.bind_ortvalue_output(f"new{name[4:]}", value)
                names.append(f"new{name[4:]}")
        if read_elsewhere:
            binding.bind_output("double")
            names.append("double")
        ours.run_with_iobinding(binding)
        by_name = dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))
        results = [by_name[name] for name in ("y", "new_k", "new_v")]
        check(case, results, BOUNDS[case.dtype.name], in_place=True)
        for name, (value, before) in caches.items():
            assert name != "past_v" or np.shares_memory(value.numpy(), before)
        if read_elsewhere:
            np.testing.assert_array_equal(by_name["double"], 2 * feeds["past_k"])


NARROW = """<ir_version: 10, opset_import: ["": 24]>
g (T[2, 4, S, 16] q, T[2, 2, S, 16] k, T[2, 2, S, 16] v, T[2, 2, P, 16] past_k,
   T[2, 2, P, 16] past_v, int64[2] starts, int64[2] used)
=> (T[2, 4, S, 16] y, T[2, 2, P, 16] new_k, T[2, 2, P, 16] new_v,
    T[2, 4, S, 16] z, T[2, 2, W, 16] whole_k, T[2, 2, W, 16] whole_v) {
  a = Add (k, k)
  new_k = TensorScatter <axis = 2> (past_k, a, starts)
  new_v = TensorScatter <axis = 2> (past_v, v, starts)
  y = Attention <is_causal = 1> (q, new_k, new_v, , , , used)
  z, whole_k, whole_v = Attention <is_causal = 1> (q, a, v, , past_k, past_v)
}"""


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_caches_of_16_bits_of_other_operators(kind: str, rows: int) -> None:
    model = onnx.parser.parse_model(NARROW.replace("T[", f"{kind}["))
    rng, dtype = np.random.default_rng(1), np.dtype(kind)
    shapes = {"q": (2, 4, rows, 16), "past_k": (2, 2, 20, 16), "past_v": (2, 2, 20, 16)}
    shapes |= dict.fromkeys("kv", (2, 2, rows, 16))
    feeds = {n: rng.standard_normal(s).astype(dtype) for n, s in shapes.items()}
    feeds["starts"] = np.array([4, 7])
    feeds["used"] = feeds["starts"] + rows
    results = []
    for share, seed in ((0.0, 0), (1.0, 0), (0.5, 1), (0.5, 2)):
        with refusing(share, seed):
            ours = session(model, compiled=True)
        results.append(ours.run(None, feeds))
        notes = [node.note for node in ours.explain().nodes if node.note]
        assert bool(notes) == bool(share), notes
    wide = ReferenceEvaluator(
        onnx.parser.parse_model(NARROW.replace("T[", "float["))
    ).run(None, {n: a if n in ("starts", "used") else a.astype(np.float32)
                 for n, a in feeds.items()})  # fmt: skip
    bound = BOUNDS[kind]
    for result in results:
        for found, wanted in zip(result, wide, strict=True):
            assert found.dtype == dtype
            np.testing.assert_allclose(found.astype(np.float32), wanted, bound, bound)
