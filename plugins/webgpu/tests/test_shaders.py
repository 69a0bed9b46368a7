"""The second validator of kernels tells wrong ones."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from onnxplug_compiler.gpu.render.dialect import Binding
from onnxplug_compiler.gpu.render.wgsl import WGSL

TOOL = Path(__file__).parents[1] / "tools" / "validate_shaders.py"

TEXTS = {
    "right": ([Binding(True, False)] * 8, [("f32", "s0", 4096)], 256, "", ""),
    "type": ([], [], 64, "let x: u32 = 1.0f;", "of type 'f32'"),
    "buffers": ([Binding(True, False)] * 9, [], 64, "", "storage buffers"),
    "shared": ([], [("f32", "s0", 4097)], 64, "", "workgroup storage"),
    "lanes": ([], [], 257, "", "workgroup_size"),
    "barrier": ([], [], 64, "if (lane < 3u) { workgroupBarrier(); }", "uniform"),
}


def test_a_wrong_kernel_is_told_with_the_reason(tmp_path: Path) -> None:
    """By Tint, for types, uniformity and each of WebGPU's default limits."""
    folder = os.environ.get("ONNXPLUG_TINT")
    if not folder:
        message = "Tint is not there; make test-webgpu brings it"
        if "tint" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    for name, (bindings, shared, lanes, line, _) in TEXTS.items():
        touched = [f"b{n}[0] = 1u;" for n in range(len(bindings))]
        touched += [f"{array}[0] = 0.0f;" for _, array, _ in shared]
        text = WGSL.kernel(bindings, shared, 1, lanes, [line, *touched])
        (tmp_path / f"{name}.wgsl").write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location("validate_shaders", TOOL)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    count, wrong = tool.validate(Path(folder), tmp_path)
    said = {Path(each["name"]).stem: each["error"] for each in wrong}
    assert count == len(TEXTS)
    assert said.keys() == TEXTS.keys() - {"right"}
    for name, (*_, reason) in TEXTS.items():
        assert reason in said.get(name, "")
