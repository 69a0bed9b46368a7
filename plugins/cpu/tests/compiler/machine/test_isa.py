"""What is found out about the processor, from made-up systems and from this one."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

from onnxplug import ep
from onnxplug_cpu.compiler.codegen import atomics
from onnxplug_cpu.compiler.codegen.emit import PTR, Module
from onnxplug_cpu.compiler.machine import isa as module
from onnxplug_cpu.compiler.machine import processor
from onnxplug_cpu.compiler.machine.isa import (
    AVX2,
    AVX512,
    NEON,
    SSE,
    Isa,
    amx_problem,
    host_isa,
)
from onnxplug_cpu.compiler.machine.processor import Processor, read_processor

from ..interpreter import target_machine

# /proc/cpuinfo as Linux has it, flags that do not matter left out
HASWELL = (
    "fpu sse sse2 ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt avx f16c abm bmi1 avx2 bmi2"
)
CASCADE_LAKE = f"{HASWELL} avx512f avx512dq avx512cd avx512bw avx512vl avx512_vnni"
SAPPHIRE_RAPIDS = f"{CASCADE_LAKE} avx512_bf16 amx_bf16 avx512_fp16 amx_tile amx_int8"


@pytest.fixture
def linux(tmp_path: Path, monkeypatch):
    """Makes this system one with the files of another."""
    monkeypatch.setattr(sys, "platform", "linux")

    def make(flags: str, machine: str = "x86_64", caches: str = "") -> str:
        monkeypatch.setattr(platform, "machine", lambda: machine)
        (tmp_path / "proc").mkdir(exist_ok=True)
        block = f"processor\t: 0\nmodel name\t: A B\nflags\t\t: {flags}\nbugs\t\t:\n\n"
        (tmp_path / "proc/cpuinfo").write_text(block * 4)
        for index, line in enumerate(caches.splitlines()):
            folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}"
            folder.mkdir(parents=True)
            for name, text in zip(("level", "type", "size"), line.split(), strict=True):
                (folder / name).write_text(f"{text}\n")
        return str(tmp_path)

    return make


@pytest.fixture
def host(monkeypatch):
    """:func:`host_isa` of a processor that is made up."""
    monkeypatch.delenv("ONNXPLUG_CPU_ISA", raising=False)

    def make(found: Processor, *, amx: bool = False, limit: str = "") -> Isa | None:
        monkeypatch.setattr(processor, "read_processor", lambda: found)
        refusal = None if amx else "refused; remedy"
        monkeypatch.setattr(processor, "amx_refusal", lambda: refusal)
        module.detect.cache_clear()
        return host_isa(limit)

    yield make
    module.detect.cache_clear()


def x86(flags: str, caches: tuple[int, int, int] = (0, 0, 0)) -> Processor:
    return Processor("x86-64", processor.llvm_names(flags.split()), caches)


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "aarch64",
    reason="asks Linux on aarch64",
)
def test_linux_tells_of_this_aarch64() -> None:
    assert processor.auxiliary(16) & 1 << 1  # vectors, which all have
    assert processor.auxiliary(1 << 20) == 0


def test_linux_names_features_as_llvm_does(linux) -> None:
    found = read_processor(linux(SAPPHIRE_RAPIDS))
    assert found.architecture == "x86-64"
    assert found.features >= {
        *("sse4.1", "lzcnt", "bmi", "bmi2", "avx512vnni", "avx512bf16"),
        *("amx-tile", "amx-bf16", "amx-int8"),
    }


CACHES = "1 Data 48K\n1 Instruction 32K\n2 Unified 2048K\n3 Unified 105M"


def test_linux_tells_the_sizes_of_caches(linux) -> None:
    found = read_processor(linux(HASWELL, caches=CACHES))
    assert found.caches == (48 << 10, 2 << 20, 105 << 20)


@pytest.mark.parametrize("caches", ["", "1 Data -\n2 Unified K\n9 Unified 5M"])
def test_unknown_caches_are_left_open(linux, caches: str) -> None:
    assert read_processor(linux(HASWELL, caches=caches)).caches == (0, 0, 0)


def test_a_system_without_files_tells_nothing(linux, tmp_path: Path) -> None:
    linux("")
    found = read_processor(str(tmp_path / "nothing"))
    assert found == Processor("x86-64", frozenset(), (0, 0, 0))


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [
        ("AMD64", "x86-64"),
        ("aarch64", "aarch64"),
        ("arm64", "aarch64"),
        ("riscv64", ""),
    ],
)
def test_architectures(linux, machine: str, architecture: str) -> None:
    assert read_processor(linux("", machine)).architecture == architecture


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", SSE),
        ("avx2 fma", SSE),
        (HASWELL, AVX2),
        (HASWELL.replace("abm", ""), SSE),
        (CASCADE_LAKE.replace("avx512vl", ""), AVX2),
        (CASCADE_LAKE.replace("bmi2", ""), SSE),
        (CASCADE_LAKE.replace("avx512_vnni", ""), AVX512),
    ],
)
def test_a_level_needs_all_that_its_code_uses(host, flags: str, expected: Isa) -> None:
    assert host(x86(flags)) == expected


def test_optional_features_are_used_where_they_are(host) -> None:
    found = host(x86(CASCADE_LAKE))
    assert found.name == "avx512"
    assert found.has("avx512f")
    assert found.has("avx512vnni")
    assert not found.has("avx512bf16")


@pytest.mark.parametrize("allowed", [True, False])
def test_amx_needs_the_permission_of_the_system(host, allowed: bool) -> None:
    found = host(x86(SAPPHIRE_RAPIDS), amx=allowed)
    assert found.has("avx512bf16")
    for name in ("amx-tile", "amx-bf16", "amx-int8"):
        assert found.has(name) == allowed
    assert found.tiles == ("amx" if allowed else "")
    assert amx_problem() == (None if allowed else "refused; remedy")


def test_amx_is_used_without_its_int8_part(host) -> None:
    found = host(x86(SAPPHIRE_RAPIDS.replace("amx_int8", "")), amx=True)
    assert found.tiles == "amx"
    assert not found.has("amx-int8")
    assert host(x86(SAPPHIRE_RAPIDS.replace("amx_bf16", "")), amx=True).tiles == ""


def test_nothing_is_told_of_amx_that_is_not_there_or_not_wanted(
    host, monkeypatch
) -> None:
    host(x86(CASCADE_LAKE))
    assert amx_problem() is None
    host(x86(SAPPHIRE_RAPIDS))
    assert amx_problem() is not None
    monkeypatch.setenv("ONNXPLUG_CPU_ISA", "avx512")
    assert amx_problem() is None


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EINVAL, "Linux 5.16"),
        (errno.ENOSPC, "sigaltstack"),
        (errno.EPERM, "filter"),
        (errno.EIO, "ARCH_REQ_XCOMP_PERM"),
    ],
)
def test_a_refusal_has_a_remedy(monkeypatch, number: int, remedy: str) -> None:
    class Refusing:
        def __init__(self, name: str | None, use_errno: bool) -> None:
            assert use_errno

        def syscall(self, *arguments: Any) -> int:
            assert [a.value for a in arguments] == [158, 0x1023, 18]
            ctypes.set_errno(number)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", Refusing)
    refusal = processor.amx_refusal()
    assert refusal is not None
    assert os.strerror(number) in refusal
    assert remedy in refusal


def test_other_systems_than_linux_are_not_asked(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert "win32" in (processor.amx_refusal() or "")


def test_amx_is_not_asked_for_without_need(host, monkeypatch) -> None:
    asked = []
    for flags, limit in ((CASCADE_LAKE, ""), (SAPPHIRE_RAPIDS, "avx512")):
        host(x86(""), limit=limit)
        monkeypatch.setattr(processor, "read_processor", lambda f=flags: x86(f))
        monkeypatch.setattr(processor, "amx_refusal", lambda: asked.append(1))
        module.detect.cache_clear()
        assert not host_isa(limit).has("amx-tile")
    assert not asked


@pytest.mark.parametrize(
    ("limit", "name"),
    [
        *(("generic", "generic"), ("avx2", "avx2")),
        *(("avx2_vnni", "avx2"), ("avx512", "avx512")),
    ],
)
def test_limits(host, monkeypatch, limit: str, name: str) -> None:
    assert host(x86(SAPPHIRE_RAPIDS), amx=True, limit=limit).name == name
    monkeypatch.setenv("ONNXPLUG_CPU_ISA", limit.upper())
    found = host_isa()
    assert found.name == name
    assert not found.has("amx-tile")
    assert host(x86(""), limit=limit).name == "generic"


def test_a_limit_that_is_none_is_told(monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_ISA", "avx1024")
    with pytest.raises(
        ep.OptionError, match="ONNXPLUG_CPU_ISA is 'avx1024'; it can be"
    ):
        host_isa()


def test_products_of_bytes_are_those_that_the_processor_has(host) -> None:
    assert host(x86(f"{HASWELL} avx_vnni")).has("avxvnni")
    assert not host(x86(f"{HASWELL} avx_vnni"), limit="avx2").has("avxvnni")
    assert not host(x86(f"{CASCADE_LAKE} avx_vnni")).has("avxvnni")
    narrow = host(x86(f"{CASCADE_LAKE} avx_vnni"), limit="avx2_vnni")
    assert (narrow.name, narrow.has("avxvnni")) == ("avx2", True)
    assert host(x86(CASCADE_LAKE), limit="avx2_vnni") == AVX2
    names = ("lse", "dotprod", "i8mm", "bf16")
    for limit, expected in (("", True), ("generic", False)):
        found = host(Processor("aarch64", frozenset(names), (0, 0, 0)), limit=limit)
        assert [found.has(name) for name in names] == 4 * [expected]


def test_aarch64_is_not_taken_for_a_later_version() -> None:
    """Instructions of ARMv8.1 and later end a process on a Cortex-A72."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    found = []
    for isa in (NEON, NEON._replace(features="+neon,+lse")):
        module = Module()
        f = module.function("add", [("place", PTR)])
        atomics.add(f, f.parameters[0], 1)
        f.finish()
        parsed = llvm.parse_assembly(module.text(isa.attributes))
        found.append(target_machine(isa, jit=False).emit_assembly(parsed))
    assert ["ldadd" in text for text in found] == [False, True]


