"""Kernels of a device: compiled by NVRTC, kept on disk, and ready to be launched."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from onnxplug import ep
from onnxplug.authoring.entries import Cache, fingerprint
from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.execution.device import KernelRefused
from onnxplug_cuda.pool import Memory

if TYPE_CHECKING:
    from onnxplug_cuda.driver import Driver

DISTRIBUTION: Final = "onnxplug-cuda"
"""Whose folder machine code is kept in."""

_OPTIONS: Final = ("--std=c++17",)
_KERNEL: Final = "kernel"
"""What the function of a text is called."""

_MOST_ARGUMENTS: Final = 4096
"""Bytes of arguments that a launch has, at most, on all GPUs."""

_MOST_LAUNCHES: Final = 4096
"""Launches that are kept."""

_MOST_KERNELS: Final = 1024
"""Kernels that are kept though nothing may launch them any more."""

_UNLOADED_AT_ONCE: Final = 64
"""Modules of kernels that went, before it is worth waiting for all work to unload
them."""

_DAMAGED: Final = frozenset({200, 209, 218, 500})
"""What the driver says of machine code that is none, or none for the GPU."""


class Kernel:
    """A compiled kernel, whose module is there as long as this is.

    Args:
        module: the driver's.
        abandoned: modules of kernels that went.

    Attributes:
        function: the driver's.
        lanes: threads of a block.
    """

    __slots__ = ("__weakref__", "_abandoned", "_module", "function", "lanes")

    def __init__(
        self, module: int, function: int, lanes: int, abandoned: deque[int]
    ) -> None:
        self._module = module
        self._abandoned = abandoned
        self.function = function
        self.lanes = lanes

    def __del__(self) -> None:
        # in whatever thread, maybe as garbage is collected: no lock may be taken
        self._abandoned.append(self._module)


class KernelLaunch(Record):
    """A launch that is ready to be queued.

    Attributes:
        function: the driver's.
        x, y: blocks along two axes.
        lanes: threads of a block.
        shared: bytes of shared memory beside what the kernel declares.
        arguments: the address of the list of addresses of arguments.
        keeps: what is there, and the kernel.
    """

    function: int
    x: int
    y: int
    lanes: int
    shared: int
    arguments: int
    keeps: Any


class Kernels:
    """The kernels of a device, by their texts.  Used under the device's lock.

    Those that were asked for last are kept, and all that a launch, a captured graph or
    a plan holds.

    Args:
        settle: waits for all work; whether it can.

    Attributes:
        compiled: how many were compiled, and not found on disk.
    """

    def __init__(self, driver: Driver, settle: Callable[[], bool]) -> None:
        self._driver = driver
        self._settle = settle
        self._architecture = driver.properties.architecture
        self._known: WeakValueDictionary[str, Kernel] = WeakValueDictionary()
        self._recent: dict[str, Kernel] = {}
        self._abandoned: deque[int] = deque()
        self._cache: Cache | None = None
        self._version: tuple[int, int] | None = None
        self.compiled = 0

    @property
    def version(self) -> tuple[int, int]:
        """NVRTC's, major and minor.

        Raises:
            RuntimeError: the library cannot be loaded.
        """
        if self._version is None:
            try:
                major, minor = self._driver.nvrtc.getVersion()
            # CuPy's loader, and its search, raise what they like
            except Exception as error:
                ep.raise_interruption(error)
                raise RuntimeError(
                    f"NVRTC, CUDA's compiler, cannot be loaded: {error}; pip install "
                    "'onnxplug-cuda[cu13]' or '[cu12]'"
                ) from error
            self._version = int(major), int(minor)
        return self._version

    def get(self, text: str, lanes: int) -> Kernel:
        """The kernel of *text*, within the driver's context.

        Raises:
            KernelRefused: it is not compiled, or the GPU does not take it.
        """
        found = self._known.get(text)
        if found is None:
            if len(self._abandoned) >= _UNLOADED_AT_ONCE:
                self._unload()
            found = self._known[text] = self._loaded(text, lanes)
        self._recent.pop(text, None)
        self._recent[text] = found
        if len(self._recent) > _MOST_KERNELS:
            del self._recent[next(iter(self._recent))]
        return found

    def _loaded(self, text: str, lanes: int) -> Kernel:
        cache = self._opened_cache()
        name = self._entry_name(text)
        image = cache.load(name)
        if image is not None:
            try:
                return self._kernel(image, lanes)
            except RuntimeError as error:
                if getattr(error, "status", None) not in _DAMAGED:
                    raise
                cache.remove(name)
        image = self._compiled(text)
        try:
            kernel = self._kernel(image, lanes)
        except RuntimeError as error:
            ep.raise_interruption(error)
            if isinstance(error, ep.OnnxplugError):
                raise
            raise KernelRefused(
                f"{self._driver.properties} does not load a kernel: {error}; update "
                "the driver"
            ) from error
        cache.store(name, image)
        cache.prune_if_due()
        return kernel

    def _opened_cache(self) -> Cache:
        if self._cache is None:
            self._cache = Cache(DISTRIBUTION)
        return self._cache

    def _entry_name(self, text: str) -> str:
        facts = (self._architecture, self.version, _OPTIONS, text)
        return f"kernel-{fingerprint(repr(facts)).hex()}"

    def _kernel(self, image: bytes, lanes: int) -> Kernel:
        driver = self._driver.driver
        with self._driver:  # which tells faults, and that there is no memory
            module = int(driver.moduleLoadData(image))
            try:
                function = int(driver.moduleGetFunction(module, _KERNEL))
            except BaseException:
                self._abandoned.append(module)
                raise
        return Kernel(module, function, lanes, self._abandoned)

    def _compiled(self, text: str) -> bytes:
        nvrtc = self._driver.nvrtc
        program = nvrtc.createProgram(text, "kernel.cu", (), ())
        try:
            options = (f"--gpu-architecture={self._architecture}", *_OPTIONS)
            try:
                nvrtc.compileProgram(program, options)
            except nvrtc.NVRTCError as error:
                said = _first_lines(str(nvrtc.getProgramLog(program))) or str(error)
                raise KernelRefused(
                    f"NVRTC {'.'.join(map(str, self.version))} does not compile a "
                    f"kernel for {self._architecture}: {said}; another version of "
                    "CUDA's compiler may: pip install -U nvidia-cuda-nvrtc"
                ) from error
            self.compiled += 1
            return bytes(nvrtc.getCUBIN(program))
        finally:
            nvrtc.destroyProgram(program)

    def _unload(self) -> None:
        """Unload what no kernel is of any more, unless a run is captured: a launch that
        is queued may be the last that held it."""
        if self._settle():
            while self._abandoned:
                self._driver.driver.moduleUnload(self._abandoned.popleft())

    def close(self) -> None:
        """Unload those that nothing holds, within the driver's context."""
        self._recent.clear()
        if self._abandoned:
            self._unload()


