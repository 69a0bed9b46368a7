"""TensorRT on one GPU, for one session."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug_tensorrt.callbacks import SessionLog, messages_of
from onnxplug_tensorrt.driver import CurrentContext
from onnxplug_tensorrt.settings import version_of

DTYPES: Final = {
    "FLOAT": ep.DataType.FLOAT32,
    "HALF": ep.DataType.FLOAT16,
    "BF16": ep.DataType.BFLOAT16,
    "INT8": ep.DataType.INT8,
    "INT32": ep.DataType.INT32,
    "INT64": ep.DataType.INT64,
    "BOOL": ep.DataType.BOOL,
    "UINT8": ep.DataType.UINT8,
    "FP8": ep.DataType.FLOAT8_E4M3FN,
    "INT4": ep.DataType.INT4,
    "FP4": ep.DataType.FLOAT4_E2M1FN,
    "E8M0": ep.DataType.FLOAT8_E8M0FNU,
}
"""Element types by TensorRT's names."""

_registering: Final = new_lock()
_registered: Final[set[str]] = set()
"""Libraries of plugins, which TensorRT has once in a process."""


class Library:
    """TensorRT's module, its log, its runtime, and the CUDA context that it works in.

    Args:
        tensorrt: the module.
        current: makes the context the thread's.
        logger: the session's.
        detailed: log all that TensorRT says.

    Attributes:
        facts: of the GPU.
        version: TensorRT's, major and minor.
        log: what it says of this session.
        messages: what it logs to, whichever session it works for.

    Raises:
        RuntimeError: TensorRT does not begin.
    """

    def __init__(
        self,
        tensorrt: Any,
        current: CurrentContext,
        logger: logging.Logger,
        *,
        detailed: bool = False,
    ) -> None:
        self.tensorrt = tensorrt
        self.logger = logger
        self.facts = current.facts()
        self._context = current
        self.version = version_of(tensorrt)
        self.log = SessionLog(logger, detailed=detailed)
        self.messages = messages_of(tensorrt)
        self._runtime: Any = None

    @property
    @contextmanager
    def current(self) -> Iterator[None]:
        """Within, the calling thread works for this session, in the CUDA context."""
        with self._context, self.messages.to(self.log):
            yield

    def load_plugins(self, paths: tuple[str, ...]) -> None:
        """Load TensorRT's own plugins, and libraries of others'.

        Raises:
            OptionError: a library is not there, or TensorRT does not take it.
        """
        with self.current:
            self.tensorrt.init_libnvinfer_plugins(self.messages, "")
            registry = self.tensorrt.get_plugin_registry()
            with _registering:
                for path in paths:
                    if path not in _registered:
                        self._load(registry, path)
                        _registered.add(path)

    def _load(self, registry: Any, path: str) -> None:
        why = "there is no such file"
        if Path(path).is_file():
            if registry.load_library(path) is not None:
                return
            why = f"TensorRT did not load it: {self.log.taken()}"
        raise ep.OptionError(f"option 'trt_extra_plugin_lib_paths' has {path!r}: {why}")

    def deserialise(self, plan: Any) -> Any:
        """The engine that *plan* is, in memory of the GPU.

        Raises:
            ValueError: TensorRT cannot use it.
        """
        with self.current:
            if self._runtime is None:
                self._runtime = self.tensorrt.Runtime(self.messages)
            engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise ValueError(
                f"TensorRT {self.tensorrt.__version__} does not take the engine: "
                f"{self.log.taken()}"
            )
        return engine

    def dtype_of(self, native: Any) -> ep.DataType | None:
        """The element type that TensorRT calls *native*."""
        return DTYPES.get(native.name)

    def close(self) -> None:
        """Release the runtime."""
        with self.current:
            self._runtime = None
