"""The stand-in's module."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from types import SimpleNamespace
from typing import Any

from . import building, enums, parsing, running
from .libcuda import LibCuda


class ILogger:
    Severity = enums.Severity

    def __init__(self) -> None:
        self._is_begun = True

    def log(self, severity: enums.Severity, msg: str) -> None:
        raise NotImplementedError


class IProgressMonitor:
    def __init__(self) -> None:
        self._is_begun = True


class IOutputAllocator:
    def __init__(self) -> None:
        self._is_begun = True


class IPluginRegistry:
    def __init__(self) -> None:
        self._loaded: list[str] = []

    def load_library(self, plugin_path: str) -> object | None:
        if plugin_path in self._loaded or plugin_path.endswith(".txt"):
            return None
        self._loaded.append(plugin_path)
        return object()


class TensorRT(SimpleNamespace):
    """The module ``tensorrt``.

    Args:
        cuda: the driver, of the GPU that computes.
        version: of TensorRT.

    Attributes:
        counts: how often what took place.
        refused: by operator, the code and the words with which the parser refuses it.
        gate: builds stand still while it is not set.
        building: set while one is under way.
        builds, most_builds: how many are under way, and were at once.
        fails: why the next builds fail.
        aliases: outputs that are written over inputs.
        rangeless: tensors of which no range is taken.
        engines: those that are there.
        configs, networks: of builds, as they were made.
    """

    ILogger = ILogger
    IProgressMonitor = IProgressMonitor
    IOutputAllocator = IOutputAllocator

    def __init__(self, cuda: LibCuda, version: str = "11.4.0.106") -> None:
        super().__init__()
        self.__version__ = version
        self.cuda = cuda
        self.machine = cuda.machine
        self.counts: Counter[str] = Counter()
        self.refused: dict[str, tuple[str, str]] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.building = threading.Event()
        self.lock = threading.Lock()
        self.builds = self.most_builds = 0
        self.fails = ""
        self.aliases: dict[str, str] = {}
        self.rangeless: set[str] = set()
        self.engines: weakref.WeakSet[running.ICudaEngine] = weakref.WeakSet()
        self.configs: list[building.IBuilderConfig] = []
        self.networks: list[parsing.INetworkDefinition] = []
        self.registry = IPluginRegistry()
        for enum in enums.ALL:
            setattr(self, enum.__name__, enum)
        vars(self).update(enums.SHORT_NAMES)
        if version.startswith("10."):
            vars(self).update(enums.BEFORE_11)
        for each in (
            *building.CLASSES,
            *parsing.CLASSES,
            *running.CLASSES,
        ):
            setattr(self, each.__name__, type(each.__name__, (each,), {"world": self}))

    def init_libnvinfer_plugins(self, logger: Any, namespace: str) -> bool:
        assert getattr(logger, "_is_begun", True)
        return True

    def get_plugin_registry(self) -> IPluginRegistry:
        return self.registry

    def get_nv_onnx_parser_version(self) -> int:
        return 110400

    def check_context(self, what: str) -> None:
        """Check that the thread has a CUDA context."""
        if not self.cuda.pushed:
            self.machine.violate(f"{what} is called in a thread without CUDA's context")