class LaunchCache:
    """Launches that were made ready, for those that are the same again: memory is often
    where it was in the run before.  Used under the device's lock."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], KernelLaunch] = {}

    def launch(
        self,
        kernel: Kernel,
        numbers: bytes,
        start: int,
        window: int,
        groups: tuple[int, int],
        buffers: Sequence[tuple[Memory, int, int]],
    ) -> KernelLaunch:
        """A launch of *kernel*.

        Args:
            numbers: of which it has *window* bytes, from *start* on, by value
                behind its pointers.
            buffers: memories, and where what is bound of each begins.

        Raises:
            KernelRefused: its arguments are more than a launch has.
        """
        addresses = [memory.address + begin for memory, begin, _ in buffers]
        key = (kernel.function, groups, start, numbers, *addresses)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_LAUNCHES:
                self._known.clear()
            given = numbers[start : start + window]
            found = self._known[key] = _ready(kernel, given, groups, addresses)
        return found

    def clear(self) -> None:
        """Give them up."""
        self._known.clear()


def _ready(
    kernel: Kernel, numbers: bytes, groups: tuple[int, int], addresses: Sequence[int]
) -> KernelLaunch:
    count = len(addresses)
    if 8 * count + len(numbers) > _MOST_ARGUMENTS:
        raise KernelRefused(
            f"a kernel has arguments of {8 * count + len(numbers)} bytes; CUDA passes "
            f"at most {_MOST_ARGUMENTS}"
        )
    pointers = (ctypes.c_uint64 * count)(*addresses)
    words = ctypes.create_string_buffer(numbers, max(4, len(numbers)))
    first = ctypes.addressof(pointers)
    arguments = (ctypes.c_uint64 * (count + 1))(
        *range(first, first + 8 * count, 8), ctypes.addressof(words)
    )
    keeps = kernel, pointers, words, arguments
    x, y = groups
    return KernelLaunch(
        kernel.function, x, y, kernel.lanes, 0, ctypes.addressof(arguments), keeps
    )


def _first_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:6])
