"""Products and sums that are rounded once, without an instruction for it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug_cpu.compiler.codegen.emit import Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.commands.recording import call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.machine.isa import LANES, SSE, Isa, host_isa

from .. import tiled
from ..interpreter import Interpreter

Array = np.ndarray[Any, Any]

_HOST = host_isa()
pytestmark = pytest.mark.skipif(
    _HOST is None or _HOST.triple != SSE.triple, reason="runs code for x86-64"
)

COUNT = 64 * LANES


class Fused(Generator):
    """``out = a * b + c``.

    Attributes:
        element: of the arrays.
    """

    words = ("a", "b", "c", "out")
    element: str

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, scalar = k.function, Type(self.element)
        vector = scalar.vector(LANES)

        def some(index: Value) -> None:
            a, b, c, out = (f.at(k.pointer(each), index, scalar) for each in self.words)
            f.store(f.fma(*(f.load(each, vector) for each in (a, b, c))), out)

        f.loop(COUNT, some, step=LANES)
        f.finish()


def fused(*given: Array) -> Array:
    """What a processor without the instruction computes."""
    interpreter = Interpreter(SSE)
    a, b, c = (interpreter.input(each) for each in given)
    out = interpreter.output(given[0].dtype, (COUNT,))
    views = {"a": a, "b": b, "c": c, "out": out}
    words: dict[str, Word] = {name: view.address for name, view in views.items()}
    element = {"float32": "f32", "float64": "f64"}[out.dtype_name]
    call(interpreter.recorder, Kernel(Fused(element)), words)
    interpreter.run()
    return interpreter.read(out)


def exact(x: float, y: float, z: float) -> Fraction:
    return Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_results_are_rounded_once(dtype: str) -> None:
    rng = np.random.default_rng(1)
    a, b, c = rng.standard_normal((3, COUNT)).astype(dtype)
    cancels, apart = slice(COUNT // 4), slice(COUNT // 2, None)
    c[cancels] = -(a * b)[cancels]
    c[apart] *= 2.0 ** rng.integers(-60, 60, COUNT // 2)
    found = fused(a, b, c)
    wanted = [exact(*each) for each in zip(a, b, c, strict=True)]
    # what rounding leaves of a product is a number of its own
    assert [Fraction(float(each)) for each in found[cancels]] == wanted[cancels]
    for result, number in zip(found, wanted, strict=True):
        step = Fraction(float(np.spacing(np.abs(result))))
        assert abs(Fraction(float(result)) - number) <= step * Fraction(501, 1000)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_special_values(dtype: str) -> None:
    largest = np.finfo(dtype).max
    given = np.array([np.inf, -np.inf, np.nan, 0, -0.0, 1, largest], dtype)
    a, b, c = (np.resize(each, COUNT) for each in np.meshgrid(given, given, given))
    with np.errstate(all="ignore"):
        wanted = a * b + c
    # only the square of the largest, less infinity, is finite on the way
    finite_on_the_way = (np.abs(a) == largest) & (np.abs(b) == largest) & np.isinf(c)
    wanted = np.where(finite_on_the_way, c, wanted)
    found = fused(a, b, c)
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    assert (same | (finite_on_the_way & (dtype == "f8"))).all()


def test_a_processor_without_the_instruction_compiles_networks() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        tested (float[3, 40] x, float[40] w) => (float[3, 40] y) {
          e = Exp (x)  s = Sigmoid (e)  t = Tanh (x)  r = Erf (t)
          p = Softmax (s)  q = Mul (p, r)  y = LayerNormalization (q, w)
        }"""
    )
    rng = np.random.default_rng(2)
    feeds = {
        "x": rng.standard_normal((3, 40), np.float32),
        "w": rng.standard_normal(40, np.float32),
    }
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    with tiled.host(SSE):
        session = onnxplug.InferenceSession(model)
        (found,) = session.run(None, feeds)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
