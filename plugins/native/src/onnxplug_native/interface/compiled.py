"""The entries that libraries call most in runs, as machine code.

Each looks at what lies at the addresses that it is given, does what is usual, and hands
everything else on to the entry that is written in Python.  Without llvmlite all of them
stay in Python; results are the same.

Element type and shape of a tensor are given to libraries as a block of an arena, which
they release: a tag, the element type, the rank, and the dimensions.  Blocks that are
free are a list.  Its head is the number of the first, from 1, below a count of changes:
so it has changed, if another thread was faster, even where the first is the same again.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, Final

from onnxplug_native.functions.devices import (
    HOST_ACCESSIBLE,
    INFO_TAG,
    InfoMemory,
)
from onnxplug_native.functions.kernel_context import CONTEXT_TAG, ContextMemory
from onnxplug_native.functions.kernel_info import KERNEL_TAG, KernelMemory
from onnxplug_native.functions.tensor import (
    GIVEN,
    READY,
    VALUE_TAG,
    TensorMemory,
)
from onnxplug_native.interface.arena import Arena, arena
from onnxplug_native.interface.ending import lasting
from onnxplug_native.interface.host import HostTable
from onnxplug_native.interface.table import Entry, entries

_SHAPE_TAG: Final = 0x6F6E6E78_73686170

_TYPE, _RANK, _DIMENSIONS = 8, 16, 24
"""Where in such a block the element type, the rank and the dimensions are; in one that
is free, the number of the next one is in place of the type."""

_BLOCK: Final = 128
_MOST_DIMENSIONS: Final = (_BLOCK - _DIMENSIONS) // 8
_BLOCKS: Final = 4096

_HEAD: Final = lasting(ctypes.c_uint64())
_NUMBER: Final = (1 << 32) - 1


@functools.cache
def _blocks() -> Arena:
    """The blocks, of which all are free."""
    made = Arena(_BLOCK, _BLOCKS)
    for number in range(1, _BLOCKS):
        place = made.address + (number - 1) * _BLOCK + _TYPE
        ctypes.c_uint64.from_address(place).value = number + 1
    _HEAD.value = 1
    return made


def compile_entries(table: HostTable) -> bool:
    """Replace entries of *table*, that of ``OrtApi``; whether llvmlite is there."""
    try:
        import llvmlite  # noqa: F401
    except ImportError:
        return False
    engine = _engine(_Writer(table).module)
    for name in _WRITERS:
        entry = _entry(name)
        table.replace(entry.place, engine.get_function_address(name))
    return True


@functools.cache
def _by_name() -> dict[str, Entry]:
    return {entry.name: entry for entry in entries("OrtApi")}


def _entry(name: str) -> Entry:
    return _by_name()[name]


def _engine(text: str) -> Any:
    from llvmlite import binding as module_of_binding

    binding: Any = module_of_binding
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2)
    module = binding.parse_assembly(text)
    module.verify()
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return lasting(engine)  # libraries call it as long as the process lives


class _Writer:
    """Writes the entries in LLVM's language.

    Attributes:
        module: the text.
    """

    def __init__(self, table: HostTable) -> None:
        from llvmlite import ir as module

        ir: Any = module
        self.ir = ir
        self.long = ir.IntType(64)
        self.int = ir.IntType(32)
        self.pointer = ir.IntType(8).as_pointer()
        self._table = table
        self._module = ir.Module("entries")
        self._library = ctypes.CDLL(None)
        for name, write in _WRITERS.items():
            self._define(name, write)
        self.module = str(self._module)

    def _define(self, name: str, write: Callable[[_Writer], None]) -> None:
        entry = _entry(name)
        kinds = {
            "p": self.pointer,
            "n": self.long,
            "u": self.int,
            "b": self.ir.IntType(8),
            "!": self.pointer,
            ".": self.ir.VoidType(),
        }
        result = kinds[entry.result]
        kind = self.ir.FunctionType(result, [kinds[each] for each in entry.arguments])
        function = self.ir.Function(self._module, kind, name)
        self.builder: Any = self.ir.IRBuilder(function.append_basic_block("usual"))
        self.arguments = function.args
        self._result = result
        self._other = function.append_basic_block("other")
        write(self)
        with self.builder.goto_block(self._other):
            python = self.address(self._table.function(entry.place), kind.as_pointer())
            call = self.builder.call(python, self.arguments)
            if entry.result == ".":
                self.builder.ret_void()
            else:
                self.builder.ret(call)

    # what writers use

    def address(self, number: int, kind: Any) -> Any:
        """A pointer that is known now."""
        return self.builder.inttoptr(self.long(number), kind)

    def native(self, name: str, result: Any, *kinds: Any) -> Any:
        """A function of the C library."""
        address = ctypes.cast(self._library[name], ctypes.c_void_p).value
        assert address is not None
        kind = self.ir.FunctionType(result, kinds).as_pointer()
        return self.address(address, kind)

    def require(self, condition: Any) -> None:
        """Go on if *condition* holds; else leave it to Python."""
        function = self.builder.function
        following = function.append_basic_block()
        self.builder.cbranch(condition, following, self._other)
        self.builder.position_at_end(following)

    def require_some(self, *pointers: Any) -> None:
        """Go on if none is null."""
        for each in pointers:
            is_some = self.builder.icmp_unsigned("!=", each, self.pointer(None))
            self.require(is_some)

    def require_tag(self, pointer: Any, tag: int, place: int = 0) -> None:
        """Go on if *pointer* is of a slot that has *tag* at its *place*."""
        slots = _blocks() if tag == _SHAPE_TAG else arena()
        address = self.builder.ptrtoint(pointer, self.long)
        offset = self.builder.sub(address, self.long(slots.address))
        inside = self.builder.icmp_unsigned("<", offset, self.long(slots.nbytes))
        self.require(inside)
        rest = self.builder.and_(offset, self.long(slots.slot - 1))
        self.require(self.builder.icmp_unsigned("==", rest, self.long(0)))
        found = self.load(pointer, place, self.long)
        self.require(self.builder.icmp_unsigned("==", found, self.long(tag)))

    def at(self, pointer: Any, offset: Any, kind: Any) -> Any:
        """A pointer to *kind*, *offset* bytes after *pointer*."""
        if isinstance(offset, int):
            offset = self.long(offset)
        place = self.builder.gep(pointer, [offset])
        return self.builder.bitcast(place, kind.as_pointer())

    def load(self, pointer: Any, offset: Any, kind: Any) -> Any:
        """What lies there."""
        return self.builder.load(self.at(pointer, offset, kind))

    def store(self, value: Any, pointer: Any, offset: Any = 0) -> None:
        """Let *value* lie there."""
        self.builder.store(value, self.at(pointer, offset, value.type))

    def item(self, pointer: Any, index: Any) -> Any:
        """A pointer of an array of pointers."""
        offset = self.builder.mul(index, self.long(ctypes.sizeof(ctypes.c_void_p)))
        return self.load(pointer, offset, self.pointer)

    def done(self) -> None:
        """Return that all is well, or nothing."""
        if isinstance(self._result, self.ir.VoidType):
            self.builder.ret_void()
        else:
            self.builder.ret(self.pointer(None))

    def copy(self, target: Any, source: Any, count: Any) -> None:
        """Copy *count* numbers of 64 bits."""
        nbytes = self.builder.mul(count, self.long(8))
        copy = self.native(
            "memcpy", self.pointer, self.pointer, self.pointer, self.long
        )
        self.builder.call(copy, [target, source, nbytes])


def _field(memory: Any, name: str) -> int:
    place: int = getattr(memory, name).offset
    return place


def _count(name: str) -> Callable[[_Writer], None]:
    def write(self: _Writer) -> None:
        context, out = self.arguments
        self.require_tag(context, CONTEXT_TAG)
        self.require_some(out)
        self.store(self.load(context, _field(ContextMemory, name), self.long), out)
        self.done()

    return write


def _get_input(self: _Writer) -> None:
    context, index, out = self.arguments
    self.require_tag(context, CONTEXT_TAG)
    self.require_some(out)
    count = self.load(context, _field(ContextMemory, "input_count"), self.long)
    self.require(self.builder.icmp_unsigned("<", index, count))
    values = self.load(context, _field(ContextMemory, "inputs"), self.pointer)
    self.store(self.item(values, index), out)
    self.done()


def _get_output(self: _Writer) -> None:
    context, index, shape, rank, out = self.arguments
    self.require_some(out)
    self.require_tag(context, CONTEXT_TAG)
    count = self.load(context, _field(ContextMemory, "output_count"), self.long)
    self.require(self.builder.icmp_unsigned("<", index, count))
    values = self.load(context, _field(ContextMemory, "outputs"), self.pointer)
    value = self.item(values, index)
    self.require_some(value)
    state = self.load(value, _field(TensorMemory, "state"), self.int)
    has = self.builder.and_(state, self.int(READY))
    self.require(self.builder.icmp_unsigned("!=", has, self.int(0)))
    state = self.builder.or_(state, self.int(GIVEN))
    known = self.load(value, _field(TensorMemory, "rank"), self.long)
    self.require(self.builder.icmp_unsigned("==", known, rank))
    compare = self.native("memcmp", self.int, self.pointer, self.pointer, self.long)
    sizes = self.load(value, _field(TensorMemory, "shape"), self.pointer)
    nbytes = self.builder.mul(rank, self.long(8))
    with self.builder.if_else(self.builder.icmp_unsigned("==", rank, self.long(0))) as (
        then,
        otherwise,
    ):
        with then:
            scalar = self.builder.block
        with otherwise:
            # a null of some rank is told from others by Python
            usable = self.builder.select(
                self.builder.icmp_unsigned("==", shape, self.pointer(None)),
                self.address(ctypes.addressof(_NO_SHAPE), self.pointer),
                shape,
            )
            short = self.builder.icmp_unsigned("<=", rank, self.long(len(_NO_SHAPE)))
            length = self.builder.select(short, nbytes, self.long(0))
            compared = self.builder.call(compare, [sizes, usable, length])
            differs = self.builder.select(short, compared, self.int(1))
            several = self.builder.block
    result = self.builder.phi(self.int)
    result.add_incoming(self.int(0), scalar)
    result.add_incoming(differs, several)
    self.require(self.builder.icmp_unsigned("==", result, self.int(0)))
    self.store(state, value, _field(TensorMemory, "state"))
    self.store(value, out)
    self.done()


_NO_SHAPE: Final = (ctypes.c_int64 * 64)(*[-1] * 64)
"""The shape of nothing."""


def _get_preallocated(self: _Writer) -> None:
    context, index, out = self.arguments
    self.require_tag(context, CONTEXT_TAG)
    self.require_some(out)
    count = self.load(context, _field(ContextMemory, "output_count"), self.long)
    self.require(self.builder.icmp_unsigned("<", index, count))
    self.store(self.pointer(None), out)
    self.done()


def _tensor(name: str, kind: str) -> Callable[[_Writer], None]:
    def write(self: _Writer) -> None:
        value, out = self.arguments
        self.require_tag(value, VALUE_TAG)
        self.require_some(out)
        if name == "data":
            # strings have none, which is an error
            number = self.load(value, _field(TensorMemory, "element_type"), self.int)
            self.require(self.builder.icmp_unsigned("!=", number, self.int(8)))
        found = self.load(value, _field(TensorMemory, name), getattr(self, kind))
        self.store(found, out)
        self.done()

    return write


def _kernel_name(self: _Writer) -> None:
    info, out, size = self.arguments
    self.require_tag(info, KERNEL_TAG)
    self.require_some(size)
    nbytes = self.load(info, _field(KernelMemory, "size"), self.long)
    is_asked_for_size = self.builder.icmp_unsigned("==", out, self.pointer(None))
    with self.builder.if_then(is_asked_for_size):
        self.store(nbytes, size)
        self.done()
    room = self.load(size, 0, self.long)
    self.require(self.builder.icmp_unsigned(">=", room, nbytes))
    self.store(nbytes, size)
    copy = self.native("memcpy", self.pointer, self.pointer, self.pointer, self.long)
    name = self.load(info, _field(KernelMemory, "name"), self.pointer)
    self.builder.call(copy, [out, name, nbytes])
    self.done()


def _info(name: str, kind: str) -> Callable[[_Writer], None]:
    def write(self: _Writer) -> None:
        info, out = self.arguments
        self.require_tag(info, INFO_TAG, _field(InfoMemory, "tag"))
        self.require_some(out)
        found = self.load(info, _field(InfoMemory, name), getattr(self, kind))
        self.store(found, out)
        self.done()

    return write


def _info_kind(self: _Writer) -> None:
    info, out = self.arguments
    self.require_tag(info, INFO_TAG, _field(InfoMemory, "tag"))
    self.require_some(out)
    octet = self.ir.IntType(8)
    kind = self.load(info, _field(InfoMemory, "short_memory_type"), octet)
    is_both = self.builder.icmp_unsigned("==", kind, octet(HOST_ACCESSIBLE))
    self.store(self.builder.select(is_both, self.int(-1), self.int(0)), out)
    self.done()


def _info_vendor(self: _Writer) -> None:
    (info,) = self.arguments
    self.require_tag(info, INFO_TAG, _field(InfoMemory, "tag"))
    self.builder.ret(self.load(info, _field(InfoMemory, "vendor_id"), self.int))


def _is_tensor(self: _Writer) -> None:
    value, out = self.arguments
    self.require_tag(value, VALUE_TAG)
    self.require_some(out)
    self.store(self.int(1), out)
    self.done()


def _get_reference(self: _Writer) -> None:
    value, number, shape, rank = self.arguments
    self.require_tag(value, VALUE_TAG)
    self.require_some(number, shape, rank)
    kind = self.load(value, _field(TensorMemory, "element_type"), self.int)
    count = self.load(value, _field(TensorMemory, "rank"), self.long)
    sizes = self.load(value, _field(TensorMemory, "shape"), self.pointer)
    is_scalar = self.builder.icmp_unsigned("==", count, self.long(0))
    self.store(kind, number)
    self.store(self.builder.select(is_scalar, self.pointer(None), sizes), shape)
    self.store(count, rank)
    self.done()


def _get_type_and_shape(self: _Writer) -> None:
    value, out = self.arguments
    self.require_tag(value, VALUE_TAG)
    self.require_some(out)
    rank = self.load(value, _field(TensorMemory, "rank"), self.long)
    fits = self.builder.icmp_unsigned("<=", rank, self.long(_MOST_DIMENSIONS))
    self.require(fits)
    block = _take_block(self)
    number = self.load(value, _field(TensorMemory, "element_type"), self.int)
    self.store(self.builder.zext(number, self.long), block, _TYPE)
    self.store(rank, block, _RANK)
    sizes = self.load(value, _field(TensorMemory, "shape"), self.pointer)
    self.copy(self.builder.gep(block, [self.long(_DIMENSIONS)]), sizes, rank)
    self.store(self.long(_SHAPE_TAG), block)
    self.store(block, out)
    self.done()


def _release_shape(self: _Writer) -> None:
    (block,) = self.arguments
    self.require_tag(block, _SHAPE_TAG)
    # of several that release it at once, one does
    tag = self.at(block, 0, self.long)
    taken = self.builder.cmpxchg(
        tag, self.long(_SHAPE_TAG), self.long(0), "acq_rel", "acquire"
    )
    self.require(self.builder.extract_value(taken, 1))
    address = self.builder.ptrtoint(block, self.long)
    offset = self.builder.sub(address, self.long(_blocks().address))
    number = self.builder.udiv(offset, self.long(_BLOCK))
    number = self.builder.add(number, self.long(1))

    def put_first(head: Any) -> Any:
        following = self.builder.and_(head, self.long(_NUMBER))
        self.store(following, block, _TYPE)
        return number

    _change_head(self, put_first)
    self.done()


def _change_head(self: _Writer, change: Callable[[Any], Any]) -> Any:
    """Let the first of the free blocks be another; the head that was before."""
    place = self.address(ctypes.addressof(_HEAD), self.long.as_pointer())
    again = self.builder.function.append_basic_block()
    self.builder.branch(again)
    self.builder.position_at_end(again)
    head = self.builder.load_atomic(place, "acquire", 8)
    number = change(head)
    count = self.builder.and_(head, self.long(~_NUMBER))
    count = self.builder.add(count, self.long(_NUMBER + 1))
    new = self.builder.or_(count, number)
    changed = self.builder.cmpxchg(place, head, new, "acq_rel", "acquire")
    after = self.builder.function.append_basic_block()
    self.builder.cbranch(self.builder.extract_value(changed, 1), after, again)
    self.builder.position_at_end(after)
    return head


def _take_block(self: _Writer) -> Any:
    """A pointer to a block that is free."""
    first = self.long(_blocks().address - _BLOCK)  # there is no number 0

    def at(head: Any) -> Any:
        number = self.builder.and_(head, self.long(_NUMBER))
        self.require(self.builder.icmp_unsigned("!=", number, self.long(0)))
        place = self.builder.mul(number, self.long(_BLOCK))
        return self.builder.inttoptr(self.builder.add(first, place), self.pointer)

    def second(head: Any) -> Any:
        return self.load(at(head), _TYPE, self.long)

    return at(_change_head(self, second))


def _shape_number(offset: int, kind: str) -> Callable[[_Writer], None]:
    def write(self: _Writer) -> None:
        block, out = self.arguments
        self.require_tag(block, _SHAPE_TAG)
        self.require_some(out)
        self.store(self.load(block, offset, getattr(self, kind)), out)
        self.done()

    return write


def _shape_dimensions(self: _Writer) -> None:
    block, out, count = self.arguments
    self.require_tag(block, _SHAPE_TAG)
    rank = self.load(block, _RANK, self.long)
    fits = self.builder.icmp_unsigned("<", rank, count)
    less = self.builder.select(fits, rank, count)
    # of nothing no place is needed
    with self.builder.if_then(self.builder.icmp_unsigned("==", less, self.long(0))):
        self.done()
    self.require_some(out)
    self.copy(out, self.builder.gep(block, [self.long(_DIMENSIONS)]), less)
    self.done()


def _shape_has_shape(self: _Writer) -> None:
    (block,) = self.arguments
    self.require_tag(block, _SHAPE_TAG)
    self.builder.ret(self.ir.IntType(8)(1))


def _loop(self: _Writer, count: Any, body: Callable[[Any], None]) -> None:
    """Do *body* for each number below *count*."""
    index = self.builder.alloca(self.long)
    self.builder.store(self.long(0), index)
    function = self.builder.function
    check, inside, after = (function.append_basic_block() for _ in range(3))
    self.builder.branch(check)
    self.builder.position_at_end(check)
    now = self.builder.load(index)
    self.builder.cbranch(self.builder.icmp_unsigned("<", now, count), inside, after)
    self.builder.position_at_end(inside)
    body(now)
    self.builder.store(self.builder.add(now, self.long(1)), index)
    self.builder.branch(check)
    self.builder.position_at_end(after)


def _shape_symbols(self: _Writer) -> None:
    block, out, count = self.arguments
    self.require_tag(block, _SHAPE_TAG)
    rank = self.load(block, _RANK, self.long)
    fits = self.builder.icmp_unsigned("<", rank, count)
    less = self.builder.select(fits, rank, count)
    # of nothing no place is needed
    with self.builder.if_then(self.builder.icmp_unsigned("==", less, self.long(0))):
        self.done()
    self.require_some(out)
    empty = self.address(ctypes.addressof(_EMPTY), self.pointer)

    def name(index: Any) -> None:
        self.store(empty, out, self.builder.mul(index, self.long(8)))

    _loop(self, less, name)
    self.done()


_EMPTY: Final = ctypes.create_string_buffer(b"")


def _shape_elements(self: _Writer) -> None:
    block, out = self.arguments
    self.require_tag(block, _SHAPE_TAG)
    self.require_some(out)
    product = self.builder.alloca(self.long)
    self.builder.store(self.long(1), product)

    def multiply(index: Any) -> None:
        offset = self.builder.mul(index, self.long(8))
        place = self.builder.add(offset, self.long(_DIMENSIONS))
        size = self.load(block, place, self.long)
        self.builder.store(self.builder.mul(self.builder.load(product), size), product)

    _loop(self, self.load(block, _RANK, self.long), multiply)
    self.store(self.builder.load(product), out)
    self.done()


_WRITERS: Final[dict[str, Callable[[_Writer], None]]] = {
    "KernelContext_GetInputCount": _count("input_count"),
    "KernelContext_GetOutputCount": _count("output_count"),
    "KernelContext_GetInput": _get_input,
    "KernelContext_GetOutput": _get_output,
    "KernelContext_GetPreallocatedOutput": _get_preallocated,
    "GetTensorData": _tensor("data", "pointer"),
    "GetTensorMutableData": _tensor("data", "pointer"),
    "GetTensorSizeInBytes": _tensor("nbytes", "long"),
    "GetTensorElementTypeAndShapeDataReference": _get_reference,
    "GetTensorMemoryInfo": _tensor("info", "pointer"),
    "KernelInfo_GetNodeName": _kernel_name,
    "MemoryInfoGetName": _info("name", "pointer"),
    "MemoryInfoGetId": _info("device_id", "int"),
    "MemoryInfoGetDeviceType": _info("device_type", "int"),
    "MemoryInfoGetType": _info("allocator_type", "int"),
    "MemoryInfoGetMemType": _info_kind,
    "MemoryInfoGetVendorId": _info_vendor,
    "IsTensor": _is_tensor,
    "GetTensorTypeAndShape": _get_type_and_shape,
    "ReleaseTensorTypeAndShapeInfo": _release_shape,
    "GetTensorElementType": _shape_number(_TYPE, "int"),
    "GetDimensionsCount": _shape_number(_RANK, "long"),
    "GetDimensions": _shape_dimensions,
    "GetSymbolicDimensions": _shape_symbols,
    "GetTensorShapeElementCount": _shape_elements,
    "TensorTypeAndShape_HasShape": _shape_has_shape,
}
