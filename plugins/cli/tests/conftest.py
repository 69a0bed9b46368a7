"""Small models, and EPs to run them that need no plugin to be installed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
from onnx import helper

from onnxplug.ep import DataType, EpFactory
from onnxplug.plugins import GROUP, registry
from onnxplug.plugins.domains import GROUP as DOMAINS
from onnxplug_cli.main import main
from onnxplug_testing import Knobs, SimulatedFactory, ToyFactory


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
def doctor(cli: Cli) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Runs ``onnxplug doctor --json …``; the exit code, and what is said of one EP."""

    def run(ep: str, *argv: object) -> tuple[int, dict[str, Any]]:
        outcome = cli("doctor", "--json", *argv)
        plugins = {plugin["ep"]: plugin for plugin in outcome.json["plugins"]}
        return outcome.code, plugins[ep]

    return run


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[EpFactory], str]:
    """Makes an EP known until the test ends; its name."""
    known = {record.name: record for record in registry.records()}
    monkeypatch.setattr(registry.table, "_records", known)

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
    monkeypatch.setattr(registry.table, "_records", {})


PLUGIN = """
import numpy as np
from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider

class Provider(KernelExecutionProvider):
    kernels = {"Add": np.add, "MatMul": np.matmul}
    def find_kernel(self, graph, node):
        missing = ep.Reason(ep.RefusalCode.OP, f"{node.op_type} is beyond it")
        return self.kernels.get(node.op_type, missing)

class Factory(ep.EpFactory):
    spi_version = (0, 1)
    name = "{name}"
    def supported_devices(self, devices):
        cpus = [device for device in devices if device.type == "cpu"]
        return [ep.EpDevice(ep_name=self.name, device=device) for device in cpus]
    def create(self, devices, options, session):
        return Provider()

{extra}

@ep.hookimpl
def onnxplug_ep_factories(host):
    return [Factory()]
"""


DOMAIN = """
from onnxplug import ep

@ep.hookimpl
def onnxplug_domains(host):
    operators = [ep.Operator(op_type=name) for name in ({operators},)]
    return [ep.Domain(name="{name}", spi_version=(0, 4), operators=operators)]
"""


class Site:
    """Where distributions are installed that were made up.

    Each supplies one EP, or one domain of operators.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.modules: list[str] = []

    def install(
        self,
        name: str,
        extra: str = "",
        *,
        code: str = "",
        distribution: str = "",
        requires: str = "",
    ) -> str:
        """Install an EP that adds and multiplies, changed by *extra*; its name."""
        distribution = distribution or f"onnxplug-{name.lower()}"
        code = code or PLUGIN.replace("{name}", name).replace("{extra}", extra)
        self._install(GROUP, name, distribution, code, requires)
        return name

    def install_domain(
        self, name: str, distribution: str, code: str = "", operators: str = "'Twice'"
    ) -> None:
        """Install a domain of *operators*, or what *code* supplies."""
        code = code or DOMAIN.replace("{name}", name).replace("{operators}", operators)
        self._install(DOMAINS, name, distribution, code)

    def _install(
        self, group: str, name: str, distribution: str, code: str, requires: str = ""
    ) -> None:
        module = distribution.replace("-", "_")
        (self._folder / f"{module}.py").write_text(code)
        info = self._folder / f"{module}-1.2.dist-info"
        info.mkdir()
        metadata = f"Name: {distribution}\nVersion: 1.2\n"
        if requires:
            metadata += f"Requires-Dist: {requires}\n"
        (info / "METADATA").write_text(metadata)
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}\n")
        self.modules.append(module)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A folder for distributions, seen by this process and by those it starts."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    for name in list(os.environ):
        if name.startswith("ONNXPLUG_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(registry.table, "_records", None)
    monkeypatch.setattr(registry.table, "_settings", None)
    vars(registry).pop("domains", None)
    site = Site(folder)
    yield site
    vars(registry).pop("domains", None)
    for module in site.modules:
        sys.modules.pop(module, None)


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
