"""Objects become images: on x86-64 they are run, on aarch64 decoded."""

from __future__ import annotations

import ctypes
import re
import struct
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np
import pytest

from onnxplug_cpu.compiler.codegen.emit import Module
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel
from onnxplug_cpu.compiler.machine.isa import AVX2, NEON, Isa, host_isa
from onnxplug_cpu.compiler.runtime.code_memory import CodeMemory
from onnxplug_cpu.compiler.runtime.elf import ImageError, flatten
from onnxplug_cpu.compiler.runtime.image import Image
from onnxplug_cpu.compiler.runtime.jit import compile_object, symbol

X86_64, AARCH64 = 62, 183
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()


class Part(NamedTuple):
    """A section of an object that is made up."""

    name: str
    content: bytes
    flags: int = 2
    alignment: int = 1
    type: int = 1


class Reference(NamedTuple):
    """A relocation in section 0."""

    offset: int
    type: int
    symbol: str
    addend: int = 0


def make_object(
    machine: int,
    parts: list[Part],
    symbols: dict[str, tuple[int, int]],
    references: list[Reference],
) -> bytes:
    """An ELF64 object; a symbol is a number of a part and a place in it."""
    names = "\0" + "\0".join(symbols) + "\0"
    table = bytes(24)
    for name, (part, place) in symbols.items():
        where = names.index(f"\0{name}\0") + 1
        table += struct.pack("<IBBHQQ", where, 0x12, 0, part + 1, place, 0)
    order = list(symbols)
    relocations = b"".join(
        struct.pack(
            "<QQq", r.offset, (order.index(r.symbol) + 1) << 32 | r.type, r.addend
        )
        for r in references
    )
    count = len(parts)
    sections = [
        *((p.name, p.type, p.flags, p.content, 0, 0, p.alignment) for p in parts),
        (".rela", 4, 0, relocations, count + 2, 1, 8),
        (".symtab", 2, 0, table, count + 3, 1, 8),
        (".strtab", 3, 0, names.encode(), 0, 0, 1),
    ]
    titles = "\0" + "\0".join(s[0] for s in sections) + "\0.shstrtab\0"
    sections.append((".shstrtab", 3, 0, titles.encode(), 0, 0, 1))
    body, headers = bytes(64), bytes(64)
    for name, kind, flags, content, link, info, alignment in sections:
        headers += struct.pack(
            "<IIQQQQIIQQ",
            titles.index(f"\0{name}\0") + 1,
            kind, flags, 0, len(body), len(content), link, info, alignment, 0,
        )  # fmt: skip
        body += content
    start = struct.pack(
        "<4sBBBxQHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0,
        1, machine, 1, 0, 0, len(body), 0, 64, 0, 0, 64,
        len(sections) + 1, len(sections),
    )  # fmt: skip
    return start + body[64:] + headers


class Text(Generator):
    """A kernel whose module is *text*, its function being ``@F``."""

    text: str

    def write(self, module: Module, name: str, isa: Isa) -> None:
        module.add(self.text.replace("@F", f"@{name}"))


def image(text: str, isa: Isa) -> Image:
    made = Kernel(Text(text))
    return flatten(compile_object(made, isa), symbol(made))


def call(placed: Image, *numbers: int) -> int:
    (address,) = CodeMemory().place([placed])
    types = [ctypes.c_int64] * len(numbers)
    return ctypes.CFUNCTYPE(ctypes.c_int64, *types)(address)(*numbers)


SWITCH = """
@tab = internal constant [4 x i64] [i64 5, i64 6, i64 7, i64 8], align 64
define internal i64 @other(i64 %i) noinline #0 {
  %p = getelementptr i64, ptr @tab, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}
define i64 @F(i64 %i, i64 %j) #0 {
  switch i64 %j, label %d [ i64 0, label %a  i64 1, label %b  i64 2, label %c
                            i64 3, label %e  i64 4, label %f ]
a:
  %r = call i64 @other(i64 %i)
  ret i64 %r
b:
  %s = mul i64 %i, %i
  ret i64 %s
c:
  %t = add i64 %i, 12345678901
  ret i64 %t
e:
  ret i64 %i
f:
  %u = sub i64 %i, 9
  ret i64 %u
d:
  ret i64 -1
}
"""


@pytest.mark.parametrize("limit", ["", "generic"])
def test_calls_constants_and_jump_tables_run(limit: str) -> None:
    isa = host_isa(limit)
    assert isa is not None
    placed = image(SWITCH, isa)
    for i in range(4):
        results = [call(placed, i, j) for j in range(6)]
        assert results == [5 + i, i * i, i + 12345678901, i, i - 9, -1]


