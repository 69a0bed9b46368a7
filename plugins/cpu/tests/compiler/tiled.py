"""Processors with tiles of bfloat16, as tests have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from onnxplug_cpu.compiler import bf16x3_trial as trial
from onnxplug_cpu.compiler.runtime import jit
from onnxplug_cpu.compiler.target import isa as isa_module
from onnxplug_cpu.compiler.target.isa import Isa

from .interpreter import ISAS

EMULATED = [isa._replace(tiles="emulated") for isa in ISAS if isa.name != "neon"]
"""The descriptions that this processor can run, with tiles emulated by vector code."""


@contextmanager
def host(isa: Isa | None = None, problem: str | None = None) -> Iterator[None]:
    """A context in which the processor is another, and nothing was tried yet.

    Args:
        isa: by default the one with emulated tiles.
        problem: why AMX cannot be used.
    """
    isa = isa or EMULATED[0]
    found = mock.Mock(return_value=(isa, problem), cache_clear=lambda: None)
    with (
        mock.patch.object(isa_module, "detect", found),
        mock.patch.object(jit, "hosts", {}),
        mock.patch.object(jit, "warned", set()),
        mock.patch.object(trial, "tried", {}),
    ):
        yield
