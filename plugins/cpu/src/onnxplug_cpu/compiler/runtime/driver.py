"""The native driver: runs a program's commands, entered from Python once.

A program's *block* is an array of 8-byte words: a header, and what the header's byte
offsets lead to.  Python calls the entry with the block and this run's arrays.  The
entry checks the arrays, writes their addresses into the words of commands that name
inputs and outputs, and does the commands.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel
from onnxplug_cpu.compiler.codegen.types import I1, I32, I64, PTR
from onnxplug_cpu.compiler.runtime.arena import address_of
from onnxplug_cpu.compiler.runtime.jit import KernelUnavailable
from onnxplug_cpu.compiler.runtime.pool import SYSTEM
from onnxplug_cpu.compiler.runtime.sequence import PAUSED, word, write_sequence
from onnxplug_cpu.compiler.runtime.waits import convention

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function, Module, Value
    from onnxplug_cpu.compiler.machine.isa import Isa
    from onnxplug_cpu.compiler.runtime.jit import Library

# The header of a block: numbers of words, after those of a sequence.  Offsets are in
# bytes from its start.
FIRST: Final = 3
"""The first command to do."""
LAST: Final = 4
"""The command before which to stop."""
BEGIN: Final = 5
"""The first chunk to do of each command."""
END: Final = 6
"""The chunk before which to stop, if a command has so many."""
COMMANDS: Final = 7
"""Offset of the commands: function, address of the words, chunks."""
PATCH_COUNT: Final = 8
"""How many words depend on the arrays."""
PATCHES: Final = 9
"""Offset of the patches: offset of the word, number of the array, byte in it."""
PYTHON: Final = 10
"""The address of the interpreter's table."""
RELEASES: Final = 11
"""Whether the GIL is released during the run."""
ARRAY_COUNT: Final = 12
"""How many arrays a run has: inputs, then outputs."""
ARRAYS: Final = 13
"""Offset of what is expected of each: flags, descriptor or 0, rank, sizes."""
ADDRESSES: Final = 14
"""Offset of a place for their addresses."""
HEADER: Final = 15
"""Words of the header."""

INPUT_FLAGS: Final = 0x1 | 0x100
"""``NPY_ARRAY_C_CONTIGUOUS``, ``NPY_ARRAY_ALIGNED``."""
OUTPUT_FLAGS: Final = INPUT_FLAGS | 0x400
"""Writeable, too."""

# The interpreter's table: functions and objects that native code needs.
_SAVE_THREAD, _RESTORE_THREAD, _INC_REF, _TRUE, _FALSE, _ARRAY_TYPE = range(6)

_HEAD: Final = object.__basicsize__
"""Bytes of what every object begins with; the last word is its type."""
_DATA, _RANK, _SIZES, _DESCRIPTOR, _FLAGS = 0, 8, 16, 40, 48
"""Where an array has its fields behind that: ``PyArrayObject_fields`` of numpy's
ABI."""


class Entry(Generator):
    """``PyObject *entry(self, PyObject **arguments, i64 count)``, for METH_FASTCALL.

    The arguments are the block, an array itself, and the run's arrays.  True when the
    commands are done, False when an array is not what the block expects.

    Attributes:
        head: bytes of what every object of the interpreter begins with.
        system: how workers sleep, the :attr:`~.waits.System.name`.
    """

    head: int
    system: str

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write_entry(module, name, isa, self)


