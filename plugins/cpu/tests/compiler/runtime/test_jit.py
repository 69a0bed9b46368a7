"""Kernels get addresses: from the process, the disk or the compiler."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxplug import ep
from onnxplug.authoring.entries import Cache
from onnxplug_cpu.compiler.codegen.emit import F32, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.machine.isa import AVX512, NEON, Isa, host_isa
from onnxplug_cpu.compiler.runtime import jit
from onnxplug_cpu.compiler.runtime.code_memory import CodeMemory
from onnxplug_cpu.compiler.runtime.jit import (
    KernelUnavailable,
    Library,
    compile_object,
    machine_code_unavailable,
)

HOST = host_isa()
needs_host = pytest.mark.skipif(HOST is None, reason="no kernels for this processor")


class Scale(Generator):
    """``y[i] = x[i] · factor + i % 16``."""

    factor: float
    words = "x", "y", "n"

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, x, y = k.function, k.pointer("x"), k.pointer("y")
        table = Value(f, module.constant("table", np.arange(16, dtype=np.float32)), PTR)

        def each(i) -> None:
            added = f.load(f.at(table, i % 16, F32), F32)
            value = f.load(f.at(x, i, F32), F32) * self.factor + added
            f.store(value, f.at(y, i, F32))

        f.loop(k.integer("n"), each)
        f.finish()


class Broken(Generator):
    """Calls a function outside of its module."""

    def write(self, module: Module, name: str, isa: Isa) -> None:
        f = KernelFunction(module, name, ()).function
        f.call_void("printf", f.value(3, F32))
        f.finish()


class Nonsense(Generator):
    def write(self, module: Module, name: str, isa: Isa) -> None:
        module.add(f"define void @{name}() {{ no such instruction }}")


def kernel(factor: float) -> Kernel:
    return Kernel(Scale(factor))


def run(address: int, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    result = np.zeros_like(values)
    words = np.array([values.ctypes.data, result.ctypes.data, values.size], np.uint64)
    arguments = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
    ctypes.CFUNCTYPE(None, *arguments)(address)(words.ctypes.data, 0, 0)
    return result


def expect_factor(address: int, factor: float) -> None:
    values = np.arange(40, dtype=np.float32)
    assert (run(address, values) == values * factor + np.arange(40) % 16).all()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """Where the cache is, which is empty."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    for name in ("ONNXPLUG_CACHE_SIZE", "ONNXPLUG_CPU_COMPILE", "ONNXPLUG_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    # somebody may be editing
    monkeypatch.setattr(jit, "source_state", lambda: "this source")
    return tmp_path / "onnxplug-cpu"


@pytest.fixture
def compiled(monkeypatch) -> list[str]:
    """The keys of the kernels that are compiled, as they are."""
    keys: list[str] = []

    def count(kernel: Kernel, isa: Isa) -> bytes:
        keys.append(kernel.key)
        return compile_object(kernel, isa)

    monkeypatch.setattr(jit, "compile_object", count)
    return keys


@needs_host
def test_kernels_run(folder) -> None:
    kernels = [kernel(factor) for factor in (2, 3, -1)]
    addresses = Library(HOST).addresses(kernels)
    assert list(addresses) == kernels
    for made, factor in zip(kernels, (2, 3, -1), strict=True):
        expect_factor(addresses[made], factor)


@needs_host
def test_compiling_ends_between_kernels(folder, compiled) -> None:
    library = Library(HOST)

    def look() -> None:
        if len(compiled) == 2:
            raise ep.LoadCancelled("not wanted")

    with pytest.raises(ep.LoadCancelled):
        library.addresses([kernel(factor) for factor in range(5)], look)
    assert len(compiled) == 2
    # what was compiled is not lost
    library.addresses([kernel(0), kernel(1)], look)


@needs_host
def test_nothing_is_compiled_twice(folder, compiled) -> None:
    library = Library(HOST)
    first = library.addresses([kernel(2), kernel(3)])
    assert library.addresses([kernel(3), kernel(2), kernel(2)]) == first
    assert library.addresses([]) == {}
    # nor by the next process, which has an empty table but the same folder
    again = Library(HOST).addresses([kernel(2), kernel(3)])
    expect_factor(again[kernel(2)], 2)
    expect_factor(again[kernel(3)], 3)
    assert compiled == [kernel(2).key, kernel(3).key]