def test_features_of_aarch64_are_read(linux, monkeypatch) -> None:
    root = linux(SAPPHIRE_RAPIDS, "aarch64")  # as an emulator shows the file
    numbers = {16: 1 << 1 | 1 << 20, 26: 1 << 13 | 1 << 14}  # asimd asimddp i8mm bf16
    monkeypatch.setattr(processor, "auxiliary", numbers.__getitem__)
    assert read_processor(root).features == {"dotprod", "i8mm", "bf16"}
    monkeypatch.setattr(processor, "auxiliary", {16: 1 << 8, 26: 0}.__getitem__)
    assert read_processor(root).features == {"lse"}
    monkeypatch.setattr(sys, "platform", "darwin")
    name = "hw.optional.arm.FEAT_DotProd"
    monkeypatch.setattr(processor, "sysctl", lambda key: b"\1" if key == name else b"")
    assert read_processor().features == {"dotprod"}


def test_sizes_of_caches_are_taken_over_where_known(host) -> None:
    found = host(x86(HASWELL, (1 << 10, 0, 3 << 10)))
    assert (found.l1, found.l2, found.l3) == (1 << 10, AVX2.l2, 3 << 10)


def test_other_architectures(host, monkeypatch) -> None:
    assert host(Processor("", frozenset(), (0, 0, 0))) is None
    arm = Processor("aarch64", frozenset(), (0, 0, 0))
    assert host(arm) == NEON
    monkeypatch.setattr(sys, "platform", "darwin")
    assert host(arm).has("reserve-x18")
    assert '"frame-pointer"="non-leaf"' in host(arm).attributes


