"""Questions asked before an EP is asked for are answered with a reason."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import onnxplug.queries
from onnxplug.ep import Finding, HardwareDevice, Level
from onnxplug.errors import OptionError
from onnxplug.plugins import PluginRegistry
from onnxplug.selection import CPU
from onnxplug.selection.available import (
    Availability,
    availability,
    platform_support,
)
from onnxplug.selection.known import (
    KNOWN,
    KnownEp,
    by_priority,
    find_known,
    instead_of,
    remedy,
)
from onnxplug_testing import SimulatedFactory, Stage

AddEp = Callable[..., SimulatedFactory]

ROOT = Path(__file__).parents[3]


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


def test_an_engine_that_is_missing_is_told_before_the_devices(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice], monkeypatch
) -> None:
    factory = add("Good", "npu")
    findings = [
        Finding(level=Level.WARNING, message="the driver is old"),
        Finding(
            level=Level.ERROR,
            message="torch is not installed",
            remedy="pip install torch",
        ),
    ]
    monkeypatch.setattr(factory, "diagnose", lambda: iter(findings))
    for ask in (availability, platform_support):
        answer = ask("good", registry, hardware)
        assert not answer
        assert answer.reason == (
            "GoodExecutionProvider cannot be used: torch is not installed"
        )
        assert answer.remedy == "pip install torch"


def test_an_ep_that_cannot_diagnose_itself_is_told_to_drive_nothing(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice], monkeypatch
) -> None:
    factory = add("Good", "npu")

    def diagnose():
        raise SystemExit(3)

    monkeypatch.setattr(factory, "diagnose", diagnose)
    assert "drives none of" in availability("good", registry, hardware).reason


def test_an_ep_that_is_not_installed_brings_its_distribution(
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
    on: Callable[[str, str], None],
) -> None:
    on("linux", "x86_64")
    answer = availability("openvino", registry, hardware)
    assert not answer
    assert answer.name == "OpenVINOExecutionProvider"
    assert answer.reason == "no installed plugin supplies OpenVINOExecutionProvider"
    assert answer.remedy == "install the distribution onnxplug-openvino"


def test_what_serves_instead_is_what_there_is(
    add: AddEp,
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
    on: Callable[[str, str], None],
) -> None:
    on("linux", "x86_64")
    answer = availability("nvtensorrtrtx", registry, hardware)
    assert answer.remedy == (
        "no distribution of onnxplug supplies it; use TensorrtExecutionProvider "
        "(install the distribution onnxplug-tensorrt) or CUDAExecutionProvider "
        "(install the distribution onnxplug-cuda) or CPUExecutionProvider "
        "(install the distribution onnxplug-cpu) instead"
    )
    add("CUDA", "gpu")
    add("CPU", "cpu")
    answer = availability("nvtensorrtrtx", registry, hardware)
    assert answer.remedy == (
        "no distribution of onnxplug supplies it; use TensorrtExecutionProvider "
        "(install the distribution onnxplug-tensorrt) or CUDAExecutionProvider or "
        "CPUExecutionProvider instead"
    )


def test_an_ep_that_onnx_runtime_dropped_is_told_as_such(
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
    on: Callable[[str, str], None],
) -> None:
    on("linux", "x86_64")
    answer = availability("rocm", registry, hardware)
    assert answer.name == "ROCMExecutionProvider"
    assert answer.reason == (
        "no installed plugin supplies ROCMExecutionProvider; ONNX Runtime has "
        "MIGraphXExecutionProvider in its place since 1.23"
    )
    assert "CPUExecutionProvider" in answer.remedy
    assert "MIGraphX" not in answer.remedy


def test_an_ep_of_another_platform_is_not_to_be_installed(
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
    on: Callable[[str, str], None],
) -> None:
    on("linux", "x86_64")
    assert availability("acl", registry, hardware).remedy.startswith(
        "ACLExecutionProvider runs on Linux (aarch64), Android (aarch64); "
        "use CPUExecutionProvider"
    )


@pytest.mark.parametrize("ask", [availability, platform_support])
def test_an_ep_may_be_there_for_trying_models(
    ask: Callable[..., Availability],
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
    on: Callable[[str, str], None],
) -> None:
    on("linux", "x86_64")
    answer = ask("coreml", registry, hardware)
    assert not answer
    assert (
        "and for trying models on Linux (x86-64)" in f"{answer.reason}{answer.remedy}"
    )
    assert "use CPUExecutionProvider" in answer.remedy
    assert answer.remedy.endswith("or install onnxplug-coreml to try models")
    on("linux", "aarch64")
    assert "onnxplug-coreml" not in ask("coreml", registry, hardware).remedy
    on("darwin", "arm64")
    assert ask is platform_support or "install the distribution onnxplug-coreml" in (
        ask("coreml", registry, hardware).remedy
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
    ("linux", "x86_64"): "nvtensorrtrtx tensorrt cuda migraphx openvino dnnl vitisai "
    "qnn webgpu xnnpack cann azure cpu",
    ("linux", "aarch64"): "tensorrt cuda openvino dnnl vitisai qnn vsinpu acl rknpu "
    "webgpu xnnpack cann azure cpu",
    ("linux", "riscv64"): "cpu",
    ("win32", "AMD64"): "nvtensorrtrtx tensorrt cuda migraphx openvino dnnl vitisai "
    "qnn dml webgpu xnnpack azure cpu",
    ("win32", "ARM64"): "qnn dml webgpu xnnpack azure cpu",
    ("darwin", "arm64"): "openvino dnnl coreml webgpu xnnpack azure cpu",
    ("emscripten", "wasm32"): "js webnn webgpu xnnpack cpu",
    ("android", "aarch64"): "qnn nnapi acl xnnpack cpu",
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


def test_an_ep_that_nobody_knows_is_supported_nowhere(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Here", "gpu")
    answer = platform_support("heer", registry, hardware)
    assert answer == (
        "heer",
        False,
        "no installed plugin supplies an EP named 'heer'",
        "`onnxplug eps` lists the installed EPs.  Did you mean 'here'?",
    )
    assert (
        "Did you mean 'tensorrt'"
        in platform_support("tensort", registry, hardware).remedy
    )


def test_an_installed_ep_that_cannot_be_asked_exists(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Bad", "gpu", fail_at=Stage.DEVICES)
    assert platform_support("bad", registry, hardware)


def test_an_installed_ep_that_drives_a_device_is_right_and_the_table_is_not(
    add: AddEp,
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
    on: Callable[[str, str], None],
) -> None:
    on("linux", "x86_64")
    assert platform_support("rocm", registry, hardware).reason == (
        "ROCMExecutionProvider is no more: "
        "ONNX Runtime has MIGraphXExecutionProvider in its place since 1.23"
    )
    add("ROCM", "gpu")
    assert platform_support("rocm", registry, hardware)


# names


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("DmlExecutionProvider", "DmlExecutionProvider"),
        ("directml", "DmlExecutionProvider"),
        ("onnxplug-directml", "DmlExecutionProvider"),
        ("TRT", "TensorrtExecutionProvider"),
        ("NVRTX", "NvTensorRTRTXExecutionProvider"),
        ("NvTensorRTRTX", "NvTensorRTRTXExecutionProvider"),
        ("rocm", "ROCMExecutionProvider"),
        ("MIGraphX", "MIGraphXExecutionProvider"),
        ("qnn", "QNNExecutionProvider"),
        ("XNNPACK", "XnnpackExecutionProvider"),
        ("dnnl", "DnnlExecutionProvider"),
        ("NNAPI", "NnapiExecutionProvider"),
        ("acl", "ACLExecutionProvider"),
        ("ArmNN", "ArmNNExecutionProvider"),
        ("vitisai", "VitisAIExecutionProvider"),
        ("cann", "CANNExecutionProvider"),
        ("RKNPU", "RknpuExecutionProvider"),
        ("webnn", "WebNNExecutionProvider"),
        ("azure", "AzureExecutionProvider"),
        ("webgpu", "WebGpuExecutionProvider"),
        ("js", "JsExecutionProvider"),
        ("tvm", "TvmExecutionProvider"),
        ("snpe", "SNPEExecutionProvider"),
        ("cpu", CPU),
    ],
)
def test_known_eps_are_found_in_every_spelling(written: str, expected: str) -> None:
    found = find_known(written)
    assert found is not None
    assert found.name == expected


@pytest.mark.parametrize(("system", "machine"), SUPPORT)
def test_no_remedy_names_what_does_not_exist(
    system: str, machine: str, on: Callable[[str, str], None]
) -> None:
    on(system, machine)
    exist = {path.name for path in (ROOT / "plugins").iterdir()}
    for ep in KNOWN:
        todo = f"{remedy(ep.name, [])} {instead_of(ep, [])}"
        assert CPU in todo
        named = re.findall(r"onnxplug-(\w+)", todo)
        assert named
        assert set(named) <= exist
        assert "docs/" not in todo


def test_others_come_by_name_before_the_cpu_ep() -> None:
    names = ("CPU", "Zeta", "Alpha", "CUDA", "CPU")
    mixed = [f"{name}ExecutionProvider" for name in names]
    assert by_priority(mixed) == [
        "CUDAExecutionProvider",
        "AlphaExecutionProvider",
        "ZetaExecutionProvider",
        CPU,
    ]


def row(ep: KnownEp) -> tuple[str, ...]:
    """An EP in the words of the page."""
    places, trial = (
        ", ".join(
            system if len(kinds) == 3 else f"{system} ({', '.join(kinds)})"
            for system, kinds in platforms.items()
        )
        for platforms in (ep.platforms, ep.trial)
    )
    where = places or "everywhere"
    if trial:
        where += f", and for trying models on {trial}"
    if ep.gone:
        where = ep.gone
    return ep.name, ep.distribution or "none", where


def test_the_page_lists_the_same_eps() -> None:
    page = (ROOT / "docs" / "how-to" / "choose-devices.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\w-]+) \| (.*) \|$", page, re.M)
    assert rows == [row(ep) for ep in KNOWN]


# of this process


def test_this_process_is_asked_by_default(
    monkeypatch: pytest.MonkeyPatch, registry: PluginRegistry, add: AddEp
) -> None:
    monkeypatch.setattr(onnxplug.queries, "registry", registry)
    add("Toy", "cpu")
    inquire = onnxplug.queries
    everything = inquire.get_all_providers()
    assert everything == [
        *(ep.name for ep in KNOWN[:-1]),
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
