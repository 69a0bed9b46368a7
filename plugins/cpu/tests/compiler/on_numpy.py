"""Sessions whose compiled tier is numpy's, by what plans for the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import onnx

import onnxplug
from onnxplug_compiler.ir.buffers import Check
from onnxplug_compiler.ir.pieces import Work
from onnxplug_cpu.compiler import segment

from .numpy_program import NumpyProgram
from .numpy_target import NumpyTarget


class NumpyCompiler(segment.Compiler):
    """Makes programs of numpy."""

    kind = NumpyTarget

    def link(
        self,
        work: Work,
        specs: Sequence[Any],
        n_inputs: int,
        checks: Sequence[Check],
        look: Callable[[], None],
        *,
        keeps: bool = False,
    ) -> Any:
        return NumpyProgram(work, [spec.shape for spec in specs], checks)

    @classmethod
    def for_threads(cls, threads: int, **given: Any) -> NumpyCompiler:
        made = super().for_threads(threads, **given)
        return cls(*made)._replace(target=cls.kind())


def session_on_numpy(
    model: onnx.ModelProto, target: type[NumpyTarget] = NumpyTarget
) -> onnxplug.InferenceSession:
    """A session that runs as compiled, on numpy."""
    compiler = type("OnNumpy", (NumpyCompiler,), {"kind": target})
    with mock.patch.object(segment, "Compiler", compiler):
        return onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"])
