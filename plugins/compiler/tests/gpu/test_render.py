"""The texts of kernels; no adapter is needed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from onnxplug_compiler import gpu
from onnxplug_compiler.gpu.command import MOST_BUFFERS, Launch, as_bits, merged, render
from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.gpu.families import contractions, elementwise, indexing, movement
from onnxplug_compiler.gpu.render.body import Body
from onnxplug_compiler.gpu.render.wgsl import WGSL
from onnxplug_compiler.ir.buffers import Input, Output, Temporary
from onnxplug_compiler.ir.elementwise import Chain, ChainBuilder, Scalar, Step
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

F32, I64, BOOL = (np.dtype(name) for name in ("float32", "int64", "bool"))


def view(shape: tuple[int, ...], dtype: np.dtype = F32, kind: type = Temporary) -> View:
    nbytes = max(1, int(np.prod(shape))) * dtype.itemsize
    buffer = Temporary(nbytes) if kind is Temporary else kind(0, nbytes)
    return View.contiguous(buffer, dtype, shape)


def text_of(launch: Launch, bindings: tuple[int, ...] | None = None) -> str:
    count = len(launch.views)
    body = render(launch.kernel, bindings or tuple(range(count)), WGSL)
    return body.text(launch.kernel.lanes)


def recorded(*chains: tuple[Chain, list[View], list[View]]) -> list[Launch]:
    recorder = Recorder(GpuTarget())
    for chain, inputs, outputs in chains:
        elementwise.record_chain(recorder, chain, inputs, outputs)
    return recorder.commands


ADD = Chain(("f32", "f32"), (), (Step("Add", (0, 1), "f32"),), (2,))


def test_a_chain_is_one_kernel_with_a_buffer_for_each_array() -> None:
    x, y, out = view((4, 3)), view((3,)), view((4, 3))
    (launch,) = recorded((ADD, [x, y], [out]))
    assert text_of(launch) == (
        "@group(0) @binding(0) var<uniform> words: array<vec4<i32>, 3>;\n"
        "@group(0) @binding(1) var<storage, read> b0: array<u32>;\n"
        "@group(0) @binding(2) var<storage, read> b1: array<u32>;\n"
        "@group(0) @binding(3) var<storage, read_write> b2: array<u32>;\n"
        "@compute @workgroup_size(64)\n"
        "fn main(@builtin(workgroup_id) group: vec3<u32>,\n"
        "        @builtin(num_workgroups) groups: vec3<u32>,\n"
        "        @builtin(local_invocation_index) lane: u32) {\n"
        "  let block = group.x + group.y * groups.x;\n"
        "  let v1: u32 = block * 64u + lane;\n"
        "  if (v1 < u32(words[0].x)) {\n"
        "    let v2: u32 = v1 % u32(words[0].z);\n"
        "    let v3: u32 = v1 / u32(words[0].z);\n"
        "    let v4: i32 = words[0].w + i32(v3) * words[1].x + i32(v2) * words[1].y;\n"
        "    let v5: f32 = bitcast<f32>(b0[u32(v4)]);\n"
        "    let v6: i32 = words[1].z + i32(v3) * words[1].w + i32(v2) * words[2].x;\n"
        "    let v7: f32 = bitcast<f32>(b1[u32(v6)]);\n"
        "    let v8: f32 = v5 + v7;\n"
        "    let v9: i32 = words[2].y + i32(v3) * words[2].z + i32(v2) * words[2].w;\n"
        "    b2[u32(v9)] = bitcast<u32>(v8);\n"
        "  }\n"
        "}\n"
    )
    assert launch.sizes == (12, 4, 3)
    assert [each.strides for each in launch.views] == [(3, 1), (0, 1), (3, 1)]


def test_arrays_in_one_buffer_have_one_binding() -> None:
    """WebGPU has no buffer that is read at one binding and written at another."""
    x = view((4,))
    (launch,) = recorded((ADD, [x, x], [x]))
    text = text_of(launch, (0, 0, 0))
    assert text.count("var<storage") == 1
    assert "var<storage, read_write> b0" in text


def test_who_writes_a_bool_leaves_the_bytes_beside_it() -> None:
    less = Chain(("f32", "f32"), (), (Step("Less", (0, 1), "i1"),), (2,))
    (launch,) = recorded((less, [view((4,)), view((4,))], [view((4,), BOOL)]))
    text = text_of(launch)
    assert "b2: array<atomic<u32>>" in text
    assert re.search(r"atomicAnd\(&b2\[.*\], ~\(0xffu << v\d+\)\);", text)
    assert "atomicOr(&b2[" in text
    # what is only read is not atomic
    assert "b0: array<u32>" in text


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_no_expression_of_constants_is_infinite(value: float) -> None:
    builder = ChainBuilder()
    x = builder.input("f32")
    total = builder.step("Add", [x, builder.constant("f32", value)], "f32")
    (launch,) = recorded((builder.build([total]), [view((4,))], [view((4,))]))
    text = text_of(launch)
    (bits,) = re.findall(r"\+ not_finite\((0x[0-9a-f]+)u\)", text)
    found = np.array(int(bits, 16), np.uint32).view(np.float32)
    np.testing.assert_array_equal(found, np.float32(value))


def test_the_least_integer_is_no_negated_literal() -> None:
    assert WGSL.number("i32", -(2**31)) == "i32(-2147483647 - 1)"
    assert WGSL.number("u32", 2**32 - 1) == "4294967295u"


def test_a_chain_with_too_many_results_becomes_several() -> None:
    steps = tuple(Step("Neg", (n,), "f32") for n in range(9))
    chain = Chain(("f32",), (), steps, tuple(range(1, 10)))
    outputs = [view((4,)) for _ in steps]
    launches = recorded((chain, [view((4,))], outputs))
    assert [len(launch.views) for launch in launches] == [8, 3]
    written = [v.buffer for launch in launches for v in launch.views[1:]]
    assert written == [v.buffer for v in outputs]
    # the second has all steps that its outputs need
    assert text_of(launches[1]).count("-(") == 9


def test_parts_of_a_chain_do_not_read_what_others_wrote() -> None:
    steps = tuple(Step("Neg", (n,), "f32") for n in range(8))
    chain = Chain(("f32",), (), steps, tuple(range(1, 9)))
    x = view((4,))
    outputs = [x, *(view((4,)) for _ in range(8))]
    with pytest.raises(ValueError, match=f"at most {MOST_BUFFERS}"):
        recorded((chain, [x], outputs))


def test_axes_that_lie_alike_are_one() -> None:
    a, b = view((2, 3, 4)), view((2, 1, 1)).broadcast_to((2, 3, 4))
    found = merged([a, b])
    assert [each.shape for each in found] == [(2, 12), (2, 12)]
    assert [each.strides for each in found] == [(12, 1), (1, 0)]


def test_what_moves_is_words_of_at_most_32_bits() -> None:
    wide = as_bits(view((2, 3), I64).transpose((1, 0)))
    assert (wide.shape, wide.strides) == ((3, 2, 2), (2, 6, 1))
    assert as_bits(view((2,), BOOL)).dtype == np.uint8


def test_kernels_of_equal_numbers_have_texts_of_their_own() -> None:
    """Records of two classes are equal if their fields are."""
    recorder = Recorder(GpuTarget())
    data, indices = view((4, 4)), view((4,), I64)
    indexing.record_gather(recorder, data, indices, view((4, 4)), 0)
    indexing.record_gather_elements(recorder, data, view((4, 4), I64), view((4, 4)), 0)
    first, second = recorder.commands
    assert type(first.kernel) is not type(second.kernel)
    assert text_of(first) != text_of(second)


def test_an_index_of_int64_is_two_words_and_is_checked() -> None:
    recorder = Recorder(GpuTarget())
    out = view((2, 4), kind=Output)
    indexing.record_gather(recorder, view((3, 4), kind=Input), view((2,), I64), out, 0)
    (launch,) = recorder.commands
    text = text_of(launch)
    assert ">> 31u" in text and "atomicMax(&b3[" in text
    (check,) = recorder.checks
    assert check.flag is launch.views[3].buffer
    with pytest.raises(IndexError, match="Gather"):
        raise check.error(1)


def test_a_product_has_its_chain_and_a_tile_for_its_sizes() -> None:
    recorder = Recorder(GpuTarget())
    contractions.record_matmul(recorder, view((40, 9)), view((9, 5)), view((40, 5)))
    (launch,) = recorder.commands
    assert (launch.kernel.tall, launch.kernel.wide) == (4, 1)
    assert launch.groups == 1 and launch.flops == 2 * 40 * 9 * 5
    text = text_of(launch)
    assert text.count("workgroupBarrier();") == 2
    shared = re.findall(r"var<workgroup> \w+: array<f32, (\d+)>", text)
    # WebGPU has 16 KiB for a workgroup everywhere
    assert sum(map(int, shared)) * 4 <= 16384
    assert "@workgroup_size(256)" in text


def test_a_copy_within_words_shares_them() -> None:
    recorder = Recorder(GpuTarget())
    movement.record_copy(recorder, view((3,), BOOL), view((3,), BOOL))
    movement.record_copy(recorder, view((0,)), view((0,)))
    (launch,) = recorder.commands
    assert "atomic<u32>" in text_of(launch)


def test_a_scalar_has_no_coordinates() -> None:
    (launch,) = recorded((ADD, [view(()), view((1,))], [view((1, 1))]))
    assert launch.sizes == (1,)
    assert "%" not in text_of(launch)


def test_numbers_of_a_chain_are_told_apart_by_their_texts() -> None:
    """0.0 equals -0.0, and True equals 1."""
    texts = set()
    for value in (0.0, -0.0):
        chain = Chain(("f32",), (Scalar("f32", value),), ADD.steps, (2,))
        (launch,) = recorded((chain, [view((4,))], [view((4,))]))
        texts.add(text_of(launch))
    assert len(texts) == 2


def test_every_loop_of_a_kernel_counts_up() -> None:
    body = Body(WGSL, (), (), 0)
    for step in ("0u", "v1", "-1u", "u", ""):
        with (
            pytest.raises(ValueError, match="need not end"),
            body.loop("8u", step=step),
        ):
            pass
    # and none is written in another way
    folder = Path(gpu.__file__).parent
    texts = {path: path.read_text("utf-8") for path in folder.rglob("*.py")}
    looping = {path.name for path, text in texts.items() if ".loop(name" in text}
    assert looping == {"body.py"}
    own = {"wgsl.py", "cuda.py"}
    for path, text in texts.items():
        found = re.findall(r"\"\s*(for|while|do|loop|goto)\b ?[({]", text)
        assert len(found) == (path.name in own), path
