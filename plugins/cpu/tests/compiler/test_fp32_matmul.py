"""The option ``fp32_matmul``, and what decides whether tiles are used."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.authoring.entries import Cache
from onnxplug.errors import OptionError
from onnxplug_compiler.ir.buffers import Packed
from onnxplug_cpu.compiler import trial_of_tiles as trial
from onnxplug_cpu.compiler.kernels.contraction import bf16_tiles
from onnxplug_cpu.compiler.machine.isa import AMX, AVX512, Isa
from onnxplug_cpu.compiler.runtime import program as program_module
from onnxplug_cpu.compiler.runtime.arena import Arenas
from onnxplug_cpu.compiler.runtime.jit import Library
from onnxplug_cpu.compiler.segment import Compiler
from onnxplug_cpu.compiler.trial_of_tiles import splits_well

from . import tiled
from .interpreter import ISAS
from .lowered import commands

Array = np.ndarray[Any, Any]


def perceptron(*weights: Array, rows: int | str = 40) -> onnx.ModelProto:
    """Gemm with a transposed B, Relu, MatMul, Add of the input, on *rows* × 100."""
    first, second = weights or the_weights()
    return helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Gemm", ["x", "w", "c"], ["h"], transB=1),
                helper.make_node("Relu", ["h"], ["r"]),
                helper.make_node("MatMul", ["r", "v"], ["m"]),
                helper.make_node("Add", ["m", "x"], ["y"]),
            ],
            "perceptron",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 100])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 100])],
            [
                numpy_helper.from_array(first, "w"),
                numpy_helper.from_array(second, "v"),
                numpy_helper.from_array(BIAS, "c"),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )


RNG = np.random.default_rng(1)
BIAS = RNG.standard_normal(300).astype(np.float32)


def the_weights() -> tuple[Array, Array]:
    rng = np.random.default_rng(2)
    return (
        rng.standard_normal((300, 100)).astype(np.float32) / np.float32(10),
        rng.standard_normal((300, 100)).astype(np.float32) / np.float32(17),
    )


def reference(x: Array, *weights: Array) -> Array:
    first, second = weights or the_weights()
    wide = x.astype(np.float64)
    return np.maximum(wide @ first.T + BIAS, 0) @ second + wide


class Session:
    """A session, and what its constants are packed to."""

    def __init__(self, model: onnx.ModelProto, threads: int = 1, **given: Any) -> None:
        self._model, self._threads, self._given = model, threads, given
        options = onnxplug.SessionOptions()
        options.intra_op_num_threads = threads
        compilers: list[Compiler] = []
        make = Compiler.for_threads

        def noted(*rest: Any, **named: Any) -> Compiler:
            compilers.append(make(*rest, **named))
            return compilers[-1]

        with mock.patch.object(Compiler, "for_threads", noted):
            self._session = onnxplug.InferenceSession(
                model, options, providers=[("CPUExecutionProvider", given)]
            )
        (self._compiler,) = compilers

    def run(self, x: Array) -> Array:
        return np.asarray(self._session.run(None, {"x": x})[0])

    def tiled(self, x: Array) -> int:
        """How many products of a run are computed by tiles."""
        labels = commands(self._model, {"x": x}, self._threads, self._given)
        return sum(label.endswith("(bf16x3)") for label in labels)

    def packed_bytes(self) -> int:
        """What the session's explanation says that packed weights take."""
        (partition,) = self._session.explain().partitions
        return partition.counts.get("bytes of packed weights", 0)

    def packed(self) -> list[Packed]:
        """Packed constants that have memory."""
        found = {id(packed): packed for _, packed in self._compiler.packed.values()}
        return [packed for packed in found.values() if packed.memory is not None]


def an_input(rows: int = 40) -> Array:
    return np.random.default_rng(rows).standard_normal((rows, 100)).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_runs_on_tiles(threads: int) -> None:
    x = an_input()
    with tiled.host():
        session = Session(perceptron(), threads)
        found = session.run(x)
        by_fma = Session(perceptron(), threads, fp32_matmul="fma")
        assert session.tiled(x) == 2
        assert by_fma.tiled(x) == 0
        other = by_fma.run(x)
    np.testing.assert_allclose(found, reference(x), 0, 1e-5)
    np.testing.assert_allclose(other, reference(x), 0, 1e-5)
    assert (found != other).any()  # it was computed otherwise


def test_special_values_go_through_a_model() -> None:
    x = an_input()
    x[3, 7], x[5, 50], x[20, 0] = np.inf, np.nan, -3.4e38
    with tiled.host():
        found = Session(perceptron()).run(x)
        expected = Session(perceptron(), fp32_matmul="fma").run(x)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    assert np.isnan(found[5]).all()
    assert np.isfinite(np.delete(found, [3, 5, 20], axis=0)).all()


