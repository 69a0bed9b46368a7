"""Calibration tables, which TensorRT 10 has: read, refused, and what engines get."""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import errors
from onnxplug_tensorrt.calibration import Table

from .conftest import EP
from .standin import LibCuda, TensorRT

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def tensorrt(machine: Any) -> TensorRT:
    return TensorRT(LibCuda(machine), "10.13.3.9")


@pytest.fixture
def model(parse: Any) -> onnx.ModelProto:
    weights = "float[3, 3] w = {1,2,3,4,-9,6,7,8,5}, float[3] b = {0, 0, 0}"
    found: onnx.ModelProto = parse(
        "m = MatMul(x, w) a = Add(m, b) c = Min(a, u) y = Relu(c)", weights=weights
    )
    unbounded = np.full(3, np.inf, np.float32)
    found.graph.initializer.append(onnx.numpy_helper.from_array(unbounded, "u"))
    return found


def of_onnx_runtime(folder: Path, **ranges: tuple[float, float]) -> Path:
    """A table as its quantiser writes it."""
    calibrate = pytest.importorskip("onnxruntime.quantization.calibrate")
    tools = pytest.importorskip("onnxruntime.quantization.quant_utils")
    found = calibrate.TensorsData(
        calibrate.CalibrationMethod.MinMax,
        {name: tuple(map(np.float32, each)) for name, each in ranges.items()},
    )
    tools.write_calibration_table(found.data, str(folder))
    return folder / "calibration.flatbuffers"


def of_tensorrt(folder: Path, **ranges: float) -> Path:
    lines = ["TRT-101303-EntropyCalibration2"]
    for name, most in ranges.items():
        bits = struct.unpack(">I", struct.pack(">f", most / 127))[0]
        lines.append(f"{name}: {bits:x}")
    path = folder / "native.cache"
    path.write_text("\n".join(lines) + "\n")
    return path


def given(path: Path, *, native: bool) -> dict[str, Any]:
    return {
        "trt_int8_enable": 1,
        "trt_int8_calibration_table_name": str(path),
        "trt_int8_use_native_calibration_table": int(native),
    }


