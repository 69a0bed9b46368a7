"""What of this machine decides whether Core ML and Core AI run on it."""

from __future__ import annotations

import platform
import sys

from onnxplug.authoring.record import Record


class Machine(Record):
    """Operating system, processor and Python.

    Attributes:
        system: as ``platform.system`` says it: ``Darwin``, ``Linux``.
        macos: the major version of macOS, 26; 0 elsewhere.
        processor: ``arm64`` or ``x86_64``, on Linux also ``aarch64``.
        python: major and minor version.
        release: the system's version for people.
    """

    system: str
    macos: int
    processor: str
    python: tuple[int, int]
    release: str = ""

    @property
    def is_mac(self) -> bool:
        """Whether the system is macOS."""
        return self.system == "Darwin"

    def __str__(self) -> str:
        return f"{'macOS' if self.is_mac else self.system} on {self.processor}"


def this_machine() -> Machine:
    """The machine that this process runs on."""
    system = platform.system()
    kernel = platform.release()
    return Machine(
        system,
        _macos_of(kernel) if system == "Darwin" else 0,
        platform.machine().lower().replace("amd64", "x86_64"),
        sys.version_info[:2],
        platform.mac_ver()[0] if system == "Darwin" else kernel,
    )


def _macos_of(kernel: str) -> int:
    """The major version of macOS by that of its kernel, Darwin.

    macOS tells programs built for an older one a version that it has not.
    """
    darwin = int(kernel.partition(".")[0])
    if darwin < 20:
        return 10
    return darwin - 9 if darwin < 25 else darwin + 1
