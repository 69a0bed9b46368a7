"""Shapes of workgroups: which there may be, and what kernels have of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.gpu.command import render
from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.gpu.families import contractions, reductions, rows, selection
from onnxplug_compiler.gpu.render.wgsl import WGSL
from onnxplug_compiler.gpu.shapes import DEFAULT, Shapes
from onnxplug_compiler.ir.buffers import Temporary
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"side": 12}, "side is 12, and no power of two"),
        ({"per_lane": 0}, "per_lane is 0"),
        ({"row_lanes": 64.0}, r"row_lanes is 64\.0"),
        ({"row_lanes": True}, "row_lanes is True"),
        ({"row_lanes": 1}, "row_lanes is 1"),
        ({"row_lanes": 512}, "more than 256 lanes"),
        ({"few_lanes": 512}, "more than 256 lanes"),
        ({"per_lane": 16}, "more than 16384 B"),
    ],
)
def test_shapes_that_not_all_targets_have_are_refused(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        DEFAULT._replace(**changed).check()
    DEFAULT.check()


def test_a_lane_has_no_more_elements_than_the_result() -> None:
    sizes = 1, 16, 17, 32, 33, 1000
    assert [DEFAULT.per_lane_for(size, 16) for size in sizes] == [1, 1, 2, 2, 4, 4]
    assert Shapes(per_lane=1).per_lane_for(1000, 16) == 1


def _view(*shape: int, dtype: Any = np.float32) -> View:
    kind = np.dtype(dtype)
    buffer = Temporary(int(np.prod(shape)) * kind.itemsize)
    return View.contiguous(buffer, kind, shape)


def _recorded(shapes: Shapes) -> list[tuple[int, int, str]]:
    """Of some launches lanes, workgroups and text."""
    recorder: Recorder[Any] = Recorder(GpuTarget(shapes=shapes))
    for count in (8, 9):
        a, b, out = _view(count, 70), _view(70, 40), _view(count, 40)
        contractions.record_matmul(recorder, a, b, out)
    x, y = _view(5, 40), _view(5, dtype=np.int64)
    rows.record_softmax(recorder, x, _view(5, 40))
    rows.record_norm(recorder, x, _view(5, 40), epsilon=1e-5)
    reductions.record_reduce(recorder, "ReduceSum", x, _view(5), (1,))
    reductions.record_moments(recorder, x, (1,))
    selection.record_arg_extreme(
        recorder, x, View(y.buffer, 0, y.dtype, (5, 1), (1, 1)), 1, largest=True
    )
    return [
        (
            each.kernel.lanes,
            each.groups,
            render(each.kernel, range(len(each.views)), WGSL).text(each.kernel.lanes),
        )
        for each in recorder.commands
    ]


def test_kernels_have_the_shapes_of_the_target() -> None:
    default = [(lanes, groups) for lanes, groups, _ in _recorded(DEFAULT)]
    assert default == [(64, 2), (256, 1), *[(64, 5)] * 5]
    other = _recorded(Shapes(8, 4, 2, 16, 64))
    assert [(lanes, groups) for lanes, groups, _ in other] == [
        *((4, 10), (64, 3)),
        *[(16, 5)] * 2,
        *[(64, 1)] * 3,
    ]
    for lanes, _, text in other:
        assert f"@workgroup_size({lanes}" in text
        shared = re.findall(r"var<workgroup> \w+: array<\w+, (\d+)>", text)
        assert sum(4 * int(count) for count in shared) <= 16384


@pytest.mark.parametrize(("busy", "parts"), [(1, 1), (3, 1), (4, 2), (132, 8)])
def test_long_sums_of_few_tiles_are_split_for_a_gpu_that_is_not_busy(
    busy: int, parts: int
) -> None:
    """Of two tiles, whose sums are whole multiples of all parts."""
    recorder: Recorder[Any] = Recorder(GpuTarget(shapes=DEFAULT._replace(busy=busy)))
    a, b, out = _view(40, 8192), _view(8192, 100), _view(40, 100)
    contractions.record_matmul(recorder, a, b, out)
    product, *added = recorder.commands
    assert product.sizes[3] == parts
    assert [len(each.kernel.chain.inputs) for each in added] == [parts] * (parts > 1)
