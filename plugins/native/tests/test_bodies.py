"""Bodies, which only the host can run, with what a library gives for its memory."""

from __future__ import annotations

import ctypes
import logging
import re
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest

import onnxplug
from onnxplug import errors

from .conftest import feeds

EXAMPLE = "ExampleExecutionProvider"


def open_session(model: bytes) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(model, providers=[EXAMPLE, "cpu"])


def owners(session: onnxplug.InferenceSession) -> dict[str, str]:
    return {each.op_type: each.ep for each in session.explain().nodes}


def counts(path: Any) -> tuple[int, int]:
    """How often the library put arrays together, and changed the order of axes."""
    library = ctypes.CDLL(str(path))
    return library.example_concatenated(), library.example_transposed()


_LOOP = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x) => (float[2, 3] y, float[n, 2, 3] z) {
  m = Constant<value = int64 {4}>()
  k = Constant<value = bool {1}>()
  y, z = Loop(m, k, x) <body = b (int64 i, bool c, float[2, 3] v)
    => (bool d, float[2, 3] w, float[2, 3] o) {
    d = Identity(c) w = Mul(v, x) o = Mul(w, w)
  }>
}"""


def test_what_a_loop_gathers_is_put_together_by_the_library(register) -> None:
    path = register("DEVICE_MEMORY", "KERNELS", "LOOP")
    before = counts(path)
    model, x = onnx.parser.parse_model(_LOOP), feeds(2, 3)["x"]
    expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    expected[1] = expected[1].reshape(4, 2, 3)  # which joins them, and stacks them not
    with open_session(model.SerializeToString()) as session:
        ran = owners(session)
        assert (ran["Mul"], ran["Loop"]) == (EXAMPLE, "host")
        for _ in range(2):
            found = session.run(None, {"x": x})
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6)
    assert counts(path) == (before[0] + 2, before[1])
    onnxplug.unregister_ep_library("example")
    assert ctypes.CDLL(str(path)).example_allocated() == 0


def scan(attributes: str = "", count: int = 1) -> onnx.ModelProto:
    """A model that goes through *count* arrays, and multiplies their parts by what it
    has of them."""
    names = ["x", "y"][:count]
    inputs = ", ".join(f"float[a{n}, b{n}, c{n}] {n}" for n in names)
    parts = ", ".join(f"float[p, q] part_{n}" for n in names)
    last = "part_y" if count == 2 else "part_x"
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[p, q] s, {inputs}) => (float[p, q] t, float[d, e, f] z) {{
          t, z = Scan<num_scan_inputs = {count} {attributes},
            body = b (float[p, q] u, {parts}) => (float[p, q] v, float[p, q] o) {{
              v = Mul(u, part_x) o = Mul(v, {last})
            }}>(s, {", ".join(names)})
        }}"""
    )


def moved(array: Any, axis: int, backward: bool) -> Any:
    """*array* as a Scan along its first axis wants it."""
    array = np.moveaxis(array, axis, 0)
    return np.ascontiguousarray(array[::-1] if backward else array)