def _write_entry(module: Module, name: str, isa: Isa, form: Entry) -> None:
    head, called = form.head, convention(form.system)
    run = _write_run(module, name, isa, form.system)
    f = module.function(
        name,
        [("self", PTR), ("arguments", PTR), ("count", I64)],
        PTR,
        convention=called,
    )
    _, arguments, count = f.parameters
    block = _field(f, f.load(arguments, PTR), head + _DATA, PTR)
    python = word(f, block, PYTHON, PTR)
    expected = word(f, block, ARRAY_COUNT)
    addresses = _within(f, block, ADDRESSES)
    array_type = word(f, python, _ARRAY_TYPE)
    ok = count.compare("eq", expected + 1)

    def check(index: Value, fine: Value, spec: Value) -> list[Value]:
        array = f.load(f.at(arguments, index + 1, PTR), PTR)
        known = _field(f, array, head - 8, I64).compare("eq", array_type)
        return f.branch(
            known & fine,
            lambda: look(index, array, spec),
            lambda: [f.value(0, I1), spec],
        )

    def look(index: Value, array: Value, spec: Value) -> list[Value]:
        data = _field(f, array, head + _DATA, I64)
        f.store(data, f.at(addresses, index, I64))
        needed = f.convert(f.load(spec, I64), I32)
        flags = (_field(f, array, head + _FLAGS, I32) & needed).compare("eq", needed)
        wanted = word(f, spec, 1)
        descriptor = _field(f, array, head + _DESCRIPTOR, I64)
        dtype = descriptor.compare("eq", wanted) | wanted.compare("eq", 0)
        rank = word(f, spec, 2)
        sizes = f.at(spec, 3, I64)
        actual = f.convert(_field(f, array, head + _RANK, I32), I64)
        same_rank = actual.compare("eq", rank)
        fits = f.branch(
            same_rank,
            lambda: same_sizes(rank, sizes, _field(f, array, head + _SIZES, PTR)),
            lambda: [rank.compare("lt", 0)],
        )
        following = f.at(sizes, f.maximum(rank, 0), I64)
        return [flags & dtype & fits[0], following]

    def same_sizes(rank: Value, sizes: Value, actual: Value) -> list[Value]:
        def size(axis: Value, fine: Value) -> list[Value]:
            wanted = f.load(f.at(sizes, axis, I64), I64)
            found = f.load(f.at(actual, axis, I64), I64)
            return [fine & found.compare("eq", wanted)]

        return f.loop(rank, size, [f.value(1, I1)])

    (ok, _) = f.branch(
        ok,
        lambda: f.loop(expected, check, [ok, _within(f, block, ARRAYS)]),
        lambda: [ok, block],
    )

    def go() -> list[Value]:
        releases = word(f, block, RELEASES).compare("ne", 0)
        f.branch(releases, without_gil, lambda: f.call_void(run, block))
        return [word(f, python, _TRUE, PTR)]

    def without_gil() -> None:
        save = word(f, python, _SAVE_THREAD, PTR)
        state = f.instruction(PTR, f"call {called} ptr {save.text}()")
        f.call_void(run, block)
        restore = word(f, python, _RESTORE_THREAD, PTR)
        f.effect(f"call {called} void {restore.text}({state})")

    (result,) = f.branch(ok, go, lambda: [word(f, python, _FALSE, PTR)])
    increase = word(f, python, _INC_REF, PTR)
    f.effect(f"call {called} void {increase.text}({result})")
    f.finish(result)


def _write_run(module: Module, name: str, isa: Isa, system: str) -> str:
    """Define ``void run(ptr block)``: patch the words and do the commands."""
    sequence = write_sequence(module, name, isa, system)
    run = f"{name}.run"
    f = module.function(run, [("block", PTR)], internal=True, inline=False)
    (block,) = f.parameters
    addresses = _within(f, block, ADDRESSES)
    patches = _within(f, block, PATCHES)

    def patch(index: Value) -> None:
        entry = f.at(patches, index * 3, I64)
        base = f.load(f.at(addresses, word(f, entry, 1), I64), I64)
        f.store(base + word(f, entry, 2), _byte(f, block, f.load(entry, I64)))

    f.loop(word(f, block, PATCH_COUNT), patch)
    ended = f.intrinsic(
        I64,
        sequence,
        block,
        _within(f, block, COMMANDS),
        word(f, block, FIRST),
        word(f, block, LAST),
        word(f, block, BEGIN),
        word(f, block, END),
    )
    pauses = word(f, block, PAUSED).compare("ne", 0)
    f.branch(pauses, lambda: f.store(ended, f.at(block, FIRST, I64)))
    f.finish()
    return run


