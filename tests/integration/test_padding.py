"""Dimensions that are padded to a few sizes for EPs that compile by shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.errors import EpError, OptionError, OptionWarning, OutputMismatch

from .shapes_lab import EP, Lab, counted, model

NET = model(
    """g (float[batch,seq,6] x, float[batch,1,6] shift) =>
        (float[batch,seq,4] y, float[k,6] w)
    <float[6,4] m = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
        20, 21, 22, 23, 24}, float[4,6] static = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
        13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24}> {
        a = Add (x, shift)
        b = MatMul (a, m)
        y = Softmax (b)
        w = Neg (static)
    }"""
)


def opened(pads: str, text: bytes = NET, **entries: str) -> Any:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.pad_dimensions", pads)
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", value)
    return onnxplug.InferenceSession(text, options, providers=[EP])


def fed(batch: int, seq: int) -> dict[str, Any]:
    rng = np.random.default_rng(batch * 100 + seq)
    return {
        "x": rng.standard_normal((batch, seq, 6)).astype(np.float32),
        "shift": rng.standard_normal((batch, 1, 6)).astype(np.float32),
    }


def check(session: Any, feed: dict[str, Any], text: bytes = NET) -> None:
    expected = ReferenceEvaluator(onnx.load_from_string(text)).run(None, feed)
    found = session.run(None, feed)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        assert one.flags.c_contiguous and one.flags.owndata and one.flags.writeable


def test_runs_share_what_is_compiled_for_a_bucket(lab: Lab) -> None:
    session = opened("batch=2,4,8")
    for batch in (1, 2, 3, 4, 5, 8, 3):
        check(session, fed(batch, 5))
    assert [shapes[0][0] for shapes in lab.compiled] == [2, 4, 8]
    assert counted(session).kept == (
        "x[2, 5, 6], shift[2, 1, 6]",
        "x[8, 5, 6], shift[8, 1, 6]",
        "x[4, 5, 6], shift[4, 1, 6]",
    )


def test_two_dimensions(lab: Lab) -> None:
    session = opened("batch=4; seq=3,8")
    for batch, seq in ((1, 1), (4, 3), (2, 8), (3, 5), (4, 2)):
        check(session, fed(batch, seq))
    assert {shapes[0][:2] for shapes in lab.compiled} == {(4, 3), (4, 8)}


def test_sizes_beyond_the_buckets_are_as_they_are(lab: Lab) -> None:
    session = opened("batch=4")
    check(session, fed(7, 2))
    check(session, fed(0, 2))
    assert [shapes[0][0] for shapes in lab.compiled] == [7, 0]


def test_outputs_that_are_bound(lab: Lab) -> None:
    session = opened("batch=4")
    feed = fed(3, 2)
    expected = session.run(["y"], feed)[0]
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    room = np.zeros((3, 2, 4), np.float32)
    binding.bind_ortvalue_output("y", onnxplug.OrtValue.ortvalue_from_numpy(room))
    binding.bind_output("w")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], expected)
    small = onnxplug.OrtValue.ortvalue_from_numpy(np.zeros((4, 2, 4), np.float32))
    binding.bind_ortvalue_output("y", small)
    with pytest.raises(OutputMismatch):
        session.run_with_iobinding(binding)
    assert not small.numpy().any()


def test_what_is_not_proven_is_not_padded(lab: Lab) -> None:
    mixing = model(
        "g (float[batch,3] x) => (float[batch,3] y) {"
        "  s = Softmax <axis = 0> (x)  y = Neg (s) }"
    )
    session = opened("batch=4", mixing)
    x = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    check(session, {"x": x}, mixing)
    assert lab.compiled == [((3, 3),)]
    (said,) = counted(session).notes
    assert said == ("'batch' is not padded: Softmax giving 's': it computes along it")
    assert said in str(session.explain())


def test_an_ep_that_does_not_allow_it(lab: Lab) -> None:
    lab.pads = False
    with pytest.warns(OptionWarning, match="no EP of the session"):
        session = opened("batch=4")
    check(session, fed(3, 2))
    assert lab.compiled == [((3, 2, 6), (3, 1, 6))]
    assert counted(session).notes == (f"nothing is padded, as {EP} does not allow it",)


def test_each_partition_is_padded_by_itself(lab: Lab) -> None:
    """What one partition gives to another is cut between them."""
    text = model(
        """g (float[batch,3] x) => (float[batch,3] y, float[1,3] z) {
            a = Add (x, x)  b = Erf (a)  y = Mul (b, a)
            e = Erf (y)  z = ReduceMean (e, zero) }""".replace(
            "=> (float[batch,3] y, float[1,3] z) {",
            "=> (float[batch,3] y, float[1,3] z) <int64[1] zero = {0}> {",
        )
    )
    session = opened("batch=4", text)
    x = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    check(session, {"x": x}, text)
    assert lab.compiled == [((4, 3),), ((4, 3), (4, 3)), ((3, 3),)]


def test_preparing_and_serving(lab: Lab) -> None:
    session = opened("batch=4", serve_while_compiling="1")
    shapes = {name: array.shape for name, array in fed(3, 2).items()}
    (prepared,) = session.prepare(shapes)
    assert prepared.ready
    assert lab.compiled == [((4, 2, 6), (4, 1, 6))]
    check(session, fed(2, 2))
    assert lab.runs[4] == 1
    check(session, fed(2, 3))  # served by the CPU EP, or compiled by then


def test_an_ep_that_gives_another_size(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened("batch=4")
    from . import shapes_lab

    def run(self: Any, inputs: Any, outputs: Any, context: Any) -> Any:
        return [np.zeros((3, 2, 4), np.float32), np.zeros((4, 6), np.float32)]

    monkeypatch.setattr(shapes_lab.Compiled, "run", run)
    with pytest.raises(EpError, match="expected 4 at axis 0, to which its inputs were"):
        session.run(None, fed(3, 2))


@pytest.mark.parametrize(
    "said",
    ["batch", "batch=", "batch=0", "batch=a", "=3", "batch=1;batch=2", "batch=-1"],
)
def test_entries_that_say_nothing(said: str) -> None:
    options = onnxplug.SessionOptions()
    with pytest.raises(OptionError, match="expected dimensions and the sizes"):
        options.add_session_config_entry("session.pad_dimensions", said)


def test_a_dimension_that_the_model_does_not_have(lab: Lab) -> None:
    with pytest.raises(OptionError, match=r"no free dimension 'batsch' .*'batch'"):
        opened("batsch=4")