@needs_host
def test_threads_share_what_one_compiles(folder, compiled) -> None:
    library = Library(HOST)
    kernels = [kernel(factor) for factor in range(6)]
    results: list[dict[Kernel, int]] = []
    barrier = threading.Barrier(6)

    def work(start: int) -> None:
        barrier.wait()
        results.append(library.addresses(kernels[start:] + kernels[:start]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    assert all(result == results[0] for result in results)
    assert sorted(compiled) == sorted(made.key for made in kernels)


@needs_host
@pytest.mark.parametrize("change", ["source", "version", "compiler", "processor"])
def test_what_the_code_depends_on_is_part_of_its_name(
    folder, compiled, monkeypatch, change: str
) -> None:
    Library(HOST).addresses([kernel(2)])
    isa = HOST
    if change == "source":
        monkeypatch.setattr(jit, "source_state", lambda: "other")
    elif change == "version":
        monkeypatch.setattr(jit, "__version__", "9.9")
    elif change == "compiler":
        monkeypatch.setattr(jit, "llvmlite_version", lambda: "9.9")
    else:
        isa = host_isa("generic")
    Library(isa).addresses([kernel(2)])
    assert compiled == [kernel(2).key] * 2
    assert len(list(folder.glob("*.entry"))) == 2


def test_a_change_of_any_source_file_is_seen(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "runtime" / "jit.py"))
    (tmp_path / "kernels").mkdir()
    (tmp_path / "__pycache__").mkdir()
    source = tmp_path / "kernels/one.py"
    source.write_text("1")
    states = [jit.source_state()]
    source.write_text("12")
    states.append(jit.source_state())
    os.utime(source, ns=(1, 1))
    states.append(jit.source_state())
    (tmp_path / "two.py").write_text("")
    states.append(jit.source_state())
    assert len(set(states)) == 4
    (tmp_path / "__pycache__/one.pyc").write_text("")
    assert jit.source_state() == states[-1]


@needs_host
@pytest.mark.parametrize("content", [b"", b"nonsense", bytes(600)])
def test_a_spoilt_entry_is_compiled_again(folder, compiled, content: bytes) -> None:
    Library(HOST).addresses([kernel(2)])
    (entry,) = folder.glob("*.entry")
    entry.write_bytes(content)
    expect_factor(Library(HOST).addresses([kernel(2)])[kernel(2)], 2)
    assert len(compiled) == 2
    expect_factor(Library(HOST).addresses([kernel(2)])[kernel(2)], 2)
    assert len(compiled) == 2


@needs_host
def test_an_unsafe_folder_is_told_and_not_used(folder, compiled, caplog) -> None:
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    library = Library(HOST)
    assert "compiled kernels are not kept for the next start" in caplog.text
    assert "open to other users" in caplog.text
    expect_factor(library.addresses([kernel(2)])[kernel(2)], 2)
    assert list(folder.iterdir()) == []


@needs_host
@pytest.mark.skipif(os.name != "posix", reason="about files of POSIX")
@pytest.mark.parametrize("what", ["pipe", "link", "second name", "swapped folder"])
def test_code_that_others_may_have_put_there_is_compiled_again(
    folder: Path, tmp_path: Path, compiled, caplog, what: str
) -> None:
    first, second = kernel(2), kernel(3)
    Library(HOST).addresses([first])
    library = Library(HOST)
    (path,) = folder.glob("*.entry")
    if what == "swapped folder":
        folder.rename(tmp_path / "away")
        folder.mkdir(mode=0o700)
        # the code of another kernel, which loads under no name but its own
        (tmp_path / "away" / path.name).rename(path)
    elif what == "second name":
        os.link(path, tmp_path / "second")
    else:
        path.rename(tmp_path / "real")
        if what == "pipe":
            os.mkfifo(path, 0o600)
        else:
            path.symlink_to(tmp_path / "real")
    found = library.addresses([first, second])
    expect_factor(found[first], 2)
    expect_factor(found[second], 3)
    assert compiled == [kernel(2).key, kernel(2).key, kernel(3).key]
    if what != "swapped folder":
        assert caplog.text.count("a kernel that was kept is compiled again") == 1
        assert repr(str(path)) in caplog.text


@needs_host
def test_one_kernel_that_fails_costs_no_other(folder, compiled) -> None:
    library = Library(HOST)
    with pytest.raises(KernelUnavailable, match=r"\.Broken\(\) .* calls printf"):
        library.addresses([kernel(2), Kernel(Broken()), kernel(3)])
    library.addresses([kernel(2), kernel(3)])
    expected = [kernel(2).key, Kernel(Broken()).key, kernel(3).key]
    assert sorted(compiled) == sorted(expected)


@needs_host
def test_text_that_llvm_does_not_know_is_told(folder) -> None:
    with pytest.raises(
        KernelUnavailable, match=r"llvmlite .* cannot compile \S*Nonsense"
    ):
        Library(HOST).addresses([Kernel(Nonsense())])


@needs_host
def test_without_llvmlite_the_cache_is_used(folder, compiled, monkeypatch) -> None:
    Library(HOST).addresses([kernel(2)])
    monkeypatch.setattr(jit, "llvmlite_version", lambda: None)
    library = Library(HOST)
    expect_factor(library.addresses([kernel(2)])[kernel(2)], 2)
    with pytest.raises(KernelUnavailable, match="pip install llvmlite"):
        library.addresses([kernel(2), kernel(3)])
    assert compiled == [kernel(2).key]


def test_objects_for_another_architecture_can_be_made() -> None:
    assert compile_object(kernel(2), NEON)[18] == 183
    assert compile_object(kernel(2), AVX512)[18] == 62


@needs_host
def test_memory_that_cannot_be_executed_is_told(folder, monkeypatch) -> None:
    def refuse(self: CodeMemory, images: object) -> list[int]:
        raise PermissionError(13, "it is forbidden")

    monkeypatch.setattr(CodeMemory, "place", refuse)
    monkeypatch.setattr(jit, "memory", CodeMemory())
    with pytest.raises(
        KernelUnavailable, match=r"cannot be executed: .*it is forbidden"
    ):
        Library(HOST).addresses([kernel(2)])
    reason = machine_code_unavailable()
    assert reason is not None
    assert "it is forbidden; allow it" in reason


@needs_host
def test_machine_code_is_available_here(folder) -> None:
    assert machine_code_unavailable() is None
    assert Library.host() is Library.host()
    assert Library.host().isa == HOST


@pytest.mark.parametrize("value", ["0", "off", " No "])
def test_it_can_be_turned_off(folder, monkeypatch, value: str) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_COMPILE", value)
    assert "unset it" in (machine_code_unavailable() or "")


def test_a_switch_that_is_none_is_told(folder, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_COMPILE", "maybe")
    with pytest.raises(ep.OptionError, match="ONNXPLUG_CPU_COMPILE is 'maybe'"):
        machine_code_unavailable()


def test_other_architectures_have_none(folder, monkeypatch) -> None:
    monkeypatch.setattr(jit, "host_isa", lambda: None)
    assert "architecture" in (machine_code_unavailable() or "")
    with pytest.raises(KernelUnavailable, match="architecture"):
        Library.host()


def test_other_interpreters_have_none(folder, monkeypatch) -> None:
    monkeypatch.setattr(sys.implementation, "name", "pypy")
    assert "run the program with CPython" in (machine_code_unavailable() or "")


@needs_host
def test_without_llvmlite_and_cache_there_is_none(folder, monkeypatch) -> None:
    monkeypatch.setattr(jit, "llvmlite_version", lambda: None)
    monkeypatch.setattr(jit, "hosts", {})
    assert "pip install llvmlite" in (machine_code_unavailable() or "")
    Cache("onnxplug-cpu").store("one", b"")
    assert machine_code_unavailable() is None


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from test_jit import kernel, expect_factor
from onnxplug_cpu.compiler.runtime import jit
jit.source_state = lambda: "this source"
addresses = jit.Library.host().addresses([kernel(factor) for factor in range(12)])
print("llvmlite.binding" in sys.modules)
expect_factor(addresses[kernel(5)], 5)
"""


def process() -> subprocess.Popen[str]:
    """Starts a process that runs twelve kernels."""
    program = PROGRAM.format(tests=os.path.dirname(__file__))
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    )


def loads_llvm(started: subprocess.Popen[str]) -> bool:
    out, _ = started.communicate(timeout=600)
    assert started.returncode == 0
    return out.split() == ["True"]


@needs_host
def test_a_warm_process_does_not_load_llvm(folder) -> None:
    assert loads_llvm(process())
    assert not loads_llvm(process())


@needs_host
def test_two_processes_compile_at_once(folder) -> None:
    started = [process(), process()]
    for each in started:
        loads_llvm(each)
    assert len(list(folder.glob("*.entry"))) == 12
    assert not list(folder.glob("*.new"))
    assert not loads_llvm(process())


@needs_host
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_has_what_its_parent_had_and_can_load_more(folder, monkeypatch) -> None:
    Library(HOST).addresses([kernel(3)])
    library = Library(HOST)
    before = library.addresses([kernel(2)])
    # a thread that the child does not have loads meanwhile
    loads, goes_on = threading.Event(), threading.Event()
    place = CodeMemory.place

    def wait(memory: CodeMemory, images: Any) -> Any:
        if threading.current_thread() is loader:
            loads.set()
            goes_on.wait(60)
        return place(memory, images)

    monkeypatch.setattr(CodeMemory, "place", wait)
    loader = threading.Thread(target=library.addresses, args=([kernel(4)],))
    loader.start()
    assert loads.wait(60)
    child = os.fork()
    if not child:
        code = 1
        try:
            expect_factor(library.addresses([kernel(2)])[kernel(2)], 2)
            expect_factor(library.addresses([kernel(3)])[kernel(3)], 3)
            code = 0
        finally:
            os._exit(code)
    goes_on.set()
    loader.join()
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, 9)
        time.sleep(0.01)
    assert ended[1] == 0
    assert library.addresses([kernel(2)]) == before
