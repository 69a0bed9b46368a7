"""What an EP returns is held against what its operators give, and the EP is blamed."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, ModelWarning, NodeError, OptionError

NAME = "LyingExecutionProvider"
MODEL = """
< ir_version: 10, opset_import: ["" : 21] >
agraph (float[N, 3] x, float[N, 3] y) => (float[N, 3] z) {
    s = Add (x, y)
    z = Neg (s)
}
"""

ROWS = """
< ir_version: 10, opset_import: ["" : 21] >
agraph (float[N, 3] x) => (seq(float[3]) rows) { rows = SplitToSequence (x) }
"""
X64 = np.ones(3)


def honest(inputs: Any, outputs: Any) -> Any:
    return [inputs[0] + inputs[1]]


class Lying(ep.ExecutionProvider):
    """Takes Add and SplitToSequence, and gives what it is told to."""

    answer: Callable[[Any, Any], Any] = staticmethod(honest)

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        return ep.CapabilityReport.per_node(
            graph,
            lambda node: (
                None
                if node.op_type in ("Add", "SplitToSequence")
                else ep.Reason(ep.RefusalCode.OP)
            ),
        )

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        return Compiled()


class Compiled(ep.CompiledPartition):
    def run(self, inputs: Any, outputs: Any, context: Any) -> Any:
        return Lying.answer(inputs, outputs)


class Factory(ep.EpFactory):
    spi_version = (0, 3)
    name = NAME

    def supported_devices(self, devices: Any) -> Any:
        cpus = [device for device in devices if device.type is ep.DeviceType.CPU]
        return [ep.EpDevice(ep_name=NAME, device=device) for device in cpus[:1]]

    def create(self, devices: Any, options: Any, session: Any) -> ep.ExecutionProvider:
        return Lying()


opened: list[onnxplug.InferenceSession] = []


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    onnxplug.register_ep_library("lying", Factory())
    yield
    while opened:
        opened.pop().close()
    Lying.answer = staticmethod(honest)
    onnxplug.unregister_ep_library("lying")


def session(text: str = MODEL) -> onnxplug.InferenceSession:
    model = onnx.parser.parse_model(text)
    opened.append(onnxplug.InferenceSession(model, providers=[NAME, "cpu"]))
    return opened[-1]


def feed(rows: int = 2) -> dict[str, Any]:
    return dict.fromkeys("xy", np.ones((rows, 3), np.float32))


WRONG: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "another dtype": (
        lambda i, o: [(i[0] + i[1]).astype(np.float64)],
        r"float64\[2, 3\]",
    ),
    "another byte order": (
        lambda i, o: [(i[0] + i[1]).astype(">f4")],
        r">f4\[2, 3\]|float32\[2, 3\]",
    ),
    "nothing": (lambda i, o: [None], "nothing"),
    "a list": (lambda i, o: [[1.0, 2.0]], "returned a list"),
    "another rank": (lambda i, o: [(i[0] + i[1])[0]], r"shape \[3\]"),
    "another size": (lambda i, o: [(i[0] + i[1])[:, :2]], r"shape \[2, 2\]"),
    "another size where it has a name": (
        lambda i, o: [np.concatenate([i[0], i[1]])],
        r"shape \[4, 3\].*shape \[2, 3\]",
    ),
    "too many": (lambda i, o: [i[0], i[1]], "2 arrays"),
    "no list": (lambda i, o: None, "NoneType"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_result_is_the_eps_failure(wrong: str) -> None:
    answer, words = WRONG[wrong]
    made = session()
    made.run(None, feed())
    for rows in (2, 5):  # shapes that the partition was run with, and others
        Lying.answer = staticmethod(answer)
        with pytest.raises(EpError, match=NAME) as caught:
            made.run(None, feed(rows))
        assert caught.value.ep == NAME
        if rows == 2:
            assert re.search(words, str(caught.value))
        Lying.answer = staticmethod(honest)
        made.run(None, feed(rows))


@pytest.mark.parametrize("wrong", [np.float64(1), X64, None, {}])
def test_a_wrong_sequence_is_the_eps_failure(wrong: Any) -> None:
    made = session(ROWS)
    Lying.answer = staticmethod(lambda i, o: [list(i[0])])
    for _ in range(2):  # the second is compared with the first
        made.run(None, {"x": feed()["x"]})
    Lying.answer = staticmethod(lambda i, o: [[*i[0], wrong]])
    with pytest.raises(EpError, match=f"{NAME} returned a list"):
        made.run(None, {"x": feed()["x"]})
    Lying.answer = staticmethod(lambda i, o: [wrong])
    with pytest.raises(EpError, match=f"{NAME} returned"):
        made.run(None, {"x": feed()["x"]})


def test_a_wrong_declaration_is_no_fault_of_the_ep() -> None:
    text = MODEL.replace("=> (float[N, 3] z)", "=> (float[7, 3] z)")
    made = session(text)
    with pytest.warns(ModelWarning, match="the model's declaration is wrong"):
        (found,) = made.run(None, feed())
    assert found.shape == (2, 3)


def write_to_input(inputs: Any, outputs: Any) -> Any:
    result = inputs[0] + inputs[1]
    address = inputs[0].__array_interface__["data"][0]  # as a native engine would
    ctypes.memset(address, 0, inputs[0].nbytes)
    return [result]


def test_writing_to_an_input_is_the_eps_failure_where_that_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONNXPLUG_CHECK", "1")
    made = session()
    made.run(None, feed())
    Lying.answer = staticmethod(write_to_input)
    with pytest.raises(EpError, match="wrote to 'x', an input of partition 0"):
        made.run(None, feed())


def test_a_switch_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CHECK", "maybe")
    with pytest.raises(OptionError, match="ONNXPLUG_CHECK is 'maybe'"):
        session()


def test_another_array_than_the_bound_one_is_the_eps_failure() -> None:
    text = MODEL.replace("z = Neg (s)", "t = Neg (s)").replace(
        "(float[N, 3] z)", "(float[N, 3] s)"
    )
    made = session(text)
    binding = made.io_binding()
    for name, array in feed().items():
        binding.bind_cpu_input(name, array)
    target = np.zeros((2, 3), np.float32)
    binding.bind_ortvalue_output("s", onnxplug.OrtValue.ortvalue_from_numpy(target))
    Lying.answer = staticmethod(lambda i, o: [i[0] + i[1]])
    with pytest.raises(EpError, match="another array than the one that was bound"):
        made.run_with_iobinding(binding)


def filled(made: onnxplug.InferenceSession, x: Any, target: Any) -> Any:
    """*target*, which is bound to the sum of *x* and ones."""
    binding = made.io_binding()
    binding.bind_ortvalue_input("x", onnxplug.OrtValue.ortvalue_from_numpy(x))
    binding.bind_cpu_input("y", np.ones((2, 3), np.float32))
    binding.bind_ortvalue_output("s", onnxplug.OrtValue.from_dlpack(target))
    made.run_with_iobinding(binding)
    return target


ADD = MODEL.replace("    z = Neg (s)\n", "").replace("3] z)", "3] s)")


def test_not_to_fill_a_bound_array_is_the_eps_failure_where_that_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONNXPLUG_CHECK", "1")
    x = np.zeros((2, 3), np.float32)
    Lying.answer = staticmethod(lambda i, o: o if o[0] is not None else honest(i, o))
    with pytest.raises(EpError, match="did not write to the array bound to 's'"):
        filled(session(ADD), x, before := np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(before, np.ones((2, 3)))
    Lying.answer = staticmethod(lambda i, o: [np.add(*i, out=o[0])])
    strided = np.zeros((3, 2), np.float32).T
    np.testing.assert_array_equal(filled(session(ADD), x, strided), np.ones((2, 3)))


def test_what_is_computed_in_place_is_not_overwritten_where_that_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONNXPLUG_CHECK", "1")
    Lying.answer = staticmethod(lambda i, o: [np.add(*i, out=o[0])])
    x = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(filled(session(ADD), x, x), np.ones((2, 3)))


def test_a_failing_node_names_its_ep_and_its_partition() -> None:
    text = """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[] x, int64[] i) => (float[] y) { y = Gather (x, i) }
    """
    made = onnxplug.InferenceSession(onnx.parser.parse_model(text))
    with pytest.raises(NodeError, match="partition 0: Gather") as caught:
        made.run(None, {"x": np.ones(3, np.float32), "i": np.array([7])})
    assert caught.value.ep == "CPUExecutionProvider"
    assert str(caught.value).startswith("CPUExecutionProvider, partition 0: ")
