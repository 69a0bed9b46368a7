"""Small models, and EPs to run them that need no plugin to be installed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
from onnx import helper

from onnxplug.cli.main import main
from onnxplug.ep import DataType, EpFactory
from onnxplug.plugins import registry
from onnxplug.testing import Knobs, SimulatedFactory, ToyFactory


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Outcome]
SaveModel = Callable[..., str]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command in this process."""

    def run(*argv: object) -> Outcome:
        code = main([str(word) for word in argv])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[EpFactory], str]:
    """Makes an EP known until the test ends; its name."""
    known = {record.name: record for record in registry.records()}
    monkeypatch.setattr(registry, "_records", known)

    def add(factory: EpFactory) -> str:
        return registry.add(factory).name

    return add


@pytest.fixture
def toy(register) -> str:
    """The toy EP, registered: Add, Mul, Relu and Sub of float32."""
    return register(ToyFactory())


@pytest.fixture
def simulated(register) -> str:
    """A simulated accelerator, registered, which multiplies."""
    return register(SimulatedFactory(Knobs(ops=frozenset({"Mul"}))))


@pytest.fixture
def no_others(register, monkeypatch: pytest.MonkeyPatch) -> None:
    """No EP is installed."""
    monkeypatch.setattr(registry, "_records", {})


@pytest.fixture
def save_model(tmp_path: Path) -> SaveModel:
    """Saves a model that is a chain of *ops*, each on all inputs or the last value."""

    def save(
        ops: Sequence[str] = ("Relu",),
        inputs: Mapping[str, Sequence[int | str | None]] | None = None,
        dtype: DataType = DataType.FLOAT32,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        inputs = inputs or {"x": ["N", 3]}
        nodes, last = [], list(inputs)
        for number, op in enumerate(ops):
            result = "y" if number == len(ops) - 1 else f"value{number}"
            nodes.append(helper.make_node(op, last, [result], name=f"node{number}"))
            last = [result]
        graph = helper.make_graph(
            nodes,
            "chain",
            [
                helper.make_tensor_value_info(name, dtype.onnx, shape)
                for name, shape in inputs.items()
            ],
            [helper.make_tensor_value_info("y", dtype.onnx, None)],
        )
        model = helper.make_model(
            graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]
        )
        helper.set_model_props(model, dict(metadata or {}))
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        return str(path)

    return save
