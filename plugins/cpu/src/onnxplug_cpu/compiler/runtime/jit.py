"""From kernels to addresses of machine code.

What was compiled before is read from the cache; then ``llvmlite.binding``, which loads
LLVM and takes as long as the start of a whole session, is not imported.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Collection
from typing import Any, Final

import onnxplug_compiler
from onnxplug import ep
from onnxplug.authoring.entries import Cache, fingerprint
from onnxplug.authoring.locks import new_lock
from onnxplug.authoring.source_state import state_of
from onnxplug_cpu import __version__
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.machine.isa import Isa, amx_problem, host_isa
from onnxplug_cpu.compiler.runtime.code_memory import CodeMemory, allowance
from onnxplug_cpu.compiler.runtime.image import Image

COMPILE: Final = "ONNXPLUG_CPU_COMPILE"
"""The variable that turns machine code off."""

_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_DISTRIBUTION: Final = "onnxplug-cpu"
_INSTALL: Final = "install llvmlite: python -m pip install llvmlite"


class KernelUnavailable(RuntimeError):
    """A kernel has no machine code here, and none can be made."""


def machine_code_unavailable() -> str | None:
    """Why no kernel can run in this process, in a sentence with a remedy.

    ``None`` if kernels can run; one that the cache does not have may be
    :class:`KernelUnavailable` all the same, if llvmlite is missing.

    Raises:
        OptionError: a variable has a value that is not understood.
    """
    switch = os.environ.get(COMPILE, "1")
    if switch.strip().lower() in _OFF:
        return f"{COMPILE}={switch} turns compiled code off; unset it to have it"
    if switch.strip().lower() not in _ON:
        raise ep.OptionError(f"{COMPILE} is {switch!r}; it can be 1 or 0")
    if sys.implementation.name != "cpython":
        return (
            "compiled code is called through the C API of CPython, and this is "
            f"{sys.implementation.name}; run the program with CPython"
        )
    isa = host_isa()
    if isa is None:
        return (
            "no kernel is written for this processor's architecture; the numpy "
            "kernels are used on it"
        )
    with _lock:
        problem = memory.problem()
    if problem:
        return (
            f"machine code cannot be executed in this process: {problem}; allow it, "
            f"for example {allowance()}"
        )
    library = Library.host()
    if library.compiler is None and not library.cache.names():
        return f"llvmlite, which compiles kernels, is not installed; {_INSTALL}"
    return None


def warn_of_arrays(reason: str) -> None:
    """Log why the EP computes on numpy arrays, each reason once in a process."""
    if reason not in warned:
        import logging  # seldom needed, and slow to import

        warned.add(reason)
        logging.getLogger("onnxplug.cpu").warning(
            "the CPU EP computes on numpy arrays: %s", reason
        )


def warn_of_amx(reason: str | None = None) -> None:
    """Log why the tiles of this processor are not used, if it has any, each reason
    once in a process.

    Args:
        reason: in a sentence with a remedy; by default why they cannot be used.
    """
    reason = reason or amx_problem()
    if reason is not None and reason not in warned:
        import logging

        warned.add(reason)
        logging.getLogger("onnxplug.cpu").warning(
            "float32 products are computed by FMA and not, faster, by AMX: %s", reason
        )


def warn_of_byte_tiles(reason: str) -> None:
    """Log why tiles of bytes are not used, each reason once in a process.

    Args:
        reason: in a sentence with a remedy.
    """
    if reason not in warned:
        import logging

        warned.add(reason)
        logging.getLogger("onnxplug.cpu").warning(
            "codes are multiplied by VNNI and not, faster, by AMX: %s", reason
        )


def warn_of_precision(isa: Isa) -> None:
    """Log that a processor does not multiply bfloat16, once in a process."""
    reason = (
        f"this processor ({isa.name}) has, or is allowed, neither AMX nor AVX512_BF16 "
        "nor, on aarch64, BF16; leave the option precision=bf16 out, which changes "
        "nothing here"
    )
    if reason not in warned:
        import logging

        warned.add(reason)
        logging.getLogger("onnxplug.cpu").warning(
            "products are computed in float32 and not, faster, in bfloat16: %s", reason
        )


class Library:
    """The machine code of kernels for one processor.

    Attributes:
        isa: the processor.
        cache: where compiled kernels are kept.
        compiler: the version of llvmlite; ``None`` if it is not installed.
    """

    def __init__(self, isa: Isa, cache: Cache | None = None) -> None:
        self.isa = isa
        self.cache = cache or Cache(_DISTRIBUTION)
        self.compiler = llvmlite_version()
        versions = f"{__version__}\0{onnxplug_compiler.__version__}"
        self._identity = f"{versions}\0{source_state()}\0{isa!r}\0"
        self._lock = new_lock()
        self._addresses: dict[str, int] = {}
        self._warned: set[str] = set()
        self._warn_of_cache()

    def _warn_of_cache(self) -> None:
        """Log what is wrong with the cache, each problem once."""
        for said, problem in (
            ("compiled kernels are not kept for the next start", self.cache.problem),
            ("a kernel that was kept is compiled again", self.cache.refused),
        ):
            if problem is not None and said not in self._warned:
                import logging

                self._warned.add(said)
                logging.getLogger("onnxplug.cpu").warning("%s: %s", said, problem)

    @staticmethod
    def host() -> Library:
        """The library for this processor, one for the process.

        Raises:
            KernelUnavailable: no kernel is written for its architecture.
        """
        isa = host_isa()
        if isa is None:
            raise KernelUnavailable("no kernel is written for this architecture")
        with _lock:
            if isa not in hosts:
                hosts[isa] = Library(isa)
            return hosts[isa]

    def addresses(
        self, kernels: Collection[Kernel], check: Callable[[], None] = lambda: None
    ) -> dict[Kernel, int]:
        """The address of each kernel's function, compiled if need be.

        Ask for many kernels at once: their code then shares pages.

        Args:
            check: called before each that is compiled; it may raise.

        Raises:
            KernelUnavailable: a kernel is not in the cache and cannot be compiled, or
                memory cannot be executed.
        """
        known = self._addresses
        if not all(kernel.key in known for kernel in kernels):
            with self._lock:
                self._add({k.key: k for k in kernels if k.key not in known}, check)
        return {kernel: known[kernel.key] for kernel in kernels}

    def _add(self, kernels: dict[str, Kernel], check: Callable[[], None]) -> None:
        images: dict[str, Image] = {}
        missing: list[Kernel] = []
        names = self._names(kernels)
        for key, kernel in kernels.items():
            stored = self.cache.load(names[key]) if key in names else None
            image = None if stored is None else Image.from_bytes(stored)
            if image is None:
                missing.append(kernel)
            else:
                images[key] = image
        try:
            for kernel in missing:
                check()
                image = self._compile(kernel)
                images[kernel.key] = image
                self.cache.store(names[kernel.key], image.to_bytes())
        finally:
            if missing:
                self.cache.prune_if_due()
                self._warn_of_cache()
            # what a kernel before a broken one gave is not lost
            self._place(images)

    def _place(self, images: dict[str, Image]) -> None:
        try:
            with _lock:
                addresses = memory.place(list(images.values()))
        except OSError as error:
            ep.raise_interruption(error)
            raise KernelUnavailable(
                f"machine code cannot be executed: {error}"
            ) from error
        self._addresses.update(zip(images, addresses, strict=True))

    def _names(self, keys: Collection[str]) -> dict[str, str]:
        """The cache's name of each kernel; without llvmlite only of those it has."""
        names = {key: fingerprint(self._identity + key).hex()[:40] for key in keys}
        if self.compiler is not None:
            return {key: f"{name}-{self.compiler}" for key, name in names.items()}
        # by whichever llvmlite they were compiled, the latest first
        stored: dict[str, str] = {}
        for name in self.cache.names():
            stored.setdefault(name.partition("-")[0], name)
        return {key: stored[name] for key, name in names.items() if name in stored}

    def kept_addresses(self, keys: Collection[str]) -> list[int] | None:
        """The addresses of kernels by their keys; ``None`` if one is not in the cache.

        Raises:
            KernelUnavailable: memory cannot be executed.
        """
        missing = [key for key in keys if key not in self._addresses]
        if missing:
            with self._lock:
                names = self._names(missing)
                images: dict[str, Image] = {}
                for key in missing:
                    stored = self.cache.load(names[key]) if key in names else None
                    image = None if stored is None else Image.from_bytes(stored)
                    if image is None:
                        return None
                    images[key] = image
                self._place(images)
        return [self._addresses[key] for key in keys]

    def kept(self, key: str) -> bytes | None:
        """What :meth:`keep` was given for *key*, of this code, in any process."""
        return self.cache.load(self._kept_name(key))

    def keep(self, key: str, content: bytes) -> None:
        """Keep *content* for *key* in the cache."""
        self.cache.store(self._kept_name(key), content)
        self.cache.prune_if_due()

    def _kept_name(self, key: str) -> str:
        return fingerprint(f"{self._identity}kept\0{key}").hex()[:40]

    def remembers(self, key: str) -> bool:
        """Whether :meth:`remember` noted *key*, of this code, in any process."""
        return self.kept(f"note\0{key}") is not None

    def remember(self, key: str) -> None:
        """Note *key* in the cache."""
        self.keep(f"note\0{key}", b"")

    def _compile(self, kernel: Kernel) -> Image:
        if self.compiler is None:
            raise KernelUnavailable(
                f"{kernel.key} is not in the cache, and llvmlite, which would compile "
                f"it, is not installed; {_INSTALL}"
            )
        from onnxplug_cpu.compiler.runtime.elf import ImageError, flatten

        try:
            return flatten(compile_object(kernel, self.isa), symbol(kernel))
        except ImageError as error:
            raise KernelUnavailable(
                f"{kernel.key} cannot be loaded on {self.isa.name}: {error}"
            ) from error