def test_ranges_are_those_of_the_table(
    alone: Any, model: Any, tensorrt: TensorRT, tmp_path: Path,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of what it does not name, constants have their elements', as in ONNX Runtime;
    those of 0 say nothing."""
    monkeypatch.chdir(tmp_path)
    of_onnx_runtime(
        tmp_path, x=(-1, 1), m=(-15, 17.25), y=(0, 17.25), other=(-2, 2), a=(0, 0)
    )
    of_tensorrt(tmp_path, x=1, m=17.25, y=17.25, other=2, a=0)
    for name, native in (("calibration.flatbuffers", False), ("native.cache", True)):
        with caplog.at_level(logging.INFO):
            session = alone(model, **given(Path(name), native=native))
        network = tensorrt.networks[-1]
        assert network._flags == 0
        assert [flag.name for flag in tensorrt.configs[-1]._flags] == ["INT8"]
        assert {each: most for each, (_, most) in network._ranges.items()} == (
            pytest.approx({"x": 1, "m": 17.25, "y": 17.25, "w_output": 9}, 1e-6)
        )
        assert all(least == -most for least, most in network._ranges.values())
        (wanted,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": X})
        np.testing.assert_allclose(session.run(None, {"x": X})[0], wanted, 1e-5)
        (said,) = [text for text in caplog.messages if "calibration table" in text]
        assert "4 tensors of 4 nodes" in said and said.endswith("have: other")
        caplog.clear()


def test_a_table_of_another_model(
    alone: Any, parse: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = of_tensorrt(tmp_path, **{"a:0 (b)": 1})
    assert Table(str(path), is_native=True).read() == pytest.approx({"a:0 (b)": 1})
    with caplog.at_level(logging.WARNING):
        alone(parse("y = Exp(x)"), **given(path, native=True))
    assert any("0 tensors of" in text for text in caplog.messages)


def test_what_is_no_table(alone: Any, parse: Any, tmp_path: Path) -> None:
    text, path = "TRT-101303-EntropyCalibration2\nx: 3c010a14\n", tmp_path / "table"
    os.mkfifo(tmp_path / "pipe")
    model = parse("y = Exp(x)")
    for content, message in (
        ("x: 3c010a14\n", "line 1 is 'x: 3c010a14', and not TRT-"),
        (text + "y 3c010a14\n", "line 3 is 'y 3c010a14', and not a name"),
        (text + "y: 3c010a14f\n", "line 3 is"),
        (text + "\ny: bc010a14\n", "line 4 has the range -1.*symmetric"),
        (text + "y: 7f800000\n", "line 3 has the range inf"),
        (text + "y: 7fc00000\n", "line 3 has the range nan"),
        (text[:31], "has no entries.*turn 'trt_int8_use_native"),
        ("", "line 1 is ''"),
        ("\xff\n", "line 1 is"),
    ):
        path.write_text(content, "latin-1")
        with pytest.raises(errors.OptionError, match=message) as raised:
            alone(model, **given(path, native=True))
        assert str(path) in str(raised.value)
    for missing in ("nowhere", "pipe", "a\0b", ""):
        with pytest.raises(errors.OptionError, match=r"no such file|cannot be read"):
            Table(str(tmp_path / missing), is_native=True).read()


def test_what_is_no_table_of_onnx_runtime(tmp_path: Path) -> None:
    path = of_onnx_runtime(tmp_path, first=(-1, 1.5), second=(-2, 2.5))
    whole = path.read_bytes()
    table = Table(str(path), is_native=False)
    assert table.read() == {"first": 1.5, "second": 2.5}
    for content, message in (
        (b"", "its begin is damaged.*expected calibration.flatbuffers"),
        ((tmp_path / "calibration.json").read_bytes(), "its begin is damaged"),
        (bytes(8), "its begin is damaged|has no entries"),
        (whole.replace(b"2.5", b"-.5"), r"entry \d has the range -0.5.*symmetric"),
        (whole.replace(b"2.5", b"two"), r"entry \d has 'two' where a number"),
        (whole.replace(b"second", b"\xff" * 6), r"entry \d is damaged"),
        (bytes(1 << 24 | 1), "as no calibration table has"),
    ):
        path.write_bytes(content)
        with pytest.raises(errors.OptionError, match=message):
            table.read()


def test_damage_is_never_followed(tmp_path: Path) -> None:
    """Whatever bytes are changed, or left out, it is read, or it is refused."""
    path = of_onnx_runtime(tmp_path, first=(-1, 1.5), second=(-2, 2.5))
    whole = path.read_bytes()
    contents = [whole[:length] for length in range(len(whole))]
    for place in range(len(whole)):
        for value in (0, 0x80, 0xFF):
            contents.append(whole[:place] + bytes([value]) + whole[place + 1 :])
    refused = 0
    for content in contents:
        path.write_bytes(content)
        try:
            found = Table(str(path), is_native=False).read()
        except errors.OptionError:
            refused += 1
        else:
            assert len(found) <= 2
    assert refused > len(whole)


def test_what_does_not_go_together(
    alone: Any, parse: Any, tensorrt: TensorRT, tmp_path: Path
) -> None:
    options = given(of_tensorrt(tmp_path, x=1), native=True)
    with pytest.raises(errors.OptionError, match="set both or none"):
        alone(parse("y = Exp(x)"), **options | {"trt_int8_enable": 0})
    weights = "float s = {0.1}, int8 z = {0}"
    own = parse(
        "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)", weights=weights
    )
    with pytest.raises(errors.SessionRefused, match="leave the table out"):
        alone(own, **options)
    tensorrt.rangeless.add("x")
    with pytest.raises(errors.OnnxplugError, match="does not take the range 1"):
        alone(parse("y = Exp(x)"), **options)


def test_an_engine_is_kept_with_its_ranges(
    alone: Any, model: Any, tensorrt: TensorRT, tmp_path: Path
) -> None:
    """By what tables say, and not by where they are, or which format they are of."""
    kept = {"trt_engine_cache_enable": 1}
    first = given(of_tensorrt(tmp_path, x=1), native=True)
    alone(model, **kept)
    alone(model, **kept, **first)
    assert tensorrt.counts["builds"] == 2
    other = tmp_path / "other"
    Path(first["trt_int8_calibration_table_name"]).rename(other)
    alone(model, **kept, **given(other, native=True))
    assert tensorrt.counts["builds"] == 2
    alone(model, **kept, **given(of_tensorrt(tmp_path, x=1.5), native=True))
    assert tensorrt.counts["builds"] == 3


def test_an_engine_of_other_ranges_is_not_restored(
    factory: Any, model: Any, tmp_path: Path
) -> None:
    options = onnxplug.SessionOptions()
    table = given(of_tensorrt(tmp_path, x=1), native=True)
    options.add_provider(EP, table)
    target = tmp_path / "compiled.onnx"
    onnxplug.ModelCompiler(options, model).compile_to_file(target)
    (wanted,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": X})
    with onnxplug.InferenceSession(target, None, [(EP, table)]) as session:
        np.testing.assert_allclose(session.run(None, {"x": X})[0], wanted, 1e-5)
    of_tensorrt(tmp_path, x=2)
    for other in (table, {}):
        with pytest.raises(errors.OnnxplugError, match="its tensors have other ranges"):
            onnxplug.InferenceSession(target, None, [(EP, other)])
