"""What is found of CUDA, in environments that are planted, and in the one there is."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from onnxplug import ep
from onnxplug_cuda import diagnosis, installation, libraries
from onnxplug_cuda.diagnosis import findings
from onnxplug_cuda.installation import VARIABLE, Engine, driver_major, wanted_major
from onnxplug_cuda.libraries import (
    DRIVER,
    LIBRARIES,
    Found,
    Library,
    Missing,
    opened,
    preload,
)

HANDLE: Any = None
VERSIONS = {
    "cuda": (13, 0),
    "cudart": (13, 2),
    "nvrtc": (13, 2),
    "cublasLt": (13, 1, 0),
    "cudnn": (9, 19, 1),
}
CUPY = Engine("cupy-cuda13x", "14.2.0", 13)

Plant = Callable[..., list[ep.Finding]]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """What is found where these CuPys and libraries are."""

    def planted(
        *engines: Engine,
        says: str = "",
        frontend: bool = True,
        **versions: tuple[int, ...] | None,
    ) -> list[ep.Finding]:
        there = VERSIONS | versions

        def look(library: Library) -> Found | Missing:
            version = there[library.name]
            if version is None:
                return Missing("no such file")
            return Found(f"/opt/lib{library.name}.so", version, HANDLE)

        def version_of(name: str) -> str:
            if not frontend or name != "nvidia-cudnn-frontend":
                raise installation.importlib.metadata.PackageNotFoundError(name)
            return "1.28.0"

        monkeypatch.setattr(installation, "find_engines", lambda: list(engines))
        monkeypatch.setattr(diagnosis.importlib.metadata, "version", version_of)
        return list(findings({VARIABLE: says} if says else {}, look))

    return planted


def wrong(found: Iterable[ep.Finding], level: ep.Level) -> list[tuple[str, str]]:
    return [(f.message, f.remedy) for f in found if f.level is level]


def test_where_all_is_there_nothing_is_wrong(plant: Plant) -> None:
    found = plant(CUPY)
    assert {each.level for each in found} == {ep.Level.OK}
    said = "\n".join(each.message for each in found)
    assert "CuPy 14.2.0 for CUDA 13" in said and "cuDNN 9.19.1" in said


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("cudart", "nvidia-cuda-runtime"),
        ("nvrtc", "nvidia-cuda-nvrtc"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_package(
    plant: Plant, name: str, package: str
) -> None:
    ((message, remedy),) = wrong(plant(CUPY, **{name: None}), ep.Level.ERROR)
    assert "is not found: no such file" in message
    assert remedy == f"pip install {package}"


def test_packages_are_those_of_the_major_version(plant: Plant) -> None:
    old = dict.fromkeys(("cuda", "cudart", "nvrtc"), (12, 8))
    engine = CUPY._replace(distribution="cupy-cuda12x", major=12)
    found = plant(engine, **old, cublasLt=None, cudnn=(9, 8))
    ((message, remedy),) = wrong(found, ep.Level.WARNING)
    assert "kernels of this EP's serve in its place" in message
    assert remedy == "pip install nvidia-cublas-cu12"


def test_what_kernels_serve_for_is_no_error(plant: Plant) -> None:
    found = plant(CUPY, cublasLt=None, cudnn=None, frontend=False)
    assert not wrong(found, ep.Level.ERROR)
    remedies = [remedy for _, remedy in wrong(found, ep.Level.WARNING)]
    assert remedies == [
        "pip install nvidia-cublas",
        "pip install nvidia-cudnn-cu13",
        "pip install 'nvidia-cudnn-frontend>=1.22,<1.29'",
    ]


def test_without_a_driver_that_is_said_with_where_there_is_one(plant: Plant) -> None:
    ((message, remedy), *_) = wrong(plant(CUPY, cuda=None), ep.Level.ERROR)
    assert message.startswith("NVIDIA's driver is not found")
    assert "https://www.nvidia.com/drivers" in remedy


def test_a_driver_for_an_older_cuda_is_refused_with_both_ways_out(plant: Plant) -> None:
    ((message, remedy),) = wrong(plant(CUPY, cuda=(12, 8)), ep.Level.ERROR)
    assert "is 12.8" in message and "13.0 or newer for CUDA 13" in message
    assert "update the driver" in remedy and "onnxplug-cuda[cu12]" in remedy


def test_libraries_of_another_cuda_are_refused(plant: Plant) -> None:
    ((message, _),) = wrong(plant(CUPY, nvrtc=(14, 0)), ep.Level.ERROR)
    assert "14.0" in message and "expected one of CUDA 13" in message
    ((message, remedy),) = wrong(plant(CUPY, cudnn=(9, 5, 1)), ep.Level.WARNING)
    assert "cuDNN is 9.5.1" in message and "9.12 or newer" in message
    assert remedy == "pip install -U nvidia-cudnn-cu13"


@pytest.mark.parametrize(
    ("engines", "says", "reason"),
    [
        ((), "", "CuPy for CUDA is not installed"),
        ((CUPY._replace(version="13.6.0"),), "", "is older than 14.2"),
        ((CUPY._replace(version="15.0.1"),), "", "is not older than 15"),
        (
            (CUPY, CUPY._replace(distribution="cupy-cuda12x", major=12)),
            "",
            "overwrite each other's files",
        ),
        ((CUPY,), "12", "is 12, and cupy-cuda13x 14.2.0 is built for CUDA 13"),
        ((CUPY,), "eleven", "expected 12 or 13"),
        ((CUPY,), "11.8", "expected 12 or 13"),
    ],
)
def test_a_cupy_that_does_not_serve_is_said_first(
    plant: Plant, engines: tuple[Engine, ...], says: str, reason: str
) -> None:
    (first, *_) = plant(*engines, says=says)
    assert first.level is ep.Level.ERROR and reason in first.message and first.remedy


def test_the_environment_says_the_major_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installation, "find_engines", lambda: [CUPY])
    assert wanted_major({}) == 13
    assert wanted_major({VARIABLE: "12.8"}) == 12
    monkeypatch.setattr(installation, "find_engines", list)
    monkeypatch.setattr(installation, "driver_major", lambda: 12)
    assert wanted_major({}) == 12


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6", 12),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  R", 13),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct", None),
        ("something else", None),
    ],
)
def test_the_drivers_module_says_its_branch(
    tmp_path: Path, text: str, major: int | None
) -> None:
    assert driver_major(tmp_path) is None
    file = tmp_path / "proc/driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert driver_major(tmp_path) == major


def test_devices_whose_driver_is_not_in_the_container_are_told(tmp_path: Path) -> None:
    assert not list(diagnosis._devices_without_driver(tmp_path))
    (tmp_path / "nvidia0").touch()
    (found,) = diagnosis._devices_without_driver(tmp_path)
    assert "--gpus all" in found.remedy


def test_what_is_no_such_library_is_said(tmp_path: Path) -> None:
    (cudnn,) = [each for each in LIBRARIES if each.name == "cudnn"]
    broken = tmp_path / "libcudnn.so.9"
    broken.write_text("no library")
    assert isinstance(opened(cudnn, str(broken)), Missing)
    found = opened(cudnn, ctypes.util.find_library("c") or "libc.so.6")
    assert isinstance(found, Missing) and "is no cuDNN" in found.reason


def test_versions_are_decoded_as_libraries_say_them() -> None:
    class Says:
        def __init__(self, number: int) -> None:
            self.number = number

        def _fill(self, pointer: Any) -> int:
            pointer._obj.value = self.number
            return 0

        cuDriverGetVersion = cudaRuntimeGetVersion = _fill

        def nvrtcVersion(self, major: Any, minor: Any) -> int:
            major._obj.value, minor._obj.value = divmod(self.number, 100)
            return 0

    versions: Any = libraries._VERSIONS
    assert versions["cuda"](Says(12080)) == (12, 8)
    assert versions["cudart"](Says(13050)) == (13, 5)
    assert versions["nvrtc"](Says(1305)) == (13, 5)
    for name, value, version in [
        ("cublasLt", 131000, (13, 10, 0)),
        ("cublasLt", 120805, (12, 8, 5)),
        ("cudnn", 92801, (9, 28, 1)),
        ("cudnn", 8907, (8, 9, 7)),
    ]:
        number = ctypes.CFUNCTYPE(ctypes.c_size_t)(lambda value=value: value)
        handle = type("Handle", (), {f"{name}GetVersion": number})
        assert versions[name](handle) == version


def test_preloading_loads_what_is_asked_for_and_says_what_became_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looked: list[str] = []

    def look(library: Library) -> Missing:
        looked.append(library.name)
        return Missing("no such file")

    monkeypatch.setattr(libraries, "find", look)
    ((library, found),) = preload({"cudnn"})
    assert (library.name, found) == ("cudnn", Missing("no such file"))
    assert [each.name for each, _ in preload({"cuda"})] == [
        "cudart",
        "nvrtc",
        "cublasLt",
    ]
    (warned,) = diagnosis.preloaded({"cudnn", "msvc"}, None)
    assert warned.level is ep.Level.WARNING and "cuDNN is not found" in warned.message
    monkeypatch.setattr(
        libraries, "opened", lambda library, path: Found(path, (9, 19), HANDLE)
    )
    for name in ("libcudnn.so.8", "libcudnn.so.9", "libcudnn_ops.so.9"):
        (tmp_path / name).touch()
    ((_, found),) = preload({"cudnn"}, tmp_path)
    assert isinstance(found, Found) and found.path == str(tmp_path / "libcudnn.so.9")


def test_this_machine_is_diagnosed() -> None:
    found = list(findings({}))
    assert found
    if importlib.util.find_spec("cuda") is None:
        assert "cuda-pathfinder" in found[-1].message
        return
    driver = libraries.find(DRIVER)
    assert isinstance(driver, Missing) == any(
        "NVIDIA's driver is not found" in each.message for each in found
    )
