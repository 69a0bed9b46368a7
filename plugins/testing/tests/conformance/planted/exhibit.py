"""What shows mistakes: sessions, compiled partitions and runs to look into."""

from __future__ import annotations

import contextlib
import gc
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import onnx

import onnxplug
from onnxplug import ep

from .device_memory import SPACE

Shows: TypeAlias = Callable[[ep.EpFactory], bool]

EXHIBITS: Final[dict[str, Shows]] = {}
"""By the mistake's name; each says whether it is seen in a factory's EP."""


def shows(name: str) -> Callable[[Shows], Shows]:
    """Marks what shows the mistake of that *name*."""

    def enter(function: Shows) -> Shows:
        EXHIBITS[name] = function
        return function

    return enter


@contextlib.contextmanager
def session_of(
    factory: ep.EpFactory,
    text: str,
    *,
    opset: int = 21,
    **options: Any,
) -> Iterator[onnxplug.InferenceSession]:
    """A session on the EP that *factory* makes, and behind it the CPU EP."""
    handle = f"planted {id(factory)}"
    onnxplug.register_ep_library(handle, factory)
    try:
        providers = [(factory.name, options), "cpu"]
        with warnings.catch_warnings():
            # that the EP runs no node, which the caller sees
            warnings.simplefilter("ignore", onnxplug.errors.EpWarning)
            session = onnxplug.InferenceSession(
                model_of(text, opset), providers=providers
            )
        with session:
            yield session
    finally:
        gc.collect()
        onnxplug.unregister_ep_library(handle)


def model_of(text: str, opset: int = 21) -> onnx.ModelProto:
    """The model of a graph in ONNX's text format."""
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}]> {text}'
    )


def is_wrong(
    factory: ep.EpFactory,
    text: str,
    feed: Mapping[str, Any],
    *more: Mapping[str, Any],
    opset: int = 21,
) -> bool:
    """Whether results differ from the CPU EP's, for any of the feeds."""
    with session_of(factory, text, opset=opset) as session:
        assert any(node.ep == factory.name for node in session.explain().nodes)
        with onnxplug.InferenceSession(
            model_of(text, opset), providers=["cpu"]
        ) as other:
            return any(
                differ(found, wanted)
                for each in (feed, *more)
                for found, wanted in zip(
                    session.run(None, dict(each)),
                    other.run(None, dict(each)),
                    strict=True,
                )
            )


def on_device(array: np.ndarray) -> onnxplug.OrtValue:
    """A copy of *array* on the device."""
    return onnxplug.OrtValue.ortvalue_from_numpy(array, SPACE, 0)


def differ(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether results are not what rounding of float32 explains."""
    if wanted.dtype.kind != "f":
        return not np.array_equal(found, wanted)
    return not np.allclose(found, wanted, rtol=1e-5, atol=1e-6, equal_nan=True)


F = np.float32

X: Final = np.arange(12, dtype=F).reshape(4, 3) - 5


def made_by(factory: Any) -> list[Any]:
    """The partitions that the EP compiles from now on, in order."""
    made: list[Any] = []

    class Noting(factory.provider):  # type: ignore[misc,name-defined]
        def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
            compiled: ep.CompiledPartition = super().compile(partition)
            made.append(compiled)
            return compiled

    factory.provider = Noting
    return made


def contexts_of(factory: Any) -> list[Any]:
    """The contexts that are made from now on, in order."""
    made: list[Any] = []
    make = factory.memory_spaces._make

    def noting(location: ep.MemoryLocation) -> Any:
        made.append(make(location))
        return made[-1]

    factory.memory_spaces._make = noting
    return made


class Run:
    """A run as an EP sees it."""

    options: Mapping[str, Any] = {}
    capture = None
    deadline = None
    profiler: Any = None

    def __init__(self, stream: Any, cancelled: Iterator[bool] | None = None) -> None:
        self.stream = stream
        self._cancelled = cancelled or itertools.repeat(False)

    @property
    def cancelled(self) -> bool:
        return next(self._cancelled)
