"""What ``onnxplug new-ep`` writes works: built, installed, tested and used as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxplug_cli.main import main
from onnxplug_cli.new_ep.styles import STYLES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

MODEL = """
    <ir_version: 8, opset_import: ["": 17]>
    small (float[n, 2] x) => (float[n, 2] y) <float[2] bias = {-1, 2}> {
        product = Mul (x, x)
        sum = Add (product, bias)
        positive = Relu (sum)
        y = Sqrt (positive)
    }
"""


def done(*command: object, path: Mapping[str, str], folder: Path) -> str:
    """What a process prints that has only *path* besides what this one is made of."""
    finished = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(params=STYLES)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of an EP of each style."""
    folder = tmp_path / "fancy-ep"
    style = request.param
    assert main(["new-ep", "fancy-ep", "--style", style, "--folder", str(folder)]) == 0
    return folder


def python_path(*folders: Path) -> dict[str, str]:
    """A setting by which *folders* come first, and onnxplug is found as it is here."""
    own = [each for each in sys.path if each]
    return {"PYTHONPATH": os.pathsep.join([*map(str, folders), *own])}


def test_its_own_tests_pass(written: Path) -> None:
    words = ("pytest", "-q", "-p", "no:cacheprovider", "-k", "not kit")
    assert " passed" in done("-m", *words, path=python_path(), folder=written)


@pytest.mark.exhaustive
def test_its_types_are_strict(written: Path) -> None:
    pytest.importorskip("mypy")
    said = done("-m", "mypy", "src", "tests", path=python_path(), folder=written)
    assert said.startswith("Success: no issues found in ")


@pytest.fixture(scope="module")
def environment(
    call: Any, installed: Path, build_wheel: Callable[[Path], Path]
) -> Iterator[Path]:
    """The commands of an environment that has wheels alone, those of the kit too."""
    kit = build_wheel(ROOT / "plugins" / "testing")
    call(installed / "python", "-m", "pip", "install", "--no-index", kit)
    yield installed
    words = ("uninstall", "--yes", "onnxplug-testing")
    call(installed / "python", "-m", "pip", *words)


@pytest.fixture
def built(
    call: Any, written: Path, environment: Path, build_wheel: Callable[[Path], Path]
) -> Iterator[Path]:
    """The commands of the environment, where the wheel of the EP is installed."""
    pip = (environment / "python", "-m", "pip")
    call(*pip, "install", f"{build_wheel(written)}[test]")
    yield environment
    call(*pip, "uninstall", "--yes", "fancy-ep")


@pytest.mark.exhaustive
def test_its_wheel_works_where_the_repository_is_not(
    call: Any, written: Path, built: Path, tmp_path: Path
) -> None:
    def said(*words: object) -> Any:
        return json.loads(call(built / "onnxplug", *words, "--json", folder=tmp_path))

    (listed,) = [each for each in said("eps")["eps"] if "Fancy" in each["name"]]
    assert (listed["distribution"], listed["version"]) == ("fancy-ep", "0.1.0")

    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "small.onnx")
    nodes = said("explain", "small.onnx", "--ep", "fancy")["nodes"]
    assert [node["ep"] for node in nodes] == [
        *["FancyExecutionProvider"] * 3,
        "CPUExecutionProvider",
    ]
    x = np.array([[1, 2], [-3, 0.5]], np.float32)
    np.save(tmp_path / "x.npy", x)
    call(
        built / "onnxplug", "run", "small.onnx", "--input", "x=x.npy", "--ep", "fancy",
        "--output", "results.npz", folder=tmp_path,
    )  # fmt: skip
    with np.load(tmp_path / "results.npz") as results:
        wanted = np.sqrt(np.maximum(x.astype(np.float64) ** 2 + [-1, 2], 0))
        np.testing.assert_allclose(results["y"], wanted, rtol=1e-6)

    plugins = {each["ep"]: each for each in said("doctor")["plugins"]}
    assert plugins["FancyExecutionProvider"]["works"] is True
    assert plugins["FancyExecutionProvider"]["findings"] == []

    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not kit")
    assert " passed" in call(built / "python", *words, folder=written)
    asked = "factory,options,costs,claims/the-same-again,memory/results"
    report = said("test", "fancy", "--quick", "--only", asked)
    known = [f"{each['group']}/{each['name']}" for each in report["checks"]]
    assert {"claims/the-same-again", "memory/results"} <= set(known)
    assert {name.split("/")[0] for name in known} == {
        name.split("/")[0] for name in asked.split(",")
    }
    assert report["tried"] > 20


@pytest.mark.exhaustive
def test_the_conformance_kit_finds_nothing(
    call: Any, built: Path, tmp_path: Path
) -> None:
    words = ("test", "fancy", "--quick", "--json")  # which fails if anything is found
    report = json.loads(call(built / "onnxplug", *words, folder=tmp_path))
    assert report["tried"] > 500 and not report["unexamined"]


OF_ONES_OWN = {"kernels": "Elu", "compile": "Exp", "device": "Div"}
"""Operators that the page adds, by style."""


@pytest.mark.parametrize("style", STYLES)
def test_an_operator_of_one_s_own_is_added_as_is_told(
    style: str, tmp_path: Path
) -> None:
    """What the page shows is put into the module, and computes."""
    folder = tmp_path / "fancy-ep"
    assert main(["new-ep", "fancy-ep", "--style", style, "--folder", str(folder)]) == 0
    page = (ROOT / "docs" / "how-to" / "start-an-ep.md").read_text("utf-8")
    shown = page.partition("## Add an operator")[2].partition("\n## ")[0]
    blocks = re.findall(r"```text\n(.*?)```", shown, re.DOTALL)
    operator = OF_ONES_OWN[style]
    (text,) = (block for block in blocks if f'"{operator}"' in block)
    module = folder / "src" / "fancy_ep" / "operators.py"
    own = module.read_text("utf-8")
    if text.startswith("@"):
        module.write_text(f"{own}\n\n{text}", "utf-8")
    else:  # an entry of the table
        module.write_text(
            own.replace('    "MatMul"', f'{text}    "MatMul"', 1), "utf-8"
        )
    inputs = "x, x" if operator == "Div" else "x"
    model = f"""
        <ir_version: 8, opset_import: ["": 17]>
        one (float[2, 3] x) => (float[2, 3] y) {{ y = {operator} ({inputs}) }}
    """
    script = OWN.format(model=model)
    said = done("-c", script, path=python_path(folder / "src"), folder=tmp_path)
    assert said.split() == ["FancyExecutionProvider", "right"]


OWN = """
import numpy as np, onnx, onnxplug
onnxplug.register_ep_library("fancy-ep", "fancy_ep.plugin:FancyFactory")
model, results = onnx.parser.parse_model('''{model}'''), []
x = np.array([[1, -2, 3], [-0.5, 5, 7]], np.float32)
for providers in (["fancy"], ["cpu"]):
    with onnxplug.InferenceSession(model, providers=providers) as session:
        results.append(session.run(None, {{"x": x}})[0])
        print(*[n.ep for n in session.explain().nodes if providers == ["fancy"]])
print("right" if np.allclose(*results, rtol=1e-5) else results)
"""