def test_shapes_decide_for_each_plan() -> None:
    with tiled.host():
        session = Session(perceptron(rows="n"))
        for rows, count in ((8, 0), (64, 2), (8, 0)):
            x = an_input(rows)
            np.testing.assert_allclose(session.run(x), reference(x), 0, 1e-5)
            assert session.tiled(x) == count


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3.4e38, 1e-40])
@pytest.mark.parametrize("large", [False, True])
def test_weights_that_do_not_split_stay_with_fma(bad: float, large: bool) -> None:
    """Only those; and their packed terms are not kept."""
    first, second = the_weights()
    second[250, 99] = bad
    x = np.minimum(an_input(), 0.5)
    rows: int | str = "n" if large else 40
    with tiled.host():
        session = Session(perceptron(first, second, rows=rows))
        found = session.run(x)
        assert session.tiled(x) == 1
        expected = Session(perceptron(first, second), fp32_matmul="fma").run(x)
        again = session.run(x)
        packed = session.packed()
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    np.testing.assert_array_equal(found, again)
    assert sorted(buffer.accepts is None for buffer in packed) == [False, True]


def test_terms_of_weights_take_six_bytes_and_nothing_else_is_packed() -> None:
    with tiled.host():
        session = Session(perceptron())
        packed = session.packed()
    # 100 × 300 and 300 × 100, in steps and panels of 32, and the verdicts
    assert sorted(buffer.nbytes for buffer in packed) == [
        6 * 320 * 128 + 64,
        6 * 128 * 320 + 128,
    ]
    assert all(not buffer.fill for buffer in packed)


def test_explanations_count_both_forms_of_weights() -> None:
    with tiled.host():
        session = Session(perceptron(rows="n"))
        counted = [session.packed_bytes()]
        for rows in (40, 3):
            session.run(an_input(rows))
            counted.append(session.packed_bytes())
    terms = 6 * 320 * 128 + 64 + 6 * 128 * 320 + 128
    floats = 4 * (100 * 304 + 300 * 112)
    assert counted == [0, terms, terms + floats]


def test_refusal_in_one_session_does_not_wait_for_another() -> None:
    """Who finds a constant refused plans anew, also when another thread packed it."""
    packed = Packed(64, lambda content: False)
    packed.refused = True
    with pytest.raises(program_module.PackingRefused):
        program_module.fill([packed], Library.host(), 1, Arenas())


def test_other_values_of_the_option_are_refused() -> None:
    with pytest.raises(OptionError, match="fp32_matmul"):
        Session(perceptron(), fp32_matmul="bf16x3")


# convolutions


