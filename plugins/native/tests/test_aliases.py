"""Kernels whose output has the content of an input, and is left in its memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest

import onnxplug

EXAMPLE = "ExampleExecutionProvider"

BETWEEN = "a = Mul(x, x) f = Flatten(a) z = Mul(f, f)"
LAST = "a = Mul(x, x) z = Flatten(a)"
FIRST = "f = Flatten(x) z = Mul(f, f)"
CHAIN = "a = Mul(x, x) f = Flatten(a) g = Flatten(f) h = Flatten(g) z = Mul(h, g)"
LATER = "a = Mul(x, x) f = Flatten(a) b = Mul(a, x) g = Flatten(b) z = Mul(f, g)"
REUSED = (
    "a = Mul(x, x) f = Flatten(a) b = Mul(f, f) c = Mul(b, f) d = Mul(c, b) "
    "g = Flatten(d) e = Mul(g, g) z = Mul(e, d)"
)
ALONE = "z = Flatten(x)"

CASES = {
    "between": (BETWEEN, "z", 1),
    "last": (LAST, "z", 1),
    "first": (FIRST, "z", 1),
    "a chain": (CHAIN, "z", 3),
    "read again later": (LATER, "z", 2),
    "memory that is used again": (REUSED, "z", 2),
    "alone": (ALONE, "z", 0),
    "an output and what it is of": (LAST, "a, z", 0),
    "two outputs of one": ("a = Mul(x, x) y = Flatten(a) z = Flatten(a)", "y, z", 1),
    "an output, and read": (
        "a = Mul(x, x) y = Flatten(a) b = Mul(a, a) z = Flatten(b)",
        "y, z",
        2,
    ),
}
"""Nodes, outputs, and how many of them share memory from the second run on."""


def model_of(nodes: str, outputs: str) -> onnx.ModelProto:
    shapes = {"a": "n, 3, 2", "y": "n, k", "z": "n, k"}
    listed = ", ".join(f"float[{shapes[n]}] {n}" for n in outputs.split(", "))
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[n, 3, 2] x) => ({listed}) {{ {nodes} }}"""
    )


class Counts:
    """What kernels of Flatten did since then."""

    def __init__(self, path: Any) -> None:
        self._library = ctypes.CDLL(str(path))
        self._before = self._now()

    def _now(self) -> list[int]:
        return [self._library.example_copied(), self._library.example_shared()]

    @property
    def copied(self) -> int:
        return self._now()[0] - self._before[0]

    @property
    def shared(self) -> int:
        return self._now()[1] - self._before[1]


def check(session: Any, model: onnx.ModelProto, sizes: list[int]) -> None:
    """Runs are right, and change what they are fed not."""
    random = np.random.default_rng(0)
    for size in sizes:
        x = random.standard_normal((size, 3, 2), np.float32)
        kept = x.copy()
        x.flags.writeable = False
        expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
        found = session.run(None, {"x": x})
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
        for each in found:  # which are the caller's
            each[...] = 7
        np.testing.assert_array_equal(x, kept)


@pytest.mark.parametrize("memory", [[], ["DEVICE_MEMORY"]])
@pytest.mark.parametrize("case", CASES)
def test_what_has_the_content_of_another_value_has_its_memory(
    register, memory, case
) -> None:
    nodes, outputs, shared = CASES[case]
    counts = Counts(register("KERNELS", "ALIASES=1", *memory))
    model = model_of(nodes, outputs)
    with onnxplug.InferenceSession(
        model.SerializeToString(), providers=[EXAMPLE, "cpu"]
    ) as session:
        assert {each.ep for each in session.explain().nodes} == {EXAMPLE}
        check(session, model, [2])
        assert counts.shared == 0
        check(session, model, [2])
        assert counts.shared == shared
        check(session, model, [2, 5, 5, 1, 2, 2, 2])


def test_what_is_not_said_to_be_the_same_has_its_own_memory(register) -> None:
    counts = Counts(register("KERNELS", "ALIASES=2"))
    model = model_of(CHAIN, "z")
    with onnxplug.InferenceSession(
        model.SerializeToString(), providers=[EXAMPLE, "cpu"]
    ) as session:
        check(session, model, [2, 2, 2])
    assert (counts.copied, counts.shared) == (9, 0)


@pytest.mark.parametrize("memory", [[], ["DEVICE_MEMORY"]])
def test_bound_outputs_are_the_memory_of_what_they_have_the_content_of(
    register, memory
) -> None:
    counts = Counts(register("KERNELS", "ALIASES=1", *memory))
    model = model_of(LAST, "z")
    where = ("example_memory", 0) if memory else ("cpu", 0)
    with onnxplug.InferenceSession(
        model.SerializeToString(), providers=[EXAMPLE, "cpu"]
    ) as session:
        zeros = np.zeros((2, 3, 2), np.float32)
        x = onnxplug.OrtValue.ortvalue_from_numpy(zeros, *where)
        z = onnxplug.OrtValue.ortvalue_from_numpy(zeros.reshape(2, 6), *where)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_output("z", z)
        for seed in range(4):
            given = np.random.default_rng(seed).standard_normal(zeros.shape, np.float32)
            x.update_inplace(given)
            session.run_with_iobinding(binding)
            wanted = (given * given).reshape(2, 6)
            np.testing.assert_allclose(z.numpy(), wanted, rtol=1e-6)
        del binding, x, z
    assert counts.shared == 3