def test_the_entry_is_the_function_that_is_named() -> None:
    kernel = Kernel(Text(SWITCH))
    data = compile_object(kernel, AVX2)
    assert b".rela.rodata" in data  # the table of jumps refers to code
    assert flatten(data, "other").entry != flatten(data, symbol(kernel)).entry


def test_sections_keep_their_alignment() -> None:
    placed = image(SWITCH, AVX2)
    assert placed.alignment == 64
    assert placed.code.index(struct.pack("<4q", 5, 6, 7, 8)) % 64 == 0


def test_an_image_for_a_file_is_the_same_again() -> None:
    placed = image(SWITCH, AVX2)
    assert Image.from_bytes(placed.to_bytes()) == placed


@pytest.mark.parametrize(
    ("kind", "size"), [(2, 4), (4, 4), (24, 8)], ids=["PC32", "PLT32", "PC64"]
)
def test_each_relocation_of_x86_64(kind: int, size: int) -> None:
    data = make_object(
        X86_64,
        [Part(".text", b"\x90" * 40, 6), Part(".rodata", bytes(100), 2, 64)],
        {"f": (0, 0), "x": (1, 8)},
        [Reference(16, kind, "x", -4)],
    )
    placed = flatten(data, "f")
    found = int.from_bytes(placed.code[16 : 16 + size], "little", signed=True)
    assert found == 64 + 8 - 4 - 16
    assert placed.code[:16] == b"\x90" * 16
    assert placed.code[16 + size : 40] == b"\x90" * (24 - size)


def test_a_reference_backwards_on_x86_64() -> None:
    data = make_object(
        X86_64,
        [Part(".text", bytes(40), 6)],
        {"f": (0, 20), "x": (0, 0)},
        [Reference(30, 2, "x")],
    )
    placed = flatten(data, "f")
    assert placed.code[30:34] == struct.pack("<i", -30)
    assert placed.entry == 20


@pytest.mark.parametrize("kind", [1, 9, 10, 11, 41, 42])
def test_absolute_relocations_of_x86_64_are_refused(kind: int) -> None:
    data = make_object(
        X86_64,
        [Part(".text", bytes(40), 6)],
        {"f": (0, 0)},
        [Reference(8, kind, "f")],
    )
    with pytest.raises(ImageError, match=rf"relocation {kind} of x86-64"):
        flatten(data, "f")


FAR = 5 * 4096 + 48
"""Where ``x`` is in the objects for aarch64: code of one page, then constants."""


