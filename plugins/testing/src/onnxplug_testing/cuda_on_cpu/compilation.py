"""Compiles kernels in CUDA C++ for the processor, by g++, and keeps what it made."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_SOURCES: Final = tuple(sorted(each.name for each in _HERE.glob("*.[hc]*")))

_COMMON: Final = (
    *("-std=gnu++17", "-O1", "-g1", "-gdwarf-4", "-fPIC", "-shared", "-w"),
    *("-ffp-contract=off", "-fno-strict-aliasing", "-fno-exceptions"),
)
_CHECKS: Final = (
    "-fsanitize=thread,undefined",
    *("--param", "tsan-distinguish-volatile=1"),
    *("--param", "tsan-instrument-func-entry-exit=0"),
    # the calls of both are in fibers.cpp, not in libraries of the compiler
    "-nodefaultlibs",
)

_LIBRARIES: Final = ("-Wl,-rpath,$ORIGIN", "-lm", "-lc")

_PROCESSES: Final = 2
_MOST_TOGETHER: Final = 24
"""Kernels of one translation unit."""

_DYNAMIC: Final = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\s*\d+\s*\)\s*)?"
    r"([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;"
)

_SHARED: Final = re.compile(
    r"(?<!extern )__shared__\s+(__align__\(\s*\d+\s*\)\s*)?"
    r"([\w:<>]+(?: [\w:<>]+)*)\s+(\w+)((?:\s*\[[^\]]*\])*)\s*;"
)
_ROOM: Final = (
    r"typedef \2 \3_type\4; "
    r"__shared__ \1 shim::Room<\3_type> \3_room; \3_type& \3 = \3_room.as_it_is();"
)
"""Memory without constructors, which g++ would call once, under a lock."""

_UNIT: Final = """\
#undef __shared__
#define __shared__ static __attribute__((section("shared_{key}")))
namespace text_{key} {{
#line 1 "{key}.cu"
{text}
#line 1 "launch"
namespace onnxplug {{}}
using namespace onnxplug;
}}
asm(".section shared_{key},\\"aw\\"\\n.previous");
extern "C" {{
extern char __start_shared_{key} __attribute__((visibility("hidden")));
extern char __stop_shared_{key} __attribute__((visibility("hidden")));
void call_{key}(void** arguments) {{ shim::call(text_{key}::{name}, arguments); }}
void memory_{key}(void** places) {{
  places[0] = &__start_shared_{key};
  places[1] = &__stop_shared_{key};
  places[2] = &__ehdr_start;
  places[3] = &_end;
}}
}}
"""

_HEAD: Final = """\
#include "cuda.h"
extern "C" {
extern char __ehdr_start __attribute__((visibility("hidden")));
extern char _end __attribute__((visibility("hidden")));
}
"""


class CompilerMissing(RuntimeError):
    """There is no g++."""


def find_compiler() -> str:
    """The path of g++.

    Raises:
        CompilerMissing: there is none.
    """
    found = shutil.which("g++")
    if found is None:
        raise CompilerMissing(
            "kernels in CUDA C++ are compiled for the processor by g++, which is not "
            "there; install it, on Debian by apt install g++"
        )
    return found


class Compiler:
    """Compiles texts into libraries, which it finds in a folder the next time.

    Args:
        folder: where libraries are, those of other processes, too.
        portable: have lanes change by ``swapcontext``, as on other processors.

    Raises:
        CompilerMissing: there is no g++.
    """

    def __init__(self, folder: Path, portable: bool = False) -> None:
        self._command = find_compiler()
        self._lock = threading.Lock()
        content = b"".join((_HERE / name).read_bytes() for name in _SOURCES)
        self._runtime = ["-O2", *(["-DONNXPLUG_UCONTEXT"] if portable else [])]
        content += repr((_COMMON, _CHECKS, _UNIT, _HEAD, _ROOM, self._runtime)).encode()
        self._version = hashlib.sha256(content).hexdigest()[:16]
        self.folder = folder / self._version
        self.folder.mkdir(parents=True, exist_ok=True)
        self.compiled = 0

    def key(self, text: str, name: str) -> str:
        """What tells a kernel from others, an identifier."""
        return hashlib.sha256(f"{name} {text}".encode()).hexdigest()[:20]

    def runtime(self) -> Path:
        """The library that runs kernels."""
        found = self.folder / "libfibers.so"
        with self._lock:
            if not found.exists():
                self._build([*_COMMON, *self._runtime, _HERE / "fibers.cpp"], found)
        return found

    def _header(self) -> Path:
        """The header, read already, which is most of a small kernel's time."""
        found = self.folder / "cuda.h.gch"
        with self._lock:
            if not found.exists():
                options = [each for each in (*_COMMON, *_CHECKS) if each != "-shared"]
                self._build([*options, "-x", "c++-header", _HERE / "cuda.h"], found)
        return found

    def libraries(self, kernels: Sequence[tuple[str, str]]) -> list[Path]:
        """The library of each kernel, given by text and name.

        Raises:
            ValueError: there is an error in a text.
        """
        keys = [self.key(*kernel) for kernel in kernels]
        runtime, header = self.runtime(), self._header()
        missing = {
            key: kernel
            for key, kernel in zip(keys, kernels, strict=True)
            if not (self.folder / key).exists()
        }
        names = list(missing)
        size = max(1, min(_MOST_TOGETHER, -(-len(names) // _PROCESSES)))
        batches = [names[n : n + size] for n in range(0, len(names), size)]
        with ThreadPoolExecutor(_PROCESSES) as pool:
            list(
                pool.map(
                    lambda batch: self._compile(
                        {key: missing[key] for key in batch}, runtime, header
                    ),
                    batches,
                )
            )
        self.compiled += len(names)
        return [self.folder / (self.folder / key).read_text("utf-8") for key in keys]

    def _compile(
        self, kernels: dict[str, tuple[str, str]], runtime: Path, header: Path
    ) -> None:
        units = [_HEAD]
        for key, (text, name) in kernels.items():
            plain = text.replace('extern "C" ', "")
            plain = _DYNAMIC.sub(r"\1* const \2 = (\1*)shim_dynamic();", plain)
            plain = _SHARED.sub(_ROOM, plain)
            units.append(_UNIT.format(key=key, text=plain, name=name))
        together = hashlib.sha256(" ".join(kernels).encode()).hexdigest()[:20]
        library = self.folder / f"lib{together}.so"
        source = self.folder / f"{together}.{os.getpid()}.{threading.get_ident()}.cpp"
        source.write_text("\n".join(units), "utf-8")
        try:
            options = [*_COMMON, *_CHECKS, f"-I{header.parent}", f"-I{_HERE}"]
            files = [str(source), str(runtime), *_LIBRARIES]
            self._build([*options, *files], library)
        finally:
            source.unlink()
        for key in kernels:
            self._write(self.folder / key, library.name)

    def _build(self, options: Sequence[str | Path], library: Path) -> None:
        made = library.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        command = [self._command, *map(str, options), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"g++ does not compile kernels:\n{done.stderr}")
        made.replace(library)

    def _write(self, path: Path, text: str) -> None:
        made = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        made.write_text(text, "utf-8")
        made.replace(path)

    def line(self, library: Path, place: int) -> tuple[str, int] | None:
        """The file and the line of a place in a library, if they are known."""
        tool = shutil.which("addr2line")
        if tool is None:
            return None
        command = [tool, "-s", "-i", "-e", str(library), hex(place - 1)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            name, _, number = line.partition(":")
            if name.endswith(".cu") and number.split()[0].isdigit():
                return name, int(number.split()[0])
        return None
