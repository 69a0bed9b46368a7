"""Which devices are offered, which adapter is taken, and what is said where none is."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug import ep
from onnxplug_directml.com.dxcore import IDXCoreAdapter
from onnxplug_directml.com.errors import error_of
from onnxplug_directml.com.libraries import Libraries
from onnxplug_directml.com.method import Method
from onnxplug_directml.device.adapters import Adapter, choose, find_adapters, opened
from onnxplug_directml.factory import DmlFactory, DmlVerification
from onnxplug_directml.options import read_settings

from .conftest import CPU, EP, hardware
from .portable_executable import library
from .standin import GPU, NPU, SOFTWARE, Windows
from .standin.decoding import load

FAST = dataclasses.replace(GPU, luid=GPU.luid + 1, name="Fast")
SMALL = dataclasses.replace(GPU, luid=GPU.luid + 2, name="Small", integrated=True)


def devices(*kinds: Any) -> list[ep.HardwareDevice]:
    return [hardware(each, number) for number, each in enumerate(kinds)]


@pytest.mark.skipif(sys.platform == "win32", reason="is refused elsewhere")
def test_on_other_systems_devices_are_refused_with_the_reason() -> None:
    found = list(DmlFactory().supported_devices([CPU, *devices(GPU, NPU)]))
    assert len(found) == 2
    for each in found:
        assert isinstance(each, ep.RefusedDevice)
        assert f"a part of Windows, and this system is {sys.platform}" in each.reason
    assert DmlFactory().engine_versions(ep.EpDevice(ep_name=EP, device=CPU)) == {}


def test_without_directml_devices_are_refused_with_the_remedy(
    windows: Windows, tmp_path: Path
) -> None:
    (file,) = tmp_path.rglob("DirectML.dll")
    file.unlink()
    (found,) = DmlFactory().supported_devices(devices(GPU))
    assert isinstance(found, ep.RefusedDevice)
    assert "there is no DirectML.dll" in found.reason
    assert "Microsoft.AI.DirectML" in found.reason


def test_gpus_and_npus_are_offered_and_nothing_is_loaded(windows: Windows) -> None:
    gpu, npu = DmlFactory().supported_devices([CPU, *devices(GPU, NPU)])
    for each, kind in ((gpu, "gpu"), (npu, "npu")):
        assert isinstance(each, ep.EpDevice)
        assert each.device.type == kind
        assert each.metadata["engine_version"] == "1.15.4.0"
        assert dict(each.default_options) == {"device_id": "-1", "device_filter": kind}
    assert windows.counts.by_method == {}


def adapters(*kinds: Any) -> list[Adapter]:
    return [
        Adapter(
            luid=each.luid,
            name=each.name,
            kind=ep.DeviceType.NPU if each is NPU else ep.DeviceType.GPU,
            is_software=each is SOFTWARE,
            in_dxgi=each is not NPU,
        )
        for each in kinds
    ]


def chosen(number: int = -1, filter_: str = "gpu", preference: str = "default") -> str:
    found = adapters(SOFTWARE, SMALL, FAST, NPU)
    settings = read_settings(
        {
            "device_id": number,
            "device_filter": filter_,
            "performance_preference": preference,
            "disable_metacommands": False,
            "enable_graph_capture": False,
            "enable_graph_serialization": False,
            "enable_cpu_sync_spinning": False,
            "dll_path": "",
        }
    )
    small, fast, npu = devices(SMALL, FAST, NPU)
    ranked = dataclasses.replace(
        small, metadata={**small.metadata, "DxgiHighPerformanceIndex": "1"}
    )
    given = [ranked, fast, npu]
    return found[choose(found, given, number, settings.kinds, preference)].name


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ((-1, "gpu", "default"), SMALL.name),
        ((-1, "gpu", "high_performance"), FAST.name),
        ((-1, "any", "high_performance"), FAST.name),
        ((-1, "gpu", "minimum_power"), SMALL.name),
        ((-1, "npu", "default"), NPU.name),
        ((0, "gpu", "default"), SOFTWARE.name),
        ((2, "any", "default"), FAST.name),
        ((0, "npu", "default"), NPU.name),
    ],
)
def test_adapters_are_chosen_by_number_kind_and_preference(
    choice: tuple[int, str, str], name: str
) -> None:
    """A number is DXGI's, or an NPU's; only who names software by it gets that."""
    assert chosen(*choice) == name


def test_an_adapter_that_is_not_there_is_said_with_what_is() -> None:
    with pytest.raises(LookupError, match="there are 3 adapters"):
        chosen(3)
    with pytest.raises(LookupError, match="there are 1 NPUs"):
        chosen(1, "npu")
    other = [hardware(dataclasses.replace(GPU, luid=9), 0)]
    with pytest.raises(LookupError, match=r"no gpu .*Basic Render"):
        choose(adapters(SOFTWARE), other, -1, frozenset({ep.DeviceType.GPU}), "default")


def test_a_number_of_no_adapter_is_an_error_of_the_option(
    alone: Any, parse: Any
) -> None:
    with pytest.raises(onnxplug.errors.OptionError, match=r"'device_id' is 7: there"):
        alone(parse("y = Relu(x)"), device_id=7)


def test_options_that_exclude_the_devices_are_an_error_of_the_options(
    factory: DmlFactory, parse: Any
) -> None:
    pairs = [each for each in onnxplug.get_ep_devices() if each.ep_name == EP]
    gpus = [each for each in pairs if each.device.type is ep.DeviceType.GPU]
    options = onnxplug.SessionOptions()
    options.add_provider_for_devices(gpus, {"device_filter": "npu"})
    with pytest.raises(onnxplug.errors.OptionError, match=r"'device_filter'.*no npu"):
        onnxplug.InferenceSession(parse("y = Relu(x)"), options)


def test_each_session_is_on_the_adapter_that_it_names(
    windows: Windows, alone: Any, parse: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Also on the NPU, which DXGI does not know, and on software, which nobody gets
    unasked."""
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    expected = [np.maximum(x, 0)]
    for options, luid in (
        ({"device_id": 0}, GPU.luid),
        ({"device_filter": "npu"}, NPU.luid),
        ({"device_id": 1}, SOFTWARE.luid),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            session = alone(parse("y = Relu(x)"), **options)
        assert list(windows.devices) == [luid]
        np.testing.assert_array_equal(session.run(None, {"x": x}), expected)
        assert (luid == SOFTWARE.luid) == ("for tests" in caplog.text)
        del session
    assert not windows.devices


def test_an_old_directml_is_refused_with_the_remedy(
    make_windows: Callable[..., Windows],
    register: Callable[[Windows], DmlFactory],
    parse: Any,
) -> None:
    register(make_windows(directml_level=(4, 1)))
    with pytest.raises(onnxplug.errors.EpError, match=r"level 4\.1 .* needs 5\.0"):
        onnxplug.InferenceSession(parse("y = Relu(x)"), providers=[EP])


def test_a_device_that_windows_does_not_make_leaves_the_nodes_to_others(
    windows: Windows, factory: DmlFactory, parse: Any
) -> None:
    windows.faults.no_device = -2005270524  # DXGI_ERROR_UNSUPPORTED
    model = parse("y = Relu(x)")
    with pytest.raises(onnxplug.errors.EPFail, match="DXGI_ERROR_UNSUPPORTED"):
        onnxplug.InferenceSession(model, providers=[EP])
    with pytest.warns(onnxplug.errors.EpWarning, match="DXGI_ERROR_UNSUPPORTED"):
        session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    assert {node.ep for node in session.explain().nodes} == {"CPUExecutionProvider"}


def test_a_process_has_one_directml(
    windows: Windows, alone: Any, parse: Any, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "DirectML.dll").write_bytes(library(version=(1, 8, 2, 0)))
    session = alone(parse("y = Relu(x)"))
    with pytest.raises(onnxplug.errors.OptionError, match=r"uses .*1\.15\.4\.0"):
        alone(parse("y = Relu(x)"), dll_path=str(other))
    with pytest.raises(onnxplug.errors.OptionError, match="there is no file"):
        alone(parse("y = Relu(x)"), dll_path=str(tmp_path))
    session.close()


@pytest.mark.slow
def test_what_an_adapter_computes_wrong_goes_to_other_eps(
    windows: Windows,
    factory: DmlFactory,
    monkeypatch: pytest.MonkeyPatch,
    parse: Any,
) -> None:
    """Probes show it before the EP is first believed there."""
    monkeypatch.setattr(factory, "verification", DmlVerification())
    product = load()["GEMM"]
    right = product.evaluate
    monkeypatch.setattr(
        product,
        "evaluate",
        lambda desc, inputs: [1.01 * each for each in right(desc, inputs)],
    )
    model = parse(
        "t = MatMul(x, w) y = Relu(t)", weights="float[3, 3] w = {1,2,3,4,5,6,7,8,9}"
    )
    with pytest.warns(onnxplug.errors.EpWarning, match="product"):
        session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    eps = {node.op_type: node.ep for node in session.explain().nodes}
    assert eps["MatMul"] == "CPUExecutionProvider"
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [[12, 15, 18]] * 2)