@pytest.mark.parametrize(
    ("kind", "before", "after", "paged"),
    [
        # encodings from the Arm Architecture Reference Manual, section C6.2 and C7.2
        (283, 0x94000000, 0x94000000 | (FAR - 64) // 4, False),  # bl
        (282, 0x14000000, 0x14000000 | (FAR - 64) // 4, False),  # b
        (274, 0x10000000, 0x10000000 | (FAR - 64) // 4 << 5, False),  # adr x0
        (275, 0x90000003, 0xB0000023, True),  # adrp x3, five pages on: 1 and 1 << 2
        (277, 0x91000063, 0x9100C063, True),  # add x3, x3, #48
        (278, 0x39400062, 0x3940C062, True),  # ldrb w2, [x3, #48]
        (284, 0x79400062, 0x79406062, True),  # ldrh w2, [x3, #48]
        (285, 0xBD400062, 0xBD403062, True),  # ldr s2, [x3, #48]
        (286, 0xFD400062, 0xFD401862, True),  # ldr d2, [x3, #48]
        (299, 0x3DC00062, 0x3DC00C62, True),  # ldr q2, [x3, #48]
        (261, 0, FAR - 64, False),
    ],
)
def test_each_relocation_of_aarch64(
    kind: int, before: int, after: int, paged: bool
) -> None:
    text = bytearray(4096)
    struct.pack_into("<I", text, 64, before)
    data = make_object(
        AARCH64,
        [Part(".text", bytes(text), 6, 4), Part(".rodata", bytes(5 * 4096), 2, 16)],
        {"f": (0, 0), "x": (1, FAR - 4096 - 8)},
        [Reference(64, kind, "x", 8)],
    )
    placed = flatten(data, "f")
    assert placed.code[64:68].hex() == struct.pack("<I", after).hex()
    assert placed.alignment == (4096 if paged else 16)


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (283, 0x94000000, 0x97FFFFF0),  # bl #-64
        (274, 0x10000000, 0x10FFFE00),  # adr x0, #-64
        (275, 0x90000000, 0x90000000),  # adrp x0, the same page
        (261, 0, 0xFFFFFFC0),
    ],
)
def test_a_reference_backwards_on_aarch64(kind: int, before: int, after: int) -> None:
    text = bytearray(128)
    struct.pack_into("<I", text, 64, before)
    data = make_object(
        AARCH64, [Part(".text", bytes(text), 6, 4)], {"f": (0, 0)},
        [Reference(64, kind, "f")],
    )  # fmt: skip
    assert flatten(data, "f").code[64:68].hex() == struct.pack("<I", after).hex()


def test_references_beyond_reach_are_refused() -> None:
    parts = [Part(".text", bytes(128), 6, 4)]
    for machine, kind, addend, wrong in (
        (X86_64, 2, 1 << 31, "does not fit 4 bytes"),
        (AARCH64, 283, 1 << 28, "does not fit 26 bits"),
        (AARCH64, 283, 2, "no multiple of 4"),
        (AARCH64, 299, 8, "no multiple of 16"),
        (AARCH64, 257, 0, "relocation 257 of aarch64"),
        (AARCH64, 311, 0, "relocation 311 of aarch64"),
    ):
        data = make_object(
            machine, parts, {"f": (0, 0)}, [Reference(0, kind, "f", addend)]
        )
        with pytest.raises(ImageError, match=wrong):
            flatten(data, "f")


def test_constants_of_aarch64_are_found_where_code_says() -> None:
    """Follows each ``adrp`` and the load after it, in what LLVM really emits."""
    table = np.arange(1, 17, dtype=np.float32)
    constants = ", ".join(f"float {number:.1f}" for number in table)
    text = f"""
define void @F(ptr %p) #0 {{
  %a = load <16 x float>, ptr %p, align 4
  %b = fadd <16 x float> %a, <{constants}>
  store <16 x float> %b, ptr %p, align 4
  ret void
}}"""
    placed = image(text, NEON)
    assert placed.alignment == 4096
    pages: dict[int, int] = {}
    found = []
    for place in range(0, placed.code.index(table[:4].tobytes()), 4):
        (code,) = struct.unpack_from("<I", placed.code, place)
        if code & 0x9F000000 == 0x90000000:  # adrp
            number = code >> 29 & 3 | (code >> 5 & 0x7FFFF) << 2
            pages[code & 31] = (place // 4096 + number) * 4096
        elif code & 0xFFC00000 == 0x3DC00000 and code >> 5 & 31 in pages:  # ldr q
            where = pages[code >> 5 & 31] + (code >> 10 & 0xFFF) * 16
            found.append(placed.code[where : where + 16])
    assert sorted(found) == sorted(table.reshape(4, 4)[i].tobytes() for i in range(4))


@pytest.mark.parametrize("isa", [AVX2, NEON], ids=lambda isa: isa.name)
def test_undefined_symbols_are_named(isa: Isa) -> None:
    text = """
declare float @expf(float)
declare void @memset(ptr, i32, i64)
define float @F(float %x, ptr %p) #0 {
  call void @memset(ptr %p, i32 0, i64 4)
  %y = call float @expf(float %x)
  ret float %y
}"""
    with pytest.raises(ImageError, match=re.escape("calls expf, memset, which")):
        image(text, isa)


@pytest.mark.parametrize(
    "text",
    [
        "@v = internal global i64 3\n"
        "define void @F(i64 %i) #0 {\n store i64 %i, ptr @v\n ret void }",
        "@v = internal global i64 0\n"
        "define void @F(i64 %i) #0 {\n store i64 %i, ptr @v\n ret void }",
        "@v = internal constant [2 x ptr] [ptr @F, ptr @F]\n"
        "define ptr @F(i64 %i) #0 {\n %p = getelementptr ptr, ptr @v, i64 %i\n"
        " %r = load ptr, ptr %p\n ret ptr %r }",
    ],
    ids=["data", "bss", "addresses"],
)
def test_memory_to_be_written_is_refused(text: str) -> None:
    with pytest.raises(ImageError, match="is memory to be written"):
        image(text, AVX2)


def test_what_is_no_object_is_refused() -> None:
    good = compile_object(Kernel(Text(SWITCH)), AVX2)
    for data, wrong in (
        (b"", "no little-endian ELF64 object"),
        (b"MZ" + good[2:], "no little-endian ELF64 object"),
        (good[:16] + b"\x03" + good[17:], "ELF type 3"),
        (good[:18] + b"\x08" + good[19:], "for machine 8"),
    ):
        with pytest.raises(ImageError, match=wrong):
            flatten(data, "f")
    with pytest.raises(ImageError, match="has no function 'nothing'"):
        flatten(good, "nothing")


def test_tables_for_unwinding_are_left_out() -> None:
    text = "define void @F() uwtable {\n ret void }"
    data = compile_object(Kernel(Text(text)), AVX2)
    assert b".eh_frame" in data
    assert len(flatten(data, symbol(Kernel(Text(text)))).code) < 16
