"""Questions asked before an EP is asked for are answered with a reason."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import onnxplug.inquire
from onnxplug.ep import HardwareDevice
from onnxplug.errors import OptionError
from onnxplug.plugins import PluginRegistry
from onnxplug.selection import CPU, known
from onnxplug.selection.available import availability, platform_support
from onnxplug.selection.known import KNOWN, by_priority, find_known, remedy
from onnxplug.testing import SimulatedFactory, Stage

AddEp = Callable[..., SimulatedFactory]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Makes believe that this is another operating system and processor."""

    def pretend(system: str, machine: str) -> None:
        module = "onnxplug.selection.known"
        monkeypatch.setattr(f"{module}.sys", SimpleNamespace(platform=system))
        monkeypatch.setattr(
            f"{module}.platform", SimpleNamespace(machine=lambda: machine)
        )

    return pretend


# is_available


def test_an_ep_that_drives_a_device_is_available(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    factory = add("Good", "gpu")
    for name in ("good", "GoodExecutionProvider", "GOOD"):
        answer = availability(name, registry, hardware)
        assert answer
        assert answer == ("GoodExecutionProvider", True, "", "")
    assert factory.created == []


def test_an_ep_that_drives_no_device_is_not(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Good", "npu")
    answer = availability("good", registry, hardware)
    assert not answer
    assert answer.reason == (
        "GoodExecutionProvider drives none of this machine's devices (cpu, gpu)"
    )
    assert "`onnxplug devices` lists the devices" in answer.remedy


def test_an_ep_that_is_not_installed_brings_its_distribution(
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
    on: Callable[[str, str], None],
) -> None:
    on("linux", "x86_64")
    answer = availability("cuda", registry, hardware)
    assert not answer
    assert answer.name == "CUDAExecutionProvider"
    assert "no installed plugin supplies an EP named 'cuda'" in answer.reason
    assert answer.remedy == (
        "install the distribution onnxplug-cuda (see docs/how-to/choose-devices.md)"
    )


def test_an_ep_of_another_platform_is_not_to_be_installed(
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
    on: Callable[[str, str], None],
) -> None:
    on("linux", "x86_64")
    assert availability("coreml", registry, hardware).remedy.startswith(
        "CoreMLExecutionProvider runs on macOS (x86-64, aarch64); choose another EP"
    )


@pytest.mark.parametrize("name", ["nonsense", "", " "])
def test_an_unknown_ep_is_not_available(
    name: str, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    answer = availability(name, registry, hardware)
    assert not answer
    assert answer.reason
    assert answer.remedy


def test_an_ep_that_raises_is_not_available(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Bad", "gpu", fail_at=Stage.DEVICES)
    answer = availability("bad", registry, hardware)
    assert not answer
    assert answer.name == "BadExecutionProvider"
    assert "told to fail at devices" in answer.reason
    assert "repair its plugin" in answer.remedy


def test_creation_may_fail_all_the_same(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Bad", "gpu", fail_at=Stage.CREATE)
    assert availability("bad", registry, hardware)


def test_a_wrong_setting_is_an_error_and_no_answer(
    hardware: list[HardwareDevice],
) -> None:
    registry = PluginRegistry({"ONNXPLUG_AUTOLOAD": "perhaps"})
    with pytest.raises(OptionError, match="ONNXPLUG_AUTOLOAD"):
        availability("cpu", registry, hardware)


def test_many_threads_get_one_answer(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Good", "gpu")
    answers: list[tuple[bool, ...]] = []

    def ask() -> None:
        answers.append(
            tuple(
                bool(availability(name, registry, hardware)) for name in ("good", "bad")
            )
        )

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [(True, False)] * 8


# supported_by_platform

SUPPORT = {
    ("linux", "x86_64"): "tensorrt cuda openvino webgpu cpu",
    ("linux", "aarch64"): "tensorrt cuda openvino webgpu cpu",
    ("linux", "riscv64"): "cpu",
    ("win32", "AMD64"): "tensorrt cuda openvino dml webgpu cpu",
    ("win32", "ARM64"): "dml webgpu cpu",
    ("darwin", "arm64"): "openvino coreml webgpu cpu",
    ("freebsd14", "amd64"): "cpu",
}


@pytest.mark.parametrize(("system", "machine"), SUPPORT)
def test_what_the_known_eps_run_on(
    system: str,
    machine: str,
    on: Callable[[str, str], None],
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
) -> None:
    on(system, machine)
    found = [
        ep.name.removesuffix("ExecutionProvider").lower()
        for ep in KNOWN
        if platform_support(ep.name, registry, hardware)
    ]
    assert found == SUPPORT[system, machine].split()


def test_a_platform_that_is_not_supported_is_told(
    on: Callable[[str, str], None],
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
) -> None:
    on("darwin", "arm64")
    answer = platform_support("cuda", registry, hardware)
    assert not answer
    assert answer.reason == (
        "CUDAExecutionProvider runs on Linux (x86-64, aarch64), Windows (x86-64); "
        "this is macOS on aarch64"
    )


def test_of_other_eps_their_factory_is_asked(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Here", "gpu")
    add("Elsewhere", "npu")
    assert platform_support("here", registry, hardware)
    assert not platform_support("elsewhere", registry, hardware)
    # with no factory to ask nothing speaks against it
    assert platform_support("unheard-of", registry, hardware)


# names


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("DmlExecutionProvider", "DmlExecutionProvider"),
        ("directml", "DmlExecutionProvider"),
        ("onnxplug-directml", "DmlExecutionProvider"),
        ("TRT", "TensorrtExecutionProvider"),
        ("cpu", CPU),
    ],
)
def test_known_eps_are_found_in_every_spelling(written: str, expected: str) -> None:
    found = find_known(written)
    assert found is not None
    assert found.name == expected


def test_no_remedy_names_what_does_not_exist(on: Callable[[str, str], None]) -> None:
    on("linux", "x86_64")
    assert "no distribution of onnxplug supplies it yet" in remedy("webgpu")
    assert "pip install" not in "".join(remedy(ep.name) for ep in KNOWN)


def test_others_come_by_name_before_the_cpu_ep() -> None:
    mixed = [CPU, "ZetaExecutionProvider", "AlphaExecutionProvider", KNOWN[1].name, CPU]
    assert by_priority(mixed) == [
        "CUDAExecutionProvider",
        "AlphaExecutionProvider",
        "ZetaExecutionProvider",
        CPU,
    ]


PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "choose-devices.md"


def test_the_page_that_remedies_name_lists_the_same_eps() -> None:
    assert str(PAGE).endswith(known.PAGE)
    rows = re.findall(r"^\| `(\w+)` \| ([\w-]+) \|", PAGE.read_text("utf-8"), re.M)
    assert rows == [(ep.name, ep.distribution) for ep in KNOWN if ep.distribution]


# of this process


def test_this_process_is_asked_by_default(
    monkeypatch: pytest.MonkeyPatch, registry: PluginRegistry, add: AddEp
) -> None:
    monkeypatch.setattr(onnxplug.inquire, "registry", registry)
    add("Toy", "cpu")
    inquire = onnxplug.inquire
    assert inquire.get_all_providers() == [
        "TensorrtExecutionProvider",
        "CUDAExecutionProvider",
        "OpenVINOExecutionProvider",
        "CoreMLExecutionProvider",
        "DmlExecutionProvider",
        "WebGpuExecutionProvider",
        "ToyExecutionProvider",
        CPU,
    ]
    assert inquire.get_available_providers() == ["ToyExecutionProvider"]
    assert inquire.is_available("toy")
    assert not inquire.is_available("cpu")
    assert inquire.supported_by_platform("cpu")
    assert [pair.ep_name for pair in inquire.get_ep_devices()] == [
        "ToyExecutionProvider"
    ]
    assert inquire.get_hardware_devices()[0].type == "cpu"