def symbol(kernel: Kernel) -> str:
    """The name of a kernel's function in its module."""
    return f"kernel_{fingerprint(kernel.key).hex()[:16]}"


def compile_object(kernel: Kernel, isa: Isa) -> bytes:
    """A kernel as a relocatable ELF object, whatever the system.

    Raises:
        KernelUnavailable: llvmlite cannot be imported, or does not know the processor
            or the text.
    """
    from onnxplug_cpu.compiler.codegen.emit import Module

    module = Module(fuses=isa.fuses)
    kernel.generator.write(module, symbol(kernel), isa)
    text = module.text(isa.attributes)
    with _compiler_lock:
        try:
            return emit_object(text, isa)
        except (ImportError, OSError, RuntimeError) as error:
            ep.raise_interruption(error)
            raise KernelUnavailable(
                f"llvmlite {llvmlite_version()} cannot compile {kernel.key}: {error}"
            ) from error


def emit_object(text: str, isa: Isa) -> bytes:
    """A module's text as a relocatable ELF object, while no other thread compiles.

    Raises:
        ImportError: llvmlite cannot be imported.
        OSError: its library cannot be loaded.
        RuntimeError: LLVM does not know the processor or the text.
    """
    # a function of its own, so that LLVM's objects are gone when the lock is
    llvm = importlib.import_module("llvmlite.binding")
    # LLVM's text is not stable: what another version reads otherwise, or not at all, is
    # found here
    parsed = llvm.parse_assembly(text)
    parsed.triple = isa.triple
    return bytes(_target_machine(llvm, isa).emit_object(parsed))


