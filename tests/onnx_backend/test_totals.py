"""The command that counts: what passes, fails, crashes and hangs is told apart."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

FOLDER = Path(__file__).parent


def load(name: str) -> ModuleType:
    # tests are imported by path and form no package; the scripts import each other
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


load("suite")
engines, totals = load("engines"), load("totals")

CASES = ["test_add", "test_relu", "test_sub", "test_bernoulli"]

X = np.array([-1.0, 0.5], np.float32)

pytestmark = [
    pytest.mark.skipif(
        totals._start_method() != "fork", reason="needs cases that a child inherits"
    ),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def model_of(op_type: str, *inputs: Any, output: int, **attributes: Any) -> Any:
    """A model of one node on inputs like *inputs*."""
    names = [f"x{position}" for position, _ in enumerate(inputs)]
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in zip(names, inputs, strict=True)
    ]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    result = helper.make_tensor_value_info("y", output, inputs[0].shape)
    graph = helper.make_graph([node], "one", values, [result])
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.fixture(autouse=True)
def cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some cases, in place of the suite's, which take long to make."""

    def case(op_type: str, expected: Any, *inputs: Any) -> Any:
        def run() -> None:
            model = model_of(op_type, *inputs, output=TensorProto.FLOAT)
            (result,) = totals._Chosen.prepare(model).run(inputs)
            np.testing.assert_allclose(result, expected, rtol=1e-3)

        return run

    loaded = {
        "test_add": case("Add", X + X, X, X),
        "test_relu": case("Relu", np.maximum(X, 0), X),
        "test_sub": case("Sub", X - X, X, X),
        "test_bernoulli": case("Bernoulli", np.ones_like(X), X),
    }
    monkeypatch.setattr(totals, "_loaded", loaded)


def engine(prepare: Any, **facts: Any) -> Any:
    return engines.Engine("an engine", "onnx", prepare, **facts)


def exact(model: Any) -> Any:
    """Add, Relu and Sub; a bernoulli case has the right type, and no right number."""
    functions = {
        "Add": np.add,
        "Sub": np.subtract,
        "Relu": lambda x: np.maximum(x, 0),
        "Bernoulli": lambda x: np.full_like(x, 2),
    }
    function = functions[model.graph.node[0].op_type]
    return lambda inputs: [function(*inputs)]


def test_what_passes_is_counted_and_draws_are_told_apart() -> None:
    total = totals.measure(engine(exact), CASES)
    assert (total.passed, total.cases) == (3, 4)
    assert (total.crashes, total.drawn, total.refused) == (0, 1, 0)
    (line,) = totals.table([total])
    assert line.split()[:2] == ["an", "engine"]
    assert line.endswith("3 of 4  (1 more compare random draws)")


def test_a_crash_costs_one_case_and_the_run_goes_on() -> None:
    def crash(model: Any) -> Any:
        if model.graph.node[0].op_type == "Relu":
            os.kill(os.getpid(), signal.SIGKILL)
        return exact(model)

    total = totals.measure(engine(crash), CASES)
    assert (total.passed, total.crashes) == (2, 1)
    assert total.failures["test_relu"] == "the process ended with code -9"


def test_a_case_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(model: Any) -> Any:
        if model.graph.node[0].op_type == "Add":
            time.sleep(60)
        return exact(model)

    monkeypatch.setattr(totals, "_PATIENCE", 0.5)
    total = totals.measure(engine(hang), CASES[:3])
    assert (total.passed, total.crashes) == (2, 1)
    assert "took longer" in total.failures["test_add"]


def test_models_that_are_too_new_are_counted_apart() -> None:
    def refuse(model: Any) -> Any:
        if model.graph.node[0].op_type == "Sub":
            raise ValueError("opset 99 is beyond me")
        return exact(model)

    total = totals.measure(engine(refuse, refusals=("is beyond me",)), CASES)
    assert (total.passed, total.refused) == (2, 1)
    (line,) = totals.table([total])
    assert "2 of the 3 not too new for it" in line
    assert totals.as_data(total)["refused as too new"] == 1


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_batches_make_no_difference(batch: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(totals, "_BATCH", batch)
    assert totals.measure(engine(exact), CASES[:3]).passed == 3


TO_BFLOAT16 = (
    model_of("Cast", X, output=TensorProto.BFLOAT16, to=TensorProto.BFLOAT16),
    (X,),
    X.astype(ml_dtypes.bfloat16),
)
FROM_BFLOAT16 = (
    model_of("Cast", TO_BFLOAT16[2], output=TensorProto.FLOAT, to=TensorProto.FLOAT),
    (TO_BFLOAT16[2],),
    X,
)
INT4 = np.array([1, -8, 7], ml_dtypes.int4)
ONE = np.ones((), np.float32)
FROM_INT4 = (
    model_of("DequantizeLinear", INT4, ONE, output=TensorProto.FLOAT),
    (INT4, ONE),
    INT4.astype(np.float32),
)
# a number of numpy's in place of an array, as the suite has it
OF_A_NUMBER = (
    model_of("Abs", ONE, output=TensorProto.FLOAT),
    (np.float32(-1),),
    ONE,
)


@pytest.mark.parametrize("name", engines.ENGINES)
@pytest.mark.parametrize("form", [TO_BFLOAT16, FROM_BFLOAT16, FROM_INT4, OF_A_NUMBER])
def test_engines_are_given_what_they_can_take(name: str, form: Any) -> None:
    peer = engines.ENGINES[name]
    if not peer.version:
        pytest.skip(f"{peer.title} is not installed")
    model, inputs, expected = form
    with peer.context():
        (result,) = peer.prepare(model)(inputs)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


def test_the_engine_without_the_reference_raises_where_it_is_used() -> None:
    peer = engines.ENGINES["onnxplug-alone"]
    with (
        peer.context(),
        pytest.raises(AssertionError, match=r"onnx\.reference was used"),
    ):
        engines.ENGINES["reference"].prepare(OF_A_NUMBER[0])


def test_an_engine_that_is_not_installed_has_no_version() -> None:
    absent = engines.Engine("none", "no-such-distribution", exact)
    assert absent.version == ""


def test_a_case_that_does_not_exist_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["totals.py", "test_ad"])
    with pytest.raises(SystemExit):
        totals.main()
    assert "the suite has no case test_ad" in capsys.readouterr().err


def test_the_command_prints_a_line_for_each_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["totals.py", "--engine", "onnxplug-alone", "--engine", "reference"]
    monkeypatch.setattr(sys, "argv", [*argv, "test_add", "test_sub"])
    assert totals.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("  ")[2].strip() for line in lines] == ["2 of 2"] * 2
