"""Which devices the CPU EP drives, and how it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from onnxplug import ep
from onnxplug_cpu import __version__

_TILES: Final = {"2x2": 2, "4x4": 4}
_ROUNDED: Final = {
    "auto": (("bfloat16", 1), ("float16", 2)),
    "float32": (),
    "bf16": (("bfloat16", 1), ("float16", 1), ("float32", 1)),
}
"""Of how many terms of bfloat16 factors are at most, by the dtype of weights."""

_NO_ARENA: Final = "this EP has no arena, since its memory is numpy's"


class CpuFactory(ep.EpFactory):
    """Drives the processor; takes every ONNX operator on host memory."""

    spi_version = (1, 0)
    name = "CPUExecutionProvider"
    vendor = "onnxplug"
    version = __version__
    tried_on: ClassVar[Mapping[ep.DeviceType, str]] = {
        ep.DeviceType.CPU: "x86-64 processors, on Linux"
    }
    options: ClassVar[Mapping[str, ep.Option]] = {
        "compile": ep.Option(
            default=True,
            doc="compile nodes to machine code; otherwise all run on numpy arrays",
        ),
        "fp32_matmul": ep.Option(
            default="auto",
            choices=("auto", "fma"),
            doc="how compiled products of float32 are computed: auto by tiles of "
            "bfloat16, as exact and faster, where the processor has AMX; fma never",
        ),
        "precision": ep.Option(
            default="auto",
            choices=tuple(_ROUNDED),
            doc="of the factors of compiled products with weights: with auto both are "
            "bfloat16 where the model says so, and, of matrices, sums of two bfloat16 "
            "where it says float16 and the processor has AMX; with bf16 both are "
            "rounded to it, with float32 neither; products are summed as float32; "
            "bfloat16 is used where the processor has AMX, AVX512_BF16 or, on aarch64, "
            "BF16, and it is faster",
        ),
        "winograd": ep.Option(
            default="2x2",
            choices=("off", *_TILES),
            doc="the largest tiles of compiled convolutions of 3×3 with fewer "
            "multiplications, where that is faster: with 2x2 errors are about as large "
            "as without, with 4x4 two to three times",
        ),
        "arena_extend_strategy": ep.Option(
            default="kNextPowerOfTwo",
            choices=("kNextPowerOfTwo", "kSameAsRequested"),
            doc="for programs that set it for ONNX Runtime",
            ignored=_NO_ARENA,
        ),
        "use_arena": ep.Option(
            default=True,
            doc="for programs that set it for ONNX Runtime",
            ignored=_NO_ARENA,
        ),
    }

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        """One pair: this EP and the processor."""
        return [
            ep.EpDevice(
                ep_name=self.name,
                device=device,
                ep_vendor=self.vendor,
                metadata={"version": self.version},
            )
            for device in devices
            if device.type is ep.DeviceType.CPU
        ][:1]

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session."""
        from onnxplug_cpu.provider import CpuProvider

        precision = str(options["precision"])
        for name, value in (("compile", False), ("fp32_matmul", "fma")):
            if precision == "bf16" and options[name] == value:
                raise ep.OptionError(
                    f"the option precision is bf16, which needs instructions that "
                    f"{name}={value} forbids; leave one of the two out"
                )
        return CpuProvider(
            session.intra_op_num_threads,
            compiles=bool(options["compile"]),
            splits=options["fp32_matmul"] == "auto",
            largest_tile=_TILES.get(str(options["winograd"]), 0),
            rounds=_ROUNDED[precision],
            supplied=session.find_kernel,
            weights=session.weights(ep.HOST),
        )

    def diagnose(self) -> Iterable[ep.Finding]:
        """Whether numpy is there, machine code can be run, and code can be kept."""
        try:
            import numpy as np
        except ImportError as error:
            yield ep.Finding(
                level=ep.Level.ERROR,
                message=f"numpy cannot be imported: {error}",
                remedy="reinstall numpy in this environment",
            )
            return
        yield ep.Finding(level=ep.Level.OK, message=f"numpy {np.__version__} computes")
        yield from _compiled_tier()

    def operators(self) -> Iterable[ep.OperatorSupport]:
        """What each tier runs, on a machine on which all of them work."""
        from onnxplug_cpu.operators import operators

        return operators()


def _compiled_tier() -> Iterable[ep.Finding]:
    from onnxplug_cpu.compiler.codegen.integer_products import instruction_for_bytes
    from onnxplug_cpu.compiler.kernels.contraction.tile import elements_of_quads
    from onnxplug_cpu.compiler.machine.cores import default_workers
    from onnxplug_cpu.compiler.machine.isa import amx_problem
    from onnxplug_cpu.compiler.runtime.jit import Library, machine_code_unavailable

    reason = machine_code_unavailable()
    if reason is not None:
        message, _, remedy = reason.partition("; ")
        yield ep.Finding(level=ep.Level.WARNING, message=message, remedy=remedy)
        return
    library = Library.host()
    isa = library.isa
    names = [instruction_for_bytes(isa, each) for each in elements_of_quads(isa)]
    bytes_by = f"bytes multiplied by {' and '.join(names)}, " if names else ""
    yield ep.Finding(
        level=ep.Level.OK,
        message=f"machine code for {isa.name}{' with AMX' * bool(isa.tiles)}, "
        f"{bytes_by}{default_workers()} threads by default",
    )
    problem = amx_problem()
    if problem:
        reason, _, remedy = problem.partition("; ")
        yield ep.Finding(
            level=ep.Level.WARNING,
            message=f"AMX is not used: {reason}",
            remedy=remedy,
        )
    problem = library.cache.problem
    if problem:
        yield ep.Finding(
            level=ep.Level.WARNING,
            message=f"compiled code is not kept: {problem}",
            remedy="let ONNXPLUG_CACHE_DIR name a folder of your own",
        )
