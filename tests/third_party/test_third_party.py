"""An EP by somebody else: installed, listed, explained, chosen, and gone again."""

from __future__ import annotations

import json
import re
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

pytestmark = pytest.mark.slow

ACME = "AcmeExecutionProvider"
CPU = "CPUExecutionProvider"
FOLDER = Path(__file__).parent / "acme-ep"
FILES = re.DOTALL | re.MULTILINE

MODEL = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 21]>
    agraph (float[4] x) => (float[4] y) {
        doubled = Add (x, x)
        y = Relu (doubled)
    }
    """
)
FED, RELU, ACMES_RELU = [-1, 2, -3, 4], [0, 4, 0, 8], [0.5, 4, 0.5, 8]

REPORT = """
import json, sys
import numpy as np
import onnxplug
session = onnxplug.InferenceSession({model!r}, {arguments})
(y,) = session.run(None, {{"x": np.array({fed}, np.float32)}})
print(json.dumps([session.get_providers(), y.tolist()]))
"""


class Environment:
    """An environment that has wheels only, and a folder with the model."""

    def __init__(
        self, call: Callable[..., str], commands: Path, folder: Path, acme: Path
    ) -> None:
        self._call = call
        self._commands = commands
        self._folder = folder
        self._acme = acme

    def onnxplug(self, *words: str) -> Any:
        """What ``onnxplug … --json`` prints."""
        command = self._commands / "onnxplug"
        return json.loads(self._call(command, *words, "--json", folder=self._folder))

    def python(self, program: str) -> str:
        """What a Python program prints; warnings are errors."""
        python = self._commands / "python"
        return self._call(python, "-W", "error", "-c", program, folder=self._folder)

    def install(self) -> None:
        """Install acme-ep from its wheel, and check it on the device.

        A session has two seconds for the check, which a busy machine may not.
        """
        self._pip("install", "--no-index", self._acme)
        self.onnxplug("doctor", "--verify", "acme")

    def uninstall(self) -> None:
        self._pip("uninstall", "--yes", "acme-ep")

    def _pip(self, *words: object) -> None:
        self._call(self._commands / "python", "-m", "pip", *words)

    def run(self, arguments: str = "", model: str = "model.onnx") -> list[Any]:
        """The EPs of a session created with *arguments*, and what the model gives."""
        program = REPORT.format(model=model, arguments=arguments, fed=FED)
        found: list[Any] = json.loads(self.python(program))
        return found

    def eps(self) -> dict[str, tuple[str, str, str]]:
        listed = self.onnxplug("eps")["eps"]
        return {
            ep["name"]: (ep["distribution"], ep["version"], ep["state"])
            for ep in listed
        }

    def pairs(self) -> list[str]:
        program = """
            import onnxplug
            print(*(pair.ep_name for pair in onnxplug.get_ep_devices()))
        """
        return self.python(textwrap.dedent(program)).split()


@pytest.fixture(scope="module")
def environment(
    call, build_wheel, installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """One with acme-ep in it."""
    folder = tmp_path_factory.mktemp("work")
    onnx.save(MODEL, folder / "model.onnx")
    unwanted = onnx.ModelProto()
    unwanted.CopyFrom(MODEL)
    onnx.helper.set_model_props(unwanted, {"acme": "off"})
    onnx.save(unwanted, folder / "unwanted.onnx")
    environment = Environment(call, installed, folder, build_wheel(FOLDER))
    assert environment.run() == [[CPU], RELU]  # before there was any acme-ep
    environment.install()
    yield environment
    environment.uninstall()


@pytest.fixture
def without_acme(environment: Environment) -> Iterator[Environment]:
    """The environment while acme-ep is uninstalled; tests run in any order."""
    environment.uninstall()
    yield environment
    environment.install()


def test_it_is_found(environment: Environment) -> None:
    assert environment.eps() == {
        ACME: ("acme-ep", "1.2.3", "found"),
        CPU: ("onnxplug-cpu", "0.1.0", "found"),
    }


def test_it_is_listed_with_its_devices(environment: Environment) -> None:
    assert environment.pairs() == [ACME, CPU]
    (pair,) = [
        pair
        for pair in environment.onnxplug("devices")["ep_devices"]
        if pair["ep"] == ACME
    ]
    assert pair["device"]["type"] == "cpu"
    assert pair["ep_vendor"] == "Acme"
    assert pair["metadata"] == {"version": "1.2.3"}


def test_it_explains_itself(environment: Environment) -> None:
    found = environment.onnxplug("explain", "model.onnx", "--ep", "acme")
    placed = {node["op_type"]: node for node in found["nodes"]}
    assert placed["Relu"]["ep"] == ACME
    assert placed["Relu"]["passed_over"] == [
        {"ep": CPU, "code": "taken", "detail": f"{ACME} is preferred"}
    ]
    assert placed["Add"]["ep"] == CPU
    assert placed["Add"]["passed_over"] == [
        {"ep": ACME, "code": "op", "detail": "Add; Acme runs Relu only"}
    ]


def test_it_is_checked_on_the_device(environment: Environment) -> None:
    (device,) = environment.onnxplug("doctor", "--verify", "acme")["devices"]
    found = [(each["family"], each["verdict"]) for each in device["families"]]
    assert found == [("relu", "passed")]


def test_installing_it_changes_nothing_for_who_does_not_ask(
    environment: Environment,
) -> None:
    assert environment.run() == [[CPU], RELU]


@pytest.mark.parametrize(
    "arguments",
    [
        "providers=['AcmeExecutionProvider']",
        "providers='acme'",
        "providers=['Acme', 'cpu']",
        "policy='prefer_cpu'",
        "policy='max_efficiency'",
        "policy=lambda pairs, model: [p for p in pairs if p.ep_vendor == 'Acme']",
    ],
)
def test_it_is_chosen_by_name_and_by_policy(
    environment: Environment, arguments: str
) -> None:
    assert environment.run(arguments) == [[ACME, CPU], ACMES_RELU]


def test_its_policy_is_told_of_the_model(environment: Environment) -> None:
    policy = "policy='Acme_Unless_Unwanted'"
    assert environment.run(policy) == [[ACME, CPU], ACMES_RELU]
    assert environment.run(policy, model="unwanted.onnx") == [[CPU], RELU]


def test_its_options_reach_it(environment: Environment) -> None:
    _, result = environment.run("providers=[('acme', {'floor': '0.25'})]")
    assert result == [0.25, 4, 0.25, 8]


def test_uninstalled_it_is_gone_and_all_is_as_before(
    without_acme: Environment,
) -> None:
    environment = without_acme
    assert environment.eps() == {CPU: ("onnxplug-cpu", "0.1.0", "found")}
    assert environment.pairs() == [CPU]
    assert environment.run() == [[CPU], RELU]
    assert environment.run("policy='prefer_cpu'") == [[CPU], RELU]

    program = """
        import onnxplug
        try:
            onnxplug.InferenceSession("model.onnx", providers=["acme"])
        except onnxplug.errors.PluginNotFound as error:
            print(error)
    """
    assert "no installed plugin supplies an EP named 'acme'" in environment.python(
        textwrap.dedent(program)
    )


def test_the_distribution_of_the_tutorial_can_be_built(
    build_wheel, tmp_path: Path
) -> None:
    page = FOLDER.parents[2] / "docs/tutorials/write-an-ep.md"
    shown = re.findall(r"^```\w+\n(# (toy-ep/\S+)\n.*?)^```$", page.read_text(), FILES)
    assert [name for _, name in shown] == ["toy-ep/toy_ep.py", "toy-ep/pyproject.toml"]
    (tmp_path / "toy-ep").mkdir()
    for text, name in shown:
        (tmp_path / name).write_text(text)
    wheel = zipfile.ZipFile(build_wheel(tmp_path / "toy-ep"))
    assert "toy_ep.py" in wheel.namelist()
    entry_points = wheel.read("toy_ep-0.1.0.dist-info/entry_points.txt").decode()
    assert "ToyExecutionProvider = toy_ep" in entry_points
