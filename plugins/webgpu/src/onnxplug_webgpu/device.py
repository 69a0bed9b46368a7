"""One of wgpu's devices, as what runs plans asks for it."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnxplug_compiler
from onnxplug import ep
from onnxplug_compiler.gpu.command import MOST_BUFFERS, MOST_GROUPS
from onnxplug_compiler.gpu.execution.array import DeviceArray
from onnxplug_compiler.gpu.execution.device import (
    DeviceStream,
    KernelRefused,
)
from onnxplug_compiler.gpu.render.wgsl import WGSL
from onnxplug_webgpu import __version__
from onnxplug_webgpu.adapters import Adapter, installed_version
from onnxplug_webgpu.loss import driving
from onnxplug_webgpu.pool import ALIGNMENT, Memory, of_its_own
from onnxplug_webgpu.queue import Queue
from onnxplug_webgpu.streams import WebGpuStream

_MOST_BINDINGS: Final = 4096
"""Groups of bound buffers that are kept."""

_MOST_PIPELINES: Final = 1024
"""Kernels that are kept for programs to come; programs keep their own."""

_APART: Final = 256
"""What begins in a uniform buffer does so at a multiple of it, on every adapter."""


class Pipeline:
    """A compiled kernel.

    Attributes:
        native: wgpu's pipeline.
        layout: of its bound buffers.
        serial: tells it from others.
    """

    __slots__ = ("layout", "native", "serial")

    def __init__(self, native: Any, layout: Any, serial: int) -> None:
        self.native = native
        self.layout = layout
        self.serial = serial


class Device(Queue):
    """A device, for all sessions of a process; a
    :class:`onnxplug_compiler.gpu.execution.device.Device`.

    Args:
        wgpu: the module.
        adapter: what it is on.

    Attributes:
        tuned: shapes of workgroups that were measured, by name; see
            :mod:`~.tuning`.

    Raises:
        RuntimeError: the driver gives no device.
    """

    array_type = DeviceArray
    dialect = WGSL
    alignment = ALIGNMENT
    numbers_alignment = _APART
    most_buffers = MOST_BUFFERS
    most_groups = (MOST_GROUPS, MOST_GROUPS)

    def __init__(self, wgpu: Any, adapter: Adapter) -> None:
        self.tuned: dict[str, int] = {}
        self._serials = itertools.count()
        super().__init__(wgpu, adapter)

    def _make(self) -> None:
        super()._make()
        self._pipelines: OrderedDict[str, Pipeline] = OrderedDict()

    def identity(self) -> Mapping[str, Any]:
        """Versions, adapter and driver."""
        adapter = self.adapter
        return {
            "onnxplug-webgpu": __version__,
            "onnxplug-compiler": onnxplug_compiler.__version__,
            "wgpu": installed_version()[0],
            "adapter": adapter.name,
            "backend": adapter.backend,
            "driver": adapter.driver,
            "ids": [adapter.vendor_id, adapter.device_id],
        }

    def new_stream(self) -> DeviceStream:
        """A stream."""
        return WebGpuStream(self)

    # kernels

    def kernel(self, text: str, written: Sequence[bool], lanes: int) -> Pipeline:
        """The compiled form of a kernel.

        Args:
            text: in WGSL.
            written: which of its buffers it writes to.
            lanes: as its text has them.

        Raises:
            KernelRefused: the driver does not compile it.
        """
        with self.lock:
            found = self._pipelines.get(text)
            if found is None:
                found = self._pipelines[text] = self._compiled(text, written)
                if len(self._pipelines) > _MOST_PIPELINES:
                    self._pipelines.popitem(last=False)
            else:
                self._pipelines.move_to_end(text)
            return found

    def _compiled(self, text: str, written: Sequence[bool]) -> Pipeline:
        stage = self.wgpu.ShaderStage.COMPUTE
        numbers = {"type": "uniform", "has_dynamic_offset": True}
        entries = [{"binding": 0, "visibility": stage, "buffer": numbers}]
        for number, writes in enumerate(written, 1):
            kind = "storage" if writes else "read-only-storage"
            entries.append(
                {"binding": number, "visibility": stage, "buffer": {"type": kind}}
            )
        native = self.native
        try:
            with driving(self):
                layout = native.create_bind_group_layout(entries=entries)
                pipeline = native.create_compute_pipeline(
                    layout=native.create_pipeline_layout(bind_group_layouts=[layout]),
                    compute={
                        "module": native.create_shader_module(code=text),
                        "entry_point": "main",
                    },
                )
        except Exception as error:
            ep.raise_interruption(error)
            if isinstance(error, ep.OnnxplugError | MemoryError):
                raise
            raise KernelRefused(
                f"the driver of {self.adapter}, {self.adapter.driver or 'unknown'}, "
                f"does not compile the kernel: {_first_line(error)}; update the driver"
            ) from error
        return Pipeline(pipeline, layout, next(self._serials))

    def launch(
        self,
        kernel: Pipeline,
        numbers: Memory,
        start: int,
        window: int,
        groups: tuple[int, int],
        buffers: Sequence[tuple[Memory, int, int]],
    ) -> tuple[Any, ...]:
        """The pipeline, the group of bound buffers, where the launch's numbers begin,
        and its workgroups along two axes."""
        places = [(memory.serial, begin, nbytes) for memory, begin, nbytes in buffers]
        self._check([numbers, *(memory for memory, _, _ in buffers)])
        key = (kernel.serial, numbers.serial, window, *places)
        found = self._bound.get(key)
        if found is None:
            entries = [_entry(0, numbers, 0, window)]
            entries += [
                _entry(
                    number, memory, begin, nbytes or min(memory.nbytes, self.largest)
                )
                for number, (memory, begin, nbytes) in enumerate(buffers, 1)
            ]
            with driving(self):
                found = self.native.create_bind_group(
                    layout=kernel.layout, entries=entries
                )
            self._bound[key] = found
            if len(self._bound) > _MOST_BINDINGS:
                self._bound.popitem(last=False)
        # the numbers, for them to be there as long as the launch
        return kernel.native, found, [start], *groups, numbers

    def engine(self, call: Any, begins: Sequence[int], workspace: int) -> Any:
        """Nothing: no library is called.

        Raises:
            KernelRefused: always.
        """
        raise KernelRefused(f"no library is called on WebGPU, and so not {call!r}")

    def engine_call(
        self,
        plan: Any,
        buffers: Sequence[tuple[Memory, int, int]],
        workspace: Memory | None,
    ) -> Any:
        """Nothing; see :meth:`engine`.

        Raises:
            KernelRefused: always.
        """
        return self.engine(plan, (), 0)

    def numbers(self, content: bytes) -> Memory:
        """Memory for the numbers of launches, filled."""
        with self.lock, driving(self):
            usage = self._usage.UNIFORM | self._usage.COPY_DST
            buffer = self.create(len(content), usage)
            self.queue.write_buffer(buffer, 0, content)
            return of_its_own(buffer, len(content), self.generation)

    def close(self) -> None:
        """Give up all memory that nobody uses, and kernels."""
        super().close()
        with self.lock:
            self._pipelines.clear()


def _entry(number: int, memory: Memory, begin: int, nbytes: int) -> dict[str, Any]:
    resource = {"buffer": memory.buffer, "offset": begin, "size": nbytes}
    return {"binding": number, "resource": resource}


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:6]) or type(error).__name__
