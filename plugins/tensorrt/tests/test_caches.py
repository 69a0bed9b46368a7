"""Engines and measured times on disk: found again, or made anew."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from onnxplug import errors
from onnxplug_tensorrt.driver import DeviceFacts
from onnxplug_tensorrt.plans import Plan, unpacked
from onnxplug_tensorrt.profiles import Range

from .standin import TensorRT

KEPT = {"trt_engine_cache_enable": "1"}
WEIGHTS = np.random.default_rng(3).standard_normal((3, 300)).astype(np.float32)


@pytest.fixture
def model(parse: Any) -> Any:
    import onnx

    found = parse(
        "m = MatMul(x, w) y = Relu(m)", "float[batch, 3] x", "float[batch, 300] y"
    )
    found.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHTS, "w"))
    return found


def run(make: Any, model: Any, *batches: int, **options: Any) -> None:
    """Sessions of their own, as of other processes."""
    with make(model, **options) as session:
        for batch in batches:
            x = np.arange(3 * batch, dtype=np.float32).reshape(batch, 3)
            (found,) = session.run(None, {"x": x})
            (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def entries(tmp_path: Path, kind: str) -> list[Path]:
    return sorted((tmp_path / "cache/onnxplug-tensorrt").glob(f"{kind}-*"))


def test_an_engine_is_found_again(
    alone: Any, model: Any, tensorrt: TensorRT, tmp_path: Path
) -> None:
    run(alone, model, 2, 4, **KEPT)
    assert tensorrt.counts["builds"] == 2
    # it takes all that runs of the other brought, and grows from there
    run(alone, model, 3, 2, 4, **KEPT)
    assert tensorrt.counts["builds"] == 2
    run(alone, model, 5, 2, **KEPT)
    assert tensorrt.counts["builds"] == 3
    assert len(entries(tmp_path, "engine")) == 1


def test_without_the_option_nothing_is_kept(
    alone: Any, model: Any, tensorrt: TensorRT, tmp_path: Path
) -> None:
    run(alone, model, 2)
    run(alone, model, 2)
    assert tensorrt.counts["builds"] == 2
    assert not entries(tmp_path, "engine")


@pytest.mark.parametrize("kind", ["version", "device", "option", "damage", "content"])
def test_what_is_of_no_use_is_built_anew(
    alone: Any, model: Any, tensorrt: TensorRT, tmp_path: Path, kind: str
) -> None:
    options: dict[str, Any] = dict(KEPT)
    run(alone, model, 2, **options)
    (entry,) = entries(tmp_path, "engine")
    if kind == "version":
        tensorrt.__version__ = "11.5.0.7"
    elif kind == "device":
        tensorrt.cuda.capability = (10, 0)
    elif kind == "option":
        options["trt_builder_optimization_level"] = 5
    elif kind == "damage":
        content = bytearray(entry.read_bytes())
        content[-1] ^= 1
        entry.write_bytes(content)
    else:  # another's, whose digest is right
        from onnxplug.authoring.entries import Cache

        name = entry.name.removesuffix(".entry")
        plan = unpacked(memoryview(Cache("onnxplug-tensorrt").load(name) or b""))
        other = plan._replace(content=b"no engine of TensorRT's")
        assert not Cache("onnxplug-tensorrt").store(name, *other.packed())
    run(alone, model, 2, **options)
    assert tensorrt.counts["builds"] == 2
    run(alone, model, 2, **options)
    assert tensorrt.counts["builds"] == 2


def test_engines_for_other_gpus(alone: Any, model: Any, tensorrt: TensorRT) -> None:
    options = KEPT | {"trt_engine_hw_compatible": "1"}
    run(alone, model, 2, **options)
    tensorrt.cuda.capability = (8, 6)
    run(alone, model, 2, **options)
    assert tensorrt.counts["builds"] == 1
    tensorrt.cuda.capability = (7, 5)
    with pytest.raises(errors.OptionError, match="Stand-in is sm_75"):
        run(alone, model, 2, **options)


def test_engines_without_weights(
    alone: Any, model: Any, tensorrt: TensorRT, tmp_path: Path
) -> None:
    run(alone, model, 2, **KEPT)
    (whole,) = entries(tmp_path, "engine")
    options = KEPT | {"trt_weight_stripped_engine_enable": "1"}
    run(alone, model, 2, **options)
    assert tensorrt.counts["refits"] == 1
    (stripped,) = [each for each in entries(tmp_path, "engine") if each != whole]
    assert whole.stat().st_size - stripped.stat().st_size >= WEIGHTS.nbytes
    run(alone, model, 2, **options)
    assert (tensorrt.counts["builds"], tensorrt.counts["refits"]) == (2, 2)


def test_measured_times(
    alone: Any, model: Any, tensorrt: TensorRT, tmp_path: Path
) -> None:
    timed = {"trt_timing_cache_enable": "1"}
    run(alone, model, 2, **timed)
    assert tensorrt.counts["measured"] == 2
    run(alone, model, 2, **timed)
    assert (tensorrt.counts["builds"], tensorrt.counts["measured"]) == (2, 2)
    (entry,) = entries(tmp_path, "times")
    content = bytearray(entry.read_bytes())
    content[-1] ^= 1
    entry.write_bytes(content)
    run(alone, model, 2, **timed)
    assert tensorrt.counts["measured"] == 4


def damaged(content: bytes) -> Iterator[bytes]:
    yield b""
    yield content[:5]
    yield content[:40]
    yield (1 << 62).to_bytes(8, "little") + content[8:]
    for old, new in (
        (b'"version"', b'"varsion"'),
        (b"[9, 0]", b"[9, {]"),
        (b"[9, 0]", b'"nine"'),
        (b"[[1, 2]", b"[[1, a]"),
        (b"[[1, 2]", b'["1", '),
    ):
        assert old in content
        yield content.replace(old, new, 1)


def test_what_is_no_plan_is_refused() -> None:
    device = DeviceFacts("GPU", (9, 0), 132, 13020)
    plan = Plan(b"engine", {"x": Range((1, 2), (1, 2), (3, 4))}, "11.4", device)
    content = b"".join(plan.packed())
    found = unpacked(memoryview(content))
    assert found._replace(content=bytes(found.content)) == plan
    for each in damaged(content):
        with pytest.raises(ValueError, match=r"cut off|cannot be read"):
            unpacked(memoryview(each))


def test_a_folder_that_the_program_names(
    alone: Any,
    model: Any,
    tensorrt: TensorRT,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    named = KEPT | {"trt_engine_cache_path": "a/b", "trt_engine_cache_prefix": "my-m"}
    run(alone, model, 2, **named)
    (entry,) = (tmp_path / "a/b/onnxplug-tensorrt").glob("*.entry")
    assert entry.name.startswith("my-m_engine-")
    assert not entries(tmp_path, "*engine")
    if os.name == "posix":
        for folder in (tmp_path / "a", tmp_path / "a/b", entry.parent):
            assert folder.stat().st_mode & 0o777 == 0o700
    # the same folder, whatever its name
    named["trt_engine_cache_path"] = str(tmp_path / "a/b")
    run(alone, model, 2, **named)
    assert tensorrt.counts["builds"] == 1
    content = bytearray(entry.read_bytes())
    content[-1] ^= 1
    entry.write_bytes(content)
    run(alone, model, 2, **named)
    run(alone, model, 2, **named)
    assert tensorrt.counts["builds"] == 2
    # neither with another prefix, nor in onnxplug's own cache, is it found
    run(alone, model, 2, **named | {"trt_engine_cache_prefix": ""})
    run(alone, model, 2, **KEPT)
    assert tensorrt.counts["builds"] == 4


def test_times_in_a_folder_that_the_program_names(
    alone: Any, model: Any, tensorrt: TensorRT, tmp_path: Path
) -> None:
    named = {
        "trt_timing_cache_enable": "1",
        "trt_engine_cache_path": str(tmp_path / "engines"),
        "trt_engine_cache_prefix": "mine",
    }
    for options in (named, named | {"trt_timing_cache_path": str(tmp_path / "times")}):
        before = tensorrt.counts["measured"]
        for _ in range(2):
            run(alone, model, 2, **options)
            assert tensorrt.counts["measured"] == before + 2
    for name in ("engines", "times"):
        (entry,) = (tmp_path / name / "onnxplug-tensorrt").glob("*.entry")
        assert entry.name.startswith("times-")
    assert not entries(tmp_path, "times")


def test_a_folder_left_alone(alone: Any, model: Any, tmp_path: Path) -> None:
    """One that is named, and nothing is to be kept."""
    run(alone, model, 2, trt_engine_cache_path=str(tmp_path / "engines"))
    assert not (tmp_path / "engines").exists()


@pytest.mark.skipif(os.name != "posix", reason="about rights of POSIX")
@pytest.mark.parametrize(
    ("option", "switch"),
    [
        ("trt_engine_cache_path", "trt_engine_cache_enable"),
        ("trt_engine_cache_path", "trt_timing_cache_enable"),
        ("trt_timing_cache_path", "trt_timing_cache_enable"),
    ],
)
def test_a_folder_that_others_may_write_to(
    alone: Any, model: Any, tensorrt: TensorRT, tmp_path: Path, option: str, switch: str
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    options = {option: str(folder), switch: "1"}
    for mode in (0o777, 0o770, 0o702):
        folder.chmod(mode)
        message = rf"'{option}' is .*\(mode {mode:04o}\).* chmod go-w .*leave the"
        with pytest.raises(errors.OptionError, match=message):
            alone(model, **options)
    assert not list(folder.iterdir())
    folder.chmod(0o755)
    run(alone, model, 2, **options)
    (folder / "onnxplug-tensorrt").chmod(0o755)
    with pytest.raises(errors.OptionError, match=r"open to other users \(mode 0755\)"):
        alone(model, **options)
    (folder / "onnxplug-tensorrt").chmod(0o700)
    run(alone, model, 2, **options)
    assert tensorrt.counts["builds"] == (1 if "engine" in switch else 2)


def test_what_is_no_folder(alone: Any, model: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "\ud800", "a" * 300):
        with pytest.raises(errors.OptionError, match="where nothing can be kept"):
            alone(model, trt_engine_cache_path=f"{tmp_path}/{name}", **KEPT)