def test_operators_and_findings_are_listed(
    windows: Windows, factory: DmlFactory
) -> None:
    listed = {(each.domain, each.op_type) for each in factory.operators()}
    assert {("", "Conv"), ("com.microsoft", "FusedMatMul")} <= listed
    assert all(each.level is ep.Level.OK for each in factory.diagnose())


def test_a_library_that_is_none_of_directml_is_not_kept(
    windows: Windows, alone: Any, parse: Any, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.dll"
    wrong.write_bytes(library())
    with pytest.raises(onnxplug.errors.EpError, match=r"wrong\.dll cannot be loaded"):
        alone(parse("y = Relu(x)"), dll_path=str(wrong))
    right = tmp_path / "right"
    right.mkdir()
    (right / "DirectML.dll").write_bytes(library(version=(1, 8, 2, 0)))
    session = alone(parse("y = Relu(x)"), dll_path=str(right))
    x = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)


@pytest.mark.parametrize("in_dxgi", [True, False])
def test_an_adapter_that_has_gone_is_said(windows: Windows, in_dxgi: bool) -> None:
    gone = Adapter(77, "Gone", ep.DeviceType.GPU, in_dxgi=in_dxgi)
    with (
        pytest.raises(LookupError, match="Gone is not there any more"),
        opened(Libraries(), gone),
    ):
        pass


def test_an_adapter_that_goes_while_it_is_listed_leaves_the_others(
    make_windows: Callable[..., Windows], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (dataclasses.replace(NPU, luid=NPU.luid + n) for n in (1, 2))
    make_windows((GPU, first, second))
    read, left = IDXCoreAdapter.GetProperty, [1]

    class Going(Method):
        def _call(self, this: Any, values: Any, asked: str) -> Any:
            if left and read.slot == self.slot:
                left.pop()
                raise error_of(0x887A0005, self.name)
            return super()._call(this, values, asked)

    monkeypatch.setattr(
        IDXCoreAdapter, "GetProperty", Going(read.slot, read.result, *read.parameters)
    )
    found = find_adapters(Libraries())
    assert second.luid in [each.luid for each in found if not each.in_dxgi]
