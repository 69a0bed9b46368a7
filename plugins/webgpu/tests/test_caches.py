"""Attention with a cache, beside its definition in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxplug
from onnxplug_testing.grouped_attention import CASES, POSITIONS, Grouped


@pytest.mark.parametrize("name", CASES)
def test_groups_of_heads_attend_to_a_cache(alone: Any, name: str) -> None:
    case = CASES[name]
    session = alone(case.model())
    found = session.run(None, case.feeds)
    bound = 2e-6 if case.dtype == np.float32 else 2e-3
    for image, wanted in enumerate(case.expected()):
        for ours, right in zip(found, wanted, strict=True):
            part = ours[image].astype(np.float64)
            part = part[: len(right)] if ours.ndim == 3 else part[:, : right.shape[1]]
            limit = bound * max(1.0, np.abs(right).max())
            np.testing.assert_allclose(part, right, 0, limit, err_msg=name)
        behind = max(case.lengths[image], case.rows)  # a prompt's padding is kept, too
        for ours in found[1:]:
            assert not ours[image, :, behind:].any()


@pytest.mark.parametrize("fault", ["length", "negative", "position", "rows"])
def test_what_a_cache_has_not_is_an_error(alone: Any, fault: str) -> None:
    case = Grouped([7], 1, 20, places=True)
    model, feeds = case.model(), dict(case.feeds)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    session = alone(model)
    wanted = session.run(None, feeds)
    wrong = {
        "length": {"lengths": np.array([20], np.int32)},
        "negative": {"lengths": np.array([-2], np.int32)},
        "position": {"places": np.array([[POSITIONS]])},
        # of the cache before, which is shorter than the one after
        "rows": {
            "lengths": np.array([24], np.int32),
            "total": np.array(30, np.int32),
        },
    }[fault]
    with pytest.raises(onnxplug.errors.NodeError, match="GroupQueryAttention"):
        session.run(None, {**feeds, **wrong})
    for ours, right in zip(session.run(None, feeds), wanted, strict=True):
        np.testing.assert_array_equal(ours, right)


class Shared(Grouped):
    """A node whose heads share none; *lengths*, all the same, count the new rows."""

    def __init__(self, operator: str, length: int, rows: int, **form: Any) -> None:
        super().__init__(
            [length, length], rows, 20, groups=4, rotated=0, causal=0, **form
        )
        for name in ("lengths", "total"):
            del self.feeds[name]
        self.feeds["used"] = np.array([length - rows], np.int32)
        between = [""] * (3 if operator == "MultiHeadAttention" else 2)
        inputs = ["q", "k", "v", *between, "past_k", "past_v", "used"]
        if operator != "MultiHeadAttention":
            form = {"past_present_share_buffer": 1}
        elif form:
            form, self.form = {"unidirectional": 1}, {"causal": 1}
        self.node = helper.make_node(
            operator, inputs, ["y", "new_k", "new_v"], domain="com.microsoft",
            num_heads=4, **form,
        )  # fmt: skip


SHARED = {
    "a token": Shared("MultiHeadAttention", 7, 1),
    "several": Shared("MultiHeadAttention", 9, 3, local_window_size=-1),
    "masked decoder": Shared("DecoderMaskedMultiHeadAttention", 20, 1),
}


@pytest.mark.parametrize("name", SHARED)
def test_heads_attend_to_a_cache_with_room(alone: Any, name: str) -> None:
    case = SHARED[name]
    found = alone(case.model()).run(None, case.feeds)
    for image, wanted in enumerate(case.expected()):
        for ours, right in zip(found, wanted, strict=True):
            part = ours[image] if ours.ndim == 3 else ours[image][:, : right.shape[1]]
            np.testing.assert_allclose(part, right, 0, 4e-6, err_msg=name)


@pytest.mark.parametrize("read_elsewhere", [False, True])
def test_a_cache_that_is_bound_as_past_and_present_is_right(
    beside: Any, read_elsewhere: bool
) -> None:
    """Also where it cannot be updated in place, as something else reads the past."""
    case = Grouped([7], 1, 20)
    model = case.model()
    if read_elsewhere:
        double = helper.make_node("Add", ["past_k", "past_k"], ["double"])
        model.graph.node.append(double)
        shape = case.feeds["past_k"].shape
        value = helper.make_tensor_value_info("double", onnx.TensorProto.FLOAT, shape)
        model.graph.output.append(value)
    session = beside(model)
    binding = session.io_binding()
    caches = {}
    for name, array in case.feeds.items():
        if not name.startswith("past"):
            binding.bind_cpu_input(name, array)
            continue
        caches[name] = onnxplug.OrtValue.ortvalue_from_numpy(array, "webgpu", 0)
        binding.bind_ortvalue_input(name, caches[name])
        binding.bind_ortvalue_output(f"new{name[4:]}", caches[name])
    binding.bind_output("y")
    if read_elsewhere:
        binding.bind_output("double")
    session.run_with_iobinding(binding)
    found = dict(zip(("k", "v", "y", "double"), binding.get_outputs(), strict=False))
    y, *wanted = case.expected()[0]
    np.testing.assert_allclose(found["y"].numpy()[0], y, 0, 4e-6)
    for kind, right in zip("kv", wanted, strict=True):
        kept, before = found[kind].numpy()[0], case.feeds[f"past_{kind}"][0]
        np.testing.assert_allclose(kept[:, :7], right, 0, 4e-6)
        # what no row uses is as it was in place, and zeros in a copy
        behind = 0 * before if read_elsewhere and kind == "k" else before
        np.testing.assert_array_equal(kept[:, 7:], behind[:, 7:])
    if read_elsewhere:
        np.testing.assert_array_equal(found["double"].numpy(), 2 * case.feeds["past_k"])
