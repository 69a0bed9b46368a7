"""The wheels hold what they should, and work where the repository is not."""

from __future__ import annotations

import configparser
import email
import email.message
import json
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CLI = "onnxplug-cli"
ONNXRUNTIME = "onnxplug-onnxruntime"
OPENVINO = "onnxplug-openvino"
TESTING = "onnxplug-testing"
TRAINING = "onnxplug-training"
FOLDERS = {
    tomllib.loads(project.read_text("utf-8"))["project"]["name"]: project.parent
    for pattern in ("core", "plugins/*", "examples/*")
    for project in sorted(ROOT.glob(f"{pattern}/pyproject.toml"))
}
EVERY = pytest.mark.parametrize("name", FOLDERS)


@pytest.fixture(scope="module")
def every_wheel(wheels, build_wheel) -> dict[str, Path]:
    """The wheels for the CPU, and the others."""
    others = FOLDERS.keys() - wheels.keys()
    return {**wheels, **{name: build_wheel(FOLDERS[name]) for name in others}}


def names(wheel: Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


def read(wheel: Path, ending: str) -> str:
    (name,) = (name for name in names(wheel) if name.endswith(ending))
    return zipfile.ZipFile(wheel).read(name).decode()


def metadata(wheel: Path) -> email.message.Message:
    return email.message_from_string(read(wheel, ".dist-info/METADATA"))


@EVERY
def test_a_wheel_has_one_package_and_nothing_else(every_wheel, name: str) -> None:
    package = name.replace("-", "_")
    tops = {entry.split("/")[0] for entry in names(every_wheel[name])}
    assert {top for top in tops if not top.endswith(".dist-info")} == {package}
    assert f"{package}/py.typed" in names(every_wheel[name])
    assert not [entry for entry in names(every_wheel[name]) if "__pycache__" in entry]


@EVERY
def test_a_wheel_has_its_licence_and_description(every_wheel, name: str) -> None:
    found = metadata(every_wheel[name])
    assert found["Name"] == name
    assert found["License-Expression"] == "Apache-2.0"
    assert found["License-File"] == "LICENSE"
    assert "Apache License" in read(every_wheel[name], ".dist-info/licenses/LICENSE")
    assert str(found.get_payload()).lstrip().startswith(f"# {name}")


@EVERY
def test_a_wheel_is_pure_python(every_wheel, name: str) -> None:
    assert every_wheel[name].name.endswith("-py3-none-any.whl")


@EVERY
def test_a_package_knows_its_version(every_wheel, name: str) -> None:
    version = metadata(every_wheel[name])["Version"]
    if name == ONNXRUNTIME:  # which tells that of what it stands for
        version = "1.32.0"
    package = name.replace("-", "_")
    source = zipfile.ZipFile(every_wheel[name]).read(f"{package}/__init__.py").decode()
    assert f'"{version}"' in source


def test_the_entry_points_are_a_command_and_an_ep(wheels) -> None:
    found = configparser.ConfigParser(delimiters="=")
    found.optionxform = str  # type: ignore[assignment,method-assign]
    for wheel in (wheels[CLI], wheels["onnxplug-cpu"]):
        found.read_string(read(wheel, ".dist-info/entry_points.txt"))
    assert {section: dict(found[section]) for section in found.sections()} == {
        "console_scripts": {"onnxplug": "onnxplug_cli.main:main"},
        "onnxplug.execution_providers": {
            "CPUExecutionProvider": "onnxplug_cpu.factory:CpuFactory"
        },
    }


def test_the_core_depends_on_no_plugin(wheels) -> None:
    needed = metadata(wheels["onnxplug"]).get_all("Requires-Dist", [])
    always = [requirement for requirement in needed if "extra ==" not in requirement]
    assert always
    assert not [requirement for requirement in always if "onnxplug" in requirement]
    assert f"{CLI}; extra == 'cli'" in needed


def test_without_the_command_line_the_module_says_how_it_is_had(
    call, wheels, installed: Path
) -> None:
    call(installed / "python", "-m", "pip", "uninstall", "--yes", CLI)
    assert not (installed / "onnxplug").exists()
    command = [installed / "python", "-m", "onnxplug", "eps"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    call(installed / "python", "-m", "pip", "install", "--no-index", wheels[CLI])
    assert (done.returncode, done.stdout) == (1, "")
    assert "the distribution onnxplug-cli, which is not installed" in done.stderr
    assert "pip install 'onnxplug[cli]'" in done.stderr
    assert (installed / "onnxplug").exists()


@pytest.mark.parametrize("name", [CLI, ONNXRUNTIME])
def test_parts_of_the_host_are_for_one_version_of_it(every_wheel, name: str) -> None:
    """What they use of the core is no interface."""
    needed = metadata(every_wheel[name]).get_all("Requires-Dist", [])
    assert f"onnxplug=={metadata(every_wheel['onnxplug'])['Version']}" in needed


def test_the_demo_runs_where_the_repository_is_not(
    call, installed: Path, tmp_path: Path
) -> None:
    for name in ("digits.onnx", "seven.png"):
        shutil.copy(ROOT / "demo" / name, tmp_path)
    argv = (installed / "onnxplug", "run", "digits.onnx", "seven.png", "--json")
    found = json.loads(call(*argv, folder=tmp_path))
    assert found["classes"][0]["label"] == "7"
    assert {part["ep"] for part in found["partitions"]} == {"CPUExecutionProvider"}

    where = call(
        installed / "python", "-c", "import onnxplug; print(onnxplug.__file__)"
    )
    assert Path(where.strip()).is_relative_to(installed.parent)


def test_an_installed_ep_is_found_without_being_imported(call, installed: Path) -> None:
    script = (
        "import sys, onnxplug; records = onnxplug.get_plugins(); "
        "print([(r.name, str(r.state), r.distribution) for r in records], "
        "'onnxplug_cpu' in sys.modules)"
    )
    found = call(installed / "python", "-c", script)
    assert found == "[('CPUExecutionProvider', 'found', 'onnxplug-cpu')] False\n"


def test_installing_an_ep_lists_it_and_uninstalling_it_does_not(
    call, every_wheel, installed: Path
) -> None:
    def listed() -> dict[str, str]:
        found = json.loads(call(installed / "onnxplug", "eps", "--json"))["eps"]
        return {ep["name"]: ep["distribution"] for ep in found}

    def pip(*words: object) -> None:
        call(installed / "python", "-m", "pip", *words)

    cpu = {"CPUExecutionProvider": "onnxplug-cpu"}
    assert listed() == cpu
    # without its engine, which is large and which listing does not look at
    pip("install", "--no-index", "--no-deps", every_wheel[OPENVINO])
    assert listed() == {**cpu, "OpenVINOExecutionProvider": OPENVINO}
    pip("uninstall", "--yes", OPENVINO)
    assert listed() == cpu


def test_eps_to_test_with_are_there_for_those_who_register_them(
    call, every_wheel, installed: Path, tmp_path: Path
) -> None:
    shutil.copy(ROOT / "demo" / "digits.onnx", tmp_path)
    script = (
        "import onnxplug, onnxplug_testing\n"
        "print([record.name for record in onnxplug.get_plugins()])\n"
        "plugin = onnxplug_testing.SimulatedPlugin()\n"
        "onnxplug.register_ep_library('simulated', plugin)\n"
        "session = onnxplug.InferenceSession('digits.onnx', providers='simulated')\n"
        "print(session.get_providers())"
    )

    def pip(*words: object) -> None:
        call(installed / "python", "-m", "pip", *words)

    pip("install", "--no-index", every_wheel[TESTING])  # so all that it needs is there
    found = call(installed / "python", "-c", script, folder=tmp_path)
    pip("uninstall", "--yes", TESTING)
    assert found == (
        "['CPUExecutionProvider']\n"
        "['SimulatedExecutionProvider', 'CPUExecutionProvider']\n"
    )


def test_installing_a_domain_makes_models_run_that_use_it(
    call, every_wheel, installed: Path
) -> None:
    script = """
import numpy as np, onnx.parser, onnxplug
model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1]>'
    'g (float x) => (dx) { y = Mul (x, x)'
    ' dx = ai.onnx.preview.training.Gradient <xs = ["x"], y = "y"> (x) }'
)
try:
    session = onnxplug.InferenceSession(model)
except NotImplementedError as error:
    print(str(error).splitlines()[-1].strip())
else:
    print(session.run(None, {"x": np.float32(3)}))
"""

    def run() -> str:
        return call(installed / "python", "-c", script)

    def pip(*words: object) -> None:
        call(installed / "python", "-m", "pip", *words)

    lacking = (
        "and no installed distribution supplies operators of "
        "'ai.onnx.preview.training'; install onnxplug-training\n"
    )
    assert run() == lacking
    pip("install", "--no-index", "--no-deps", every_wheel[TRAINING])
    assert run() == "[array(6., dtype=float32)]\n"
    pip("uninstall", "--yes", TRAINING)
    assert run() == lacking