@pytest.mark.parametrize("streams", [[], ["STREAMS"]])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("axis", "out_axis"), [(0, 0), (1, 0), (0, 2), (-1, 1)])
def test_a_scan_goes_along_any_axis_in_the_librarys_memory(
    register, streams, backward, axis, out_axis
) -> None:
    path = register("DEVICE_MEMORY", "KERNELS", "SCAN=1", *streams)
    before = counts(path)
    model = scan(
        f", scan_input_axes = [{axis}], scan_input_directions = [{int(backward)}], "
        f"scan_output_axes = [{out_axis}], scan_output_directions = [{int(backward)}]"
    )
    random = np.random.default_rng(0)
    x = np.moveaxis(random.standard_normal((5, 2, 3), np.float32), 0, axis)
    given = {"s": random.standard_normal((2, 3), np.float32), "x": x.copy()}
    plain = onnx.reference.ReferenceEvaluator(scan())
    with open_session(model.SerializeToString()) as session:
        ran = owners(session)
        assert (ran["Mul"], ran["Scan"]) == (EXAMPLE, "host")
        for _ in range(2):
            state, stacked = plain.run(
                None, {"s": given["s"], "x": moved(given["x"], axis, backward)}
            )
            if backward:
                stacked = stacked[::-1]
            found = session.run(None, given)
            np.testing.assert_allclose(found[0], state, rtol=1e-6)
            wanted = np.moveaxis(stacked, 0, out_axis)
            np.testing.assert_allclose(found[1], wanted, rtol=1e-6)
            given["x"] = given["x"] + 1
    # from either end the order of axes is made anew
    transposed = 2 * (2 * bool(axis) + bool(out_axis))
    assert counts(path) == (before[0], before[1] + transposed)
    del session
    onnxplug.unregister_ep_library("example")
    assert ctypes.CDLL(str(path)).example_allocated() == 0


def test_what_is_gone_through_from_both_ends_may_change_between_runs(register) -> None:
    """What is made of an array for one run is not used in the next."""
    register("DEVICE_MEMORY", "KERNELS", "SCAN=1")
    model = scan(", scan_input_axes = [1, 1], scan_input_directions = [0, 1]", count=2)
    random = np.random.default_rng(0)
    state = random.standard_normal((2, 3), np.float32)
    with open_session(model.SerializeToString()) as session:
        on_device = onnxplug.OrtValue.ortvalue_from_numpy(
            np.zeros((2, 4, 3), np.float32), "example_memory", 0
        )
        binding = session.io_binding()
        binding.bind_cpu_input("s", state)
        for name in "xy":
            binding.bind_ortvalue_input(name, on_device)
        for name in "tz":
            binding.bind_output(name)
        for _ in range(3):
            x = random.standard_normal((2, 4, 3), np.float32)
            on_device.update_inplace(x)
            session.run_with_iobinding(binding)
            expected = onnx.reference.ReferenceEvaluator(scan(count=2)).run(
                None, {"s": state, "x": moved(x, 1, False), "y": moved(x, 1, True)}
            )
            for one, other in zip(binding.copy_outputs_to_cpu(), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (2, r"making a kernel .* for Scan.*: the OrtScanKernelHelper has no Transpose"),
        (4, r"for Scan.* gave one of its own; expected what OrtEpApi.CreateScanKernel"),
    ],
)
def test_a_library_that_gives_nothing_for_a_scan_is_told_of(
    register, caplog, kind, told
) -> None:
    path = register("DEVICE_MEMORY", "KERNELS", f"SCAN={kind}")
    given = {"s": feeds(2, 3)["x"], "x": feeds(4, 2, 3)["x"]}
    model = scan()
    expected = onnx.reference.ReferenceEvaluator(model).run(None, given)
    with (
        caplog.at_level(logging.WARNING, logger="onnxplug.session"),
        open_session(model.SerializeToString()) as session,
    ):
        for one, other in zip(session.run(None, given), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
    (said,) = [each for each in caplog.records if "does without" in each.message]
    assert re.search(told, said.message)
    onnxplug.unregister_ep_library("example")
    assert ctypes.CDLL(str(path)).example_allocated() == 0


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (3, r"Transpose of .*\(FAIL\): the axes stay where they are"),
        (5, "returned as its status 0x1234"),
    ],
)
def test_what_fails_for_a_scan_is_the_runs_failure(register, kind, told) -> None:
    register("DEVICE_MEMORY", "KERNELS", f"SCAN={kind}")
    model = scan(", scan_input_axes = [1]")
    given = {"s": feeds(2, 3)["x"], "x": feeds(2, 4, 3)["x"]}
    with open_session(model.SerializeToString()) as session:
        for _ in range(2):
            with pytest.raises(errors.OnnxplugError, match=told):
                session.run(None, given)