def test_windows_needs_probes_and_no_red_zone(host, monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    attributes = host(x86(HASWELL)).attributes
    assert "noredzone" in attributes
    assert '"probe-stack"="inline-asm"' in attributes


@pytest.mark.parametrize(
    "answers",
    [
        {
            "machdep.cpu.features": b"FPU SSE4.1 SSE4.2 MOVBE POPCNT AVX1.0 F16C FMA\0",
            "machdep.cpu.leaf7_features": b"BMI1 AVX2 BMI2 ERMS\0",
            "machdep.cpu.extfeatures": b"SYSCALL XD LZCNT\0",
            "hw.l1dcachesize": (32 << 10).to_bytes(8, "little"),
            "hw.l2cachesize": (256 << 10).to_bytes(8, "little"),
        }
    ],
)
def test_macos_is_asked_by_name(monkeypatch, answers: dict[str, bytes]) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(
        processor, "sysctl", lambda name: answers.get(name, b"").rstrip(b"\0")
    )
    found = read_processor()
    assert found.features >= processor.HASWELL
    assert found.caches == (32 << 10, 256 << 10, 0)


def test_this_processor_is_one_that_llvm_finds_no_less_able() -> None:
    isa = host_isa("")
    if isa is None or platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("LLVM tells of x86-64 only")
    features = llvm.get_host_cpu_features()
    names = [name.removeprefix("+") for name in isa.features.split(",")]
    names = [name for name in names if not name.startswith("fast-")]
    assert [name for name in names if not features[name]] == []


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="asks Linux on x86-64",
)
def test_the_permission_for_amx_is_asked_for_as_linux_documents() -> None:
    """Apart, as it is for the whole process and for good."""
    program = (
        "from onnxplug_cpu.compiler.machine.processor import *\n"
        "has = 'amx-tile' in read_processor().features\n"
        "refusal = amx_refusal()\n"
        "assert (refusal is None) == has, refusal\n"
        "assert has or 'Linux refuses' in refusal and ';' in refusal"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