def residual_block(size: int | str) -> onnx.ModelProto:
    """Convolutions of 3 × 3, of 1 × 1 and of stride 2, with what is behind them."""
    rng = np.random.default_rng(5)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        scale = np.sqrt(2 / np.prod(shape[1:]))
        array = (rng.standard_normal(shape) * scale).astype(np.float32)
        return numpy_helper.from_array(array, name)

    node, value = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("Conv", ["x", "a", "c"], ["0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["0"], ["1"]),
        node("Conv", ["1", "b"], ["2"], pads=[1, 1, 1, 1]),
        node("Conv", ["x", "d"], ["3"], strides=[2, 2]),
        node("Add", ["2", "3"], ["4"]),
        node("Relu", ["4"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "block",
        [value("x", TensorProto.FLOAT, [2, 64, size, size])],
        [value("y", TensorProto.FLOAT, [2, 96, None, None])],
        [
            weights("a", 96, 64, 3, 3),
            weights("b", 96, 96, 3, 3),
            weights("d", 96, 64, 1, 1),
            weights("c", 96),
        ],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [29, "n"])
def test_convolutions_run_on_tiles(threads: int, size: int | str) -> None:
    model = residual_block(size)
    wide = ReferenceEvaluator(model)
    with tiled.host():
        session = Session(model, threads)
        by_fma = Session(model, threads, fp32_matmul="fma")
        for width in (29,) if size == 29 else (28, 31, 56):
            rng = np.random.default_rng(width)
            x = rng.standard_normal((2, 64, width, width)).astype(np.float32)
            x[1, 3, 5, 7] = np.inf if width == 31 else 1
            with np.errstate(invalid="ignore"):
                (expected,) = wide.run(None, {"x": x})
            assert session.tiled(x) == 3
            assert by_fma.tiled(x) == 0
            found, other = session.run(x), by_fma.run(x)
            np.testing.assert_allclose(found, expected, 1e-5, 2e-5)
            np.testing.assert_allclose(other, expected, 1e-5, 2e-5)
            assert (found != other).any()  # it was computed otherwise


# the trial


def library() -> Library:
    """One that has compiled nothing, and reads nothing."""
    return Library(tiled.EMULATED[0], Cache("onnxplug-cpu", limit=0))


def test_the_trial_succeeds_and_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    with tiled.host():
        assert splits_well(library())
    assert not caplog.records


@pytest.mark.parametrize(
    "products",
    [
        ((1, 2), (2, 2), (2, 1), (3, 1), (1, 1)),  # one is missing
        ((1, 2), (1, 2), (2, 2), (2, 1), (3, 1), (1, 1)),
        ((1, 1),),
    ],
)
def test_wrong_products_are_found(
    caplog: pytest.LogCaptureFixture, products: tuple[tuple[int, int], ...]
) -> None:
    with tiled.host(), mock.patch.object(bf16_tiles, "PRODUCTS", products):
        found = library()
        assert not splits_well(found)
        assert not splits_well(found)
        assert not splits_well(library())
    (record,) = caplog.records
    assert record.name == "onnxplug.cpu"
    assert record.levelno == logging.WARNING
    assert "did not agree on a product" in record.message
    assert "fp32_matmul=fma" in record.message


def test_flags_that_are_lost_are_found(caplog: pytest.LogCaptureFixture) -> None:
    module = "onnxplug_cpu.compiler.kernels.contraction.bf16_tiles.multiply_add"
    with tiled.host(), mock.patch(module, lambda f, isa, a, b, c: c):
        assert not splits_well(library())
    assert "infinity and NaN" in caplog.text


def test_a_failed_trial_leaves_a_session_with_fma(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    x = an_input()
    with (
        tiled.host(),
        mock.patch.object(trial, "attempt", lambda _: "it was off; report"),
    ):
        for _ in range(2):
            session = Session(perceptron())
            np.testing.assert_allclose(session.run(x), reference(x), 0, 1e-5)
            assert session.tiled(x) == 0
    warnings = [record.message for record in caplog.records]
    assert warnings == [
        "float32 products are computed by FMA and not, faster, by AMX: it was off; "
        "report"
    ]


def test_a_success_is_kept_for_other_processes_on_the_same_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    attempt = mock.Mock(return_value="it was off; report")
    monkeypatch.setattr(trial, "attempt", attempt)

    def in_a_new_process(isa: Isa = tiled.EMULATED[0]) -> bool:
        attempt.reset_mock()
        with tiled.host(isa):
            return splits_well(Library(isa))

    assert not in_a_new_process()
    assert not in_a_new_process()  # failures are tried again
    attempt.assert_called_once()
    attempt.return_value = None
    assert in_a_new_process()
    attempt.assert_called_once()
    assert in_a_new_process()
    attempt.assert_not_called()
    assert in_a_new_process(tiled.EMULATED[0]._replace(l2=1 << 19))
    attempt.assert_called_once()
    monkeypatch.setattr("platform.release", lambda: "6.6.6")
    assert in_a_new_process()
    attempt.assert_called_once()


def test_there_is_no_trial_without_need(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    attempt = mock.Mock(return_value=None)
    with tiled.host(), mock.patch.object(trial, "attempt", attempt):
        Session(perceptron(), fp32_matmul="fma").run(an_input())
        Session(perceptron(rows=8)).run(an_input(8))
        assert not attempt.called
        Session(perceptron())
        Session(perceptron())
        assert attempt.call_count == 1


# permission


def test_a_refusal_of_the_system_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x = an_input()
    with tiled.host(ISAS[0], "Linux refuses the tiles; allow it"):
        for _ in range(2):
            session = Session(perceptron())
            np.testing.assert_allclose(session.run(x), reference(x), 0, 1e-5)
            assert session.tiled(x) == 0
        Session(perceptron(), fp32_matmul="fma")
        findings = [
            finding for finding in onnxplug_cpu_findings() if "AMX" in finding.message
        ]
    (record,) = caplog.records
    assert "Linux refuses the tiles; allow it" in record.message
    (finding,) = findings
    assert finding.message == "AMX is not used: Linux refuses the tiles"
    assert finding.remedy == "allow it"


def onnxplug_cpu_findings() -> list[Any]:
    from onnxplug_cpu.factory import CpuFactory

    return list(CpuFactory().diagnose())


def test_nobody_is_told_with_the_option_fma(caplog: pytest.LogCaptureFixture) -> None:
    with tiled.host(ISAS[0], "Linux refuses the tiles; allow it"):
        Session(perceptron(), fp32_matmul="fma").run(an_input())
    assert not caplog.records


def test_what_is_kept_for_tiles_is_kept_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    for isa in (AMX, AVX512, *tiled.EMULATED):
        library = Library(isa, Cache("x"))
        assert not library.remembers("a note")
        library.remember("a note")
        assert library.remembers("a note")


def test_processors_without_tiles_do_not_import_what_is_for_them() -> None:
    program = (
        "import sys, numpy, onnxplug\n"
        "from onnxplug_cpu.compiler.machine.isa import host_isa\n"
        "import onnxplug_cpu.compiler.segment\n"
        "assert not [m for m in sys.modules if 'bf16' in m or 'tile_registers' in m]"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
