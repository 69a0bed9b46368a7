"""What the processor has: vector registers, features, caches.

Kernels are generated from a description, so that they can be generated, and looked
at, for a processor other than this one.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Final

from onnxplug import ep
from onnxplug.authoring.record import Record

LANES = 16
"""Lanes of the f32 vectors that kernels are written in, on every processor.

LLVM splits them into the registers there are: two on AVX2, four on NEON.
"""

VECTOR_BYTES: Final = 4 * LANES
"""Bytes of such a vector."""


class Isa(Record):
    """A processor, as far as generated code depends on it.

    Attributes:
        name: ``avx512``, ``avx2``, ``neon`` or ``generic``.
        triple: LLVM's target triple; always of the ELF format, which is what the
            loader reads, whatever the system.
        cpu: the processor whose instructions LLVM may use, beside *features*.
        features: LLVM's features in use, ``+avx512f,…``.
        vector_bytes: of one register.
        registers: how many vector registers there are.
        l1, l2, l3: bytes of data cache that one core can use.
        system_attributes: of every function, because of the operating system.
        tiles: what multiplies tiles of bfloat16, and of bytes if there is ``amx-int8``:
            ``amx``; ``emulated``, by slow vector code, for tests; or nothing.
        tuned_for: the processor whose scheduling LLVM assumes; empty for *cpu*.
        frames: which functions keep a frame pointer, ``none`` or ``non-leaf``.
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 8 << 20
    system_attributes: str = ""
    tiles: str = ""
    tuned_for: str = ""
    frames: str = "none"

    @property
    def registers_per_vector(self) -> int:
        """How many registers one vector of :data:`LANES` f32 takes."""
        return max(1, 4 * LANES // self.vector_bytes)

    def has(self, feature: str) -> bool:
        """Whether a feature (LLVM's name, such as ``amx-bf16``) is in use."""
        return f"+{feature}" in self.features.split(",")

    def without(self, feature: str) -> Isa:
        """The processor without a feature."""
        kept = [each for each in self.features.split(",") if each != f"+{feature}"]
        return self._replace(features=",".join(kept))

    @property
    def fuses(self) -> bool:
        """Whether it has an instruction for ``a * b + c``, rounded once."""
        return self.name == "neon" or self.has("fma")

    @property
    def multiplies_bf16(self) -> bool:
        """Whether it multiplies numbers of bfloat16, tiles or vectors of them."""
        return bool(self.tiles) or self.has("avx512bf16") or self.has("bf16")

    @property
    def multiplies_byte_tiles(self) -> bool:
        """Whether it multiplies tiles of bytes."""
        return bool(self.tiles) and self.has("amx-int8")

    @property
    def attributes(self) -> str:
        """The attributes of every function."""
        width = 8 * self.vector_bytes
        tuned = f' "tune-cpu"="{self.tuned_for}"' if self.tuned_for else ""
        return (
            f'nounwind "no-builtins" "frame-pointer"="{self.frames}" '
            f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
            f"{tuned} {self.system_attributes}"
        ).rstrip()


AVX512 = Isa(
    "avx512",
    "x86_64-unknown-linux-gnu",
    "skylake-avx512",
    "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx2,+fma,+f16c,+bmi2",
    64,
    32,
)
AMX = AVX512._replace(
    features=f"{AVX512.features},+avx512vnni,+avx512bf16,+amx-tile,+amx-bf16,+amx-int8",
    l2=2 << 20,
    tiles="amx",
)
AVX2 = Isa(
    "avx2", "x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma,+f16c,+bmi2", 32, 16
)
SSE = Isa("generic", "x86_64-unknown-linux-gnu", "x86-64", "+sse4.1", 16, 16)
NEON = Isa(
    "neon",
    "aarch64-unknown-linux-gnu",
    "generic",
    "+neon",
    16,
    32,
    tuned_for="neoverse-n1",
)


LIMIT: Final = "ONNXPLUG_CPU_ISA"
"""The variable that limits what :func:`host_isa` gives."""

_LIMITS: Final = ("avx512", "avx2_vnni", "avx2", "generic")
"""What it can be."""

_OPTIONAL: Final[dict[str, tuple[str, ...]]] = {
    "avx512": ("avx512vnni", "avx512bf16", "avx512vbmi"),
    "avx2": ("avxvnni",),
    "neon": ("lse", "dotprod", "i8mm", "bf16"),
}
"""Features that are used where they are, by the name of what they are added to."""

_AMX: Final = frozenset(("amx-tile", "amx-bf16"))


def host_isa(limit: str | None = None) -> Isa | None:
    """This processor; ``None`` for an architecture that no kernel is written for.

    Args:
        limit: use no more than ``avx512`` (without AMX), ``avx2_vnni`` (AVX2 and
            AVX-VNNI), ``avx2`` or ``generic`` has, the last also on aarch64; the
            variable ``ONNXPLUG_CPU_ISA`` by default.

    Raises:
        OptionError: the limit is none of these.
    """
    return detect(_checked(limit))[0]


def amx_problem() -> str | None:
    """Why AMX, which this processor has, cannot be used, in a sentence with a remedy;
    ``None`` if it is used, or is not wanted, or if the processor has none.

    Raises:
        OptionError: ``ONNXPLUG_CPU_ISA`` has a value that is not understood.
    """
    return detect(_checked(None))[1]


def _checked(limit: str | None) -> str:
    limit = limit or os.environ.get(LIMIT, "").strip().lower()
    if limit not in ("", *_LIMITS):
        *first, last = _LIMITS
        raise ep.OptionError(
            f"{LIMIT} is {limit!r}; it can be {', '.join(first)} or {last}"
        )
    return limit


@functools.cache
def detect(limit: str) -> tuple[Isa | None, str | None]:
    """What :func:`host_isa` and :func:`amx_problem` tell, found once in a process.

    Args:
        limit: as :func:`host_isa` takes it; empty for none.
    """
    from onnxplug_cpu.compiler.machine import processor

    found = processor.read_processor()
    features = found.features
    problem = None
    if found.architecture == "x86-64":
        isa, problem = _x86(features, limit)
    elif found.architecture == "aarch64":
        isa = NEON if limit == "generic" else _with_optional(NEON, features)
        if sys.platform in ("darwin", "win32"):
            # the register x18 belongs to these systems, and they follow frame pointers
            features = f"{isa.features},+reserve-x18"
            isa = isa._replace(features=features, frames="non-leaf")
    else:
        return None, None
    if sys.platform == "win32":
        isa = isa._replace(system_attributes=_WINDOWS_ATTRIBUTES)
    l1, l2, l3 = found.caches
    return isa._replace(l1=l1 or isa.l1, l2=l2 or isa.l2, l3=l3 or isa.l3), problem


def _x86(features: frozenset[str], limit: str) -> tuple[Isa, str | None]:
    """The processor with these features, and why AMX cannot be used."""
    from onnxplug_cpu.compiler.machine import processor

    if limit == "generic" or not features >= processor.HASWELL:
        return SSE, None
    if limit == "avx2":
        return AVX2, None
    if limit == "avx2_vnni" or not features >= processor.SKYLAKE_SERVER:
        return _with_optional(AVX2, features), None
    isa = _with_optional(AVX512, features)
    # asking is lasting, and makes signals' frames larger: only where it is of use
    if limit or not features >= _AMX:
        return isa, None
    problem = processor.amx_refusal()
    if problem is not None:
        return isa, problem
    used = sorted(features & {*_AMX, "amx-int8"})
    return isa._replace(features=",+".join([isa.features, *used]), tiles="amx"), None


_FAST_PAIRS: Final = "fast-dpwssd"
"""LLVM's name of a preference, without which it takes instructions apart that add
products of pairs, for the first sums to be known earlier."""


def _with_optional(isa: Isa, features: frozenset[str]) -> Isa:
    used = [name for name in _OPTIONAL[isa.name] if name in features]
    if "avxvnni" in used:
        used.append(_FAST_PAIRS)
    return isa._replace(features=",+".join([isa.features, *used]))


_WINDOWS_ATTRIBUTES: Final = 'noredzone "probe-stack"="inline-asm"'
"""Nothing below the stack pointer is safe, and the stack grows page by page."""