def _byte(f: Function, block: Value, offset: Value) -> Value:
    return f.instruction(PTR, f"getelementptr i8, {block}, {offset}")


def _within(f: Function, block: Value, index: int) -> Value:
    """What the offset in a word of the header leads to."""
    return _byte(f, block, word(f, block, index))


def _field(f: Function, structure: Value, offset: int, type_: Any) -> Value:
    return f.load(
        f.instruction(PTR, f"getelementptr i8, {structure}, i64 {offset}"), type_
    )


ENTRY: Final = Kernel(Entry(_HEAD, SYSTEM.name))


class Driver:
    """The entry as Python calls it.

    Attributes:
        python: the address of the interpreter's table, for :data:`PYTHON`.
        run: ``run(block, *inputs, *outputs)``; whether the arrays were as expected.
    """

    def __init__(self, library: Library) -> None:
        check_layout()
        table = [0] * 6
        table[_SAVE_THREAD] = c_api("PyEval_SaveThread")
        table[_RESTORE_THREAD] = c_api("PyEval_RestoreThread")
        table[_INC_REF] = c_api("Py_IncRef")
        table[_TRUE] = id(True)
        table[_FALSE] = id(False)
        table[_ARRAY_TYPE] = id(np.ndarray)
        self._table = np.array(table, np.uint64)
        self.python = address_of(self._table)
        self.run: Callable[..., bool] = python_function(
            library.addresses([ENTRY])[ENTRY], "run"
        )


_shared: Final[dict[Library, Driver]] = {}


def shared_driver(library: Library) -> Driver:
    """The driver of a library."""
    if library not in _shared:
        _shared[library] = Driver(library)
    return _shared[library]


class _MethodDefinition(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_FASTCALL: Final = 0x80
_definitions: Final[list[_MethodDefinition]] = []
"""A function refers to its definition for as long as it lives."""


def python_function(address: int, name: str) -> Callable[..., Any]:
    """The machine code at *address* as a builtin function of Python.

    It is called as ``PyObject *(PyObject *self, PyObject *const *args, Py_ssize_t n)``
    with the GIL held, and returns a new reference.  A call costs a fifth of what ctypes
    takes.
    """
    definition = _MethodDefinition(name.encode(), address, _METH_FASTCALL, None)
    _definitions.append(definition)
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.restype = ctypes.py_object
    create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    function: Callable[..., Any] = create(ctypes.addressof(definition), None, None)
    return function


def c_api(name: str) -> int:
    """The address of a function of Python's C API."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


def check_layout() -> None:
    """Make sure that objects are in memory as native code reads them.

    Raises:
        KernelUnavailable: they are not, in this interpreter.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise KernelUnavailable(
            "compiled programs need Python's global interpreter lock, which this "
            "interpreter runs without; set PYTHON_GIL=1"
        )
    array = np.zeros((2, 3, 5), np.int16)
    at = id(array) + _HEAD
    pointer, integer = ctypes.c_uint64.from_address, ctypes.c_int.from_address
    expected = (
        (pointer(at - 8).value, id(np.ndarray)),
        (pointer(at + _DATA).value, address_of(array)),
        (integer(at + _RANK).value, array.ndim),
        (
            (ctypes.c_int64 * 3).from_address(pointer(at + _SIZES).value)[:],
            list(array.shape),
        ),
        (pointer(at + _DESCRIPTOR).value, id(array.dtype)),
        (integer(at + _FLAGS).value & OUTPUT_FLAGS, OUTPUT_FLAGS),
    )
    if any(found != wanted for found, wanted in expected):
        raise KernelUnavailable(
            "arrays are laid out in memory in a way that compiled programs do not "
            "know; they need CPython and numpy 2"
        )