def _target_machine(llvm: Any, isa: Isa) -> Any:
    if isa not in _target_machines:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        _target_machines[isa] = llvm.Target.from_triple(
            isa.triple
        ).create_target_machine(
            cpu=isa.cpu, features=isa.features, opt=1, reloc="pic", codemodel="small"
        )
    return _target_machines[isa]


def llvmlite_version() -> str | None:
    """Of the llvmlite that would compile; ``None`` if it is not installed."""
    try:
        import llvmlite  # the package alone is light
    except ImportError:
        return None
    return str(llvmlite.__version__)


def source_state() -> str:
    """What changes whenever the source of the compiler does, in both distributions."""
    return state_of(
        os.path.dirname(os.path.dirname(__file__)),
        os.path.dirname(onnxplug_compiler.__file__),
    )


warned: set[str] = set()
"""What this process has logged, each reason once."""
_lock = new_lock()
_compiler_lock = new_lock()
"""Held while LLVM compiles, which has state of its own."""
memory = CodeMemory()
"""Where this process has machine code."""
hosts: dict[Isa, Library] = {}
"""The libraries that this process has opened, by processor."""
_target_machines: dict[Isa, Any] = {}


_LONGEST_COMPILATION: Final = 2.0
"""Seconds that a fork waits for a kernel that is being compiled."""

_holds = False


def _before_fork() -> None:
    """Let LLVM finish: the child has its state, and not the thread that changes it."""
    global _holds
    _holds = _compiler_lock.acquire(timeout=_LONGEST_COMPILATION)


def _after_fork() -> None:
    if _holds:
        _compiler_lock.release()


def _start_child() -> None:
    """After a fork: memory may be half filled by a thread that is gone.

    What is in memory already stays where it is.
    """
    global memory, _holds
    memory, _holds = CodeMemory(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_start_child
    )
