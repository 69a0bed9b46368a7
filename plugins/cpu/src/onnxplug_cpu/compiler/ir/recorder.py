"""Collects what a plan does: commands, checks, and the constants that it packs.

Operations record commands over buffers; :mod:`~onnxplug_cpu.compiler.runtime.arena`
then places the temporary ones, and :mod:`~onnxplug_cpu.compiler.runtime.program` gives
words their values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np

from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.ir.commands import (
    MAX_CHUNKS,
    Acceptance,
    Address,
    Check,
    Command,
    Constant,
    Flag,
    Packed,
    Temporary,
    Word,
)
from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.target.isa import Isa

PackedConstants: TypeAlias = dict[tuple[Hashable, str], tuple[Any, Packed]]
"""Constants that some plan packed, by the constant's key and the layout's name.

Where the key is the identity of an array, the array is there too, which keeps its
identity from being used again.
"""

Filling: TypeAlias = "Callable[[Recorder, View, Address], None]"
"""Records the commands that write the packed form of a constant."""


class Recorder:
    """Collects the commands of one plan.

    Attributes:
        isa: the processor to generate for.
        workers: how many threads will run the commands, for the number of chunks.
        commands: what was recorded.
        checks: what to look at after a run.
        nodes: indices of the nodes that are being recorded.
        allow_bf16x3: whether products of float32 may be computed from bfloat16 terms;
            asked only where that is of use.
        largest_tile: of transforms that convolutions may be computed by; 0 for none.
    """

    def __init__(
        self,
        isa: Isa,
        workers: int,
        packed: PackedConstants | None = None,
        allow_bf16x3: Callable[[], bool] = bool,
        *,
        largest_tile: int = 0,
    ) -> None:
        self.isa = isa
        self.workers = workers
        self.commands: list[Command] = []
        self.checks: list[Check] = []
        self.nodes: tuple[int, ...] = ()
        self.allow_bf16x3 = allow_bf16x3
        self.largest_tile = largest_tile
        self._packed = {} if packed is None else packed

    def temporary(self, dtype: np.dtype[Any], shape: Sequence[int]) -> View:
        """A new array in the arena, its content undefined."""
        nbytes = math.prod(shape) * dtype.itemsize
        return View.contiguous(Temporary(nbytes), dtype, shape)

    def scratch(self, nbytes: int) -> tuple[Address, int]:
        """*nbytes* for each worker: the first one's address, and the distance between
        two workers', which is what a kernel multiplies with its worker's number."""
        distance = -(-nbytes // 64) * 64
        return Address(Temporary(distance * self.workers)), distance

    def constant(self, array: np.ndarray[Any, Any]) -> View:
        """A constant array."""
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        buffer = Constant(array.nbytes, lambda: array)
        return View.contiguous(buffer, array.dtype, array.shape)

    def packed(
        self,
        source: View,
        layout: str,
        nbytes: int,
        record: Filling,
        accepts: Acceptance | None = None,
    ) -> Address:
        """A constant in another layout, packed once for all plans of a session.

        Args:
            source: a view of a constant; how it is strided is part of *layout*.
            layout: names the layout, with all its parameters, among those of a
                session, as :mod:`~..runtime.packed_layout` does among all.
            nbytes: the size of the packed form.
            record: records the commands that write it, given a recorder, the source
                and its address; it depends on nothing of the source but its layout.
            accepts: whether the packed form may be used; where it may not, the plan
                is made anew, and :meth:`is_refused` says so then.
        """
        key, array = self._packed_key(source, layout)
        if key not in self._packed:
            buffer = Packed(nbytes, accepts)
            filling = Recorder(self.isa, self.workers, self._packed)
            record(filling, source, Address(buffer))
            buffer.fill = tuple(filling.commands)
            assert isinstance(source.buffer, Constant)
            buffer.source = source.buffer
            # another thread may have been first
            return Address(self._packed.setdefault(key, (array, buffer))[1])
        return Address(self._packed[key][1])

    def is_refused(self, source: View, layout: str) -> bool:
        """Whether that form of a constant was packed, and not accepted."""
        key, _ = self._packed_key(source, layout)
        return key in self._packed and self._packed[key][1].refused

    def _packed_key(
        self, source: View, layout: str
    ) -> tuple[tuple[Hashable, str], np.ndarray[Any, Any] | None]:
        """The key of a packed constant, and the array if the key is its identity."""
        constant = source.buffer
        if not isinstance(constant, Constant):
            raise TypeError("only constants are packed")
        if constant.key is not None:
            return (constant.key, layout), None
        return (id(constant.array), layout), constant.array

    def check(self, error: Callable[[int], Exception]) -> Address:
        """The address of a new :class:`Flag`, for a kernel that may find an error.

        Any chunk may write it at any time, so one that was found, not always the
        first, is reported; results of a run that fails are not used.

        Args:
            error: makes the exception from what the kernel wrote, never 0.
        """
        flag = Flag()
        self.checks.append(Check(flag, error, self.nodes))
        return Address(flag)

    def part(self) -> Recorder:
        """A recorder of commands that are to be made into one of this recorder's."""
        part = Recorder(
            self.isa,
            self.workers,
            self._packed,
            self.allow_bf16x3,
            largest_tile=self.largest_tile,
        )
        part.nodes, part.checks = self.nodes, self.checks
        return part

    def call(
        self,
        kernel: Kernel,
        words: dict[str, Word],
        *,
        chunks: int = 1,
        label: str = "",
        flops: int = 0,
        nbytes: int = 0,
        note: str = "",
    ) -> None:
        """Record a command; *words* are by name, in any order.

        Raises:
            ValueError: other words than the kernel's, or too many chunks.
        """
        if words.keys() != set(kernel.words):
            raise ValueError(
                f"{kernel.key} takes the words {sorted(kernel.words)}; "
                f"got {sorted(words)}"
            )
        if not 0 <= chunks <= MAX_CHUNKS:
            raise ValueError(
                f"{label or kernel.key} has {chunks} chunks; expected 0 to {MAX_CHUNKS}"
            )
        if chunks == 0:
            return
        ordered = tuple(words[name] for name in kernel.words)
        self.commands.append(
            Command(kernel, ordered, chunks, label, flops, nbytes, self.nodes, note)
        )
