"""Files as Windows' libraries are, as far as is read of them."""

from __future__ import annotations

import struct

AMD64, ARM64 = 0x8664, 0xAA64


def library(
    machine: int = AMD64, version: tuple[int, int, int, int] | None = (1, 15, 4, 0)
) -> bytes:
    """What a library of Windows begins with, and where it has its version."""
    dos = b"MZ".ljust(60, b"\0") + struct.pack("<I", 0x80)
    content = dos.ljust(0x80, b"\0") + b"PE\0\0" + struct.pack("<H", machine)
    content += bytes(500)
    if version:
        major, minor, build, private = version
        fixed = struct.pack("<2I", 0xFEEF04BD, 0x10000)
        fixed += struct.pack("<2I", major << 16 | minor, build << 16 | private)
        text = "VS_VERSION_INFO\0".encode("utf-16-le")
        content += struct.pack("<3H", 0x34C, 52, 0) + text
        content += bytes(-len(content) % 4) + fixed + bytes(36)
    return content
