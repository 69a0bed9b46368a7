"""A plugin of pytest by which the machine that emulates compiles kernels.

LLVM, emulated, takes longest of what tests of kernels do; it makes the same code on the
machine itself, which ``test_processors.py`` compares.  Texts are written by the
emulated process, verified and compiled by a process of ``ONNXPLUG_HOST_PYTHON``, and
what that returns runs emulated.  Without the variable, nothing is changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from onnxplug_cpu.compiler.machine.isa import Isa
from onnxplug_cpu.compiler.runtime import jit

HOST_PYTHON = os.environ.get("ONNXPLUG_HOST_PYTHON", "")


class HostCompiler:
    """A process of the host that compiles one text after another."""

    def __init__(self) -> None:
        # its packages are of another processor
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith("PYTHON")
        }
        self._process = subprocess.Popen(
            [HOST_PYTHON, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        there, here = _read(self._process.stdout).decode(), jit.llvmlite_version()
        if there != here:
            raise RuntimeError(
                f"kernels would be compiled by llvmlite {there} for tests of {here}: "
                "install the same in both, or leave compiled_by_host out"
            )

    def emit_object(self, text: str, isa: Isa) -> bytes:
        """What ``onnxplug_cpu.compiler.runtime.jit`` has LLVM emit.

        Raises:
            RuntimeError: LLVM does not accept the text; it says why.
        """
        if self._process.poll() is not None:
            raise RuntimeError(
                f"the host's compiler ended with status {self._process.returncode}"
            )
        _write(self._process.stdin, text.encode())
        _write(self._process.stdin, repr(isa).encode())
        problem = _read(self._process.stdout)
        if problem:
            raise RuntimeError(problem.decode())
        compiled = _read(self._process.stdout)
        if not compiled:
            raise RuntimeError("the host's compiler ended, as its stderr says")
        return compiled

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)


def pytest_configure(config: Any) -> None:
    if not HOST_PYTHON:
        return
    compiler = HostCompiler()
    jit.emit_object = compiler.emit_object
    config.add_cleanup(compiler.close)


def _write(stream: Any, content: bytes) -> None:
    stream.write(len(content).to_bytes(8, "little") + content)
    stream.flush()


def _read(stream: Any) -> bytes:
    """What :func:`_write` wrote; nothing where the other process has ended."""
    size = int.from_bytes(stream.read(8), "little")
    content: bytes = stream.read(size)
    return content


def _serve() -> None:
    """Compile what is written to the process, until that ends."""
    import llvmlite.binding as llvm

    source, sink = sys.stdin.buffer, sys.stdout.buffer
    _write(sink, str(jit.llvmlite_version()).encode())
    while text := _read(source).decode():
        isa = eval(_read(source).decode(), {"Isa": Isa})
        problem, compiled = "", b""
        try:
            llvm.parse_assembly(text).verify()
            compiled = jit.emit_object(text, isa)
        except RuntimeError as error:
            problem = str(error)
        _write(sink, problem.encode())
        if not problem:
            _write(sink, compiled)


if __name__ == "__main__":
    _serve()
