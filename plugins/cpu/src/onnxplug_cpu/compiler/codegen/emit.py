"""Writes LLVM IR as text: values with operators, loops with carried values, vectors.

Text is ten times faster to make than ``llvmlite.ir`` objects, and no middle-end pass
runs on it, so what is written here is what is selected.  The semantics are LLVM's
(https://llvm.org/docs/LangRef.html); integers are signed unless their type says not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnxplug_cpu.compiler.codegen.fused import multiply_add
from onnxplug_cpu.compiler.codegen.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    PTR,
    U8,
    U16,
    U32,
    U64,
    Number,
    Type,
    constant_text,
)
from onnxplug_cpu.compiler.codegen.value import Operand, Value

__all__ = [
    "BF16",
    "F16",
    "F32",
    "F64",
    "Function",
    "I1",
    "I16",
    "I32",
    "I64",
    "I8",
    "Module",
    "Number",
    "Operand",
    "PTR",
    "Type",
    "U16",
    "U32",
    "U64",
    "U8",
    "Value",
    "constant_text",
]


class Function:
    """One function as it is written, instruction after instruction."""

    def __init__(
        self,
        module: Module,
        name: str,
        parameters: Sequence[tuple[str, Type]],
        returns: Type | None = None,
        *,
        internal: bool = False,
        attributes: str = "",
        convention: str = "",
    ) -> None:
        self.module = module
        self.name = name
        self.returns = returns
        self.parameters = [Value(self, f"%{name}", type_) for name, type_ in parameters]
        written = ", ".join(f"{type_.text} %{name}" for name, type_ in parameters)
        linkage = "internal " if internal else ""
        result = f"{convention} " if convention else ""
        result += returns.text if returns else "void"
        self._lines: list[str] = [
            f"define {linkage}{result} @{name}({written}) {attributes} #0 {{",
            "entry:",
        ]
        self._block = "entry"
        self._count = 0

    # the lowest layer: names, instructions, blocks

    def instruction(self, type_: Type, text: str) -> Value:
        """A new value computed by the instruction *text*."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {text}")
        return Value(self, name, type_)

    def effect(self, text: str) -> None:
        """An instruction without a value."""
        self._lines.append(f"  {text}")

    def _label(self) -> str:
        self._count += 1
        return f"b{self._count}"

    def _start(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    # constants

    def value(self, operand: Operand, type_: Type) -> Value:
        """*operand* as a value: a number becomes a constant of *type_*."""
        if isinstance(operand, Value):
            return operand
        text = constant_text(operand, type_.scalar)
        if type_.lanes:
            text = f"splat ({type_.scalar.text} {text})"
        return Value(self, text, type_)

    def zero(self, type_: Type) -> Value:
        """All lanes zero."""
        if type_ == PTR:
            return Value(self, "null", type_)
        return self.value(0, type_)

    def table(self, numbers: Sequence[Number], type_: Type) -> Value:
        """A constant vector, lane by lane."""
        scalar = type_.scalar
        lanes = ", ".join(f"{scalar.text} {constant_text(n, scalar)}" for n in numbers)
        return Value(self, f"<{lanes}>", scalar.vector(len(numbers)))

    def iota(self, type_: Type) -> Value:
        """0, 1, 2, … in the lanes of *type_*."""
        return self.table(range(type_.lanes), type_)

    # memory

    def at(self, pointer: Value, index: Operand, type_: Type) -> Value:
        """The address of element *index* of an array of *type_*'s scalar."""
        if isinstance(index, int) and index == 0:
            return pointer
        index = self.value(index, I64)
        # i1 is stored as a byte
        element = "i8" if type_.element == "i1" else type_.scalar.text
        return self.instruction(
            PTR, f"getelementptr {element}, ptr {pointer.text}, {index}"
        )

    def address(self, pointer: Value) -> Value:
        """*pointer* as an i64."""
        return self.instruction(I64, f"ptrtoint {pointer} to i64")

    def pointer(self, address: Value) -> Value:
        """What is at an address, an i64."""
        return self.instruction(PTR, f"inttoptr {address} to ptr")

    def load(self, pointer: Value, type_: Type, align: int = 0) -> Value:
        """Consecutive elements; *align* in bytes, an element's size by default.

        ``i1`` is a byte in memory, true when it is not 0.
        """
        if type_.element == "i1":
            return self.load(pointer, type_.of("u8"), align).compare("ne", 0)
        return self.instruction(
            type_,
            f"load {type_.text}, ptr {pointer.text}, align {align or type_.nbytes}",
        )

    def store(self, value: Value, pointer: Value, align: int = 0) -> None:
        """Write consecutive elements; ``i1`` as bytes 0 and 1."""
        if value.type.element == "i1":
            value = self.convert(value, value.type.of("u8"))
        self.effect(
            f"store {value}, ptr {pointer.text}, align {align or value.type.nbytes}"
        )

    def first_lanes(self, count: Operand, lanes: int) -> Value:
        """A mask of the first *count* lanes (i64); more than *lanes* means all."""
        vector = I32.vector(lanes)
        limit = self.value(count, I64)
        if not isinstance(count, int):
            limit = self.minimum(limit, self.value(lanes, I64))
        narrow = self.convert(limit, I32)
        return self.iota(vector).compare("lt", self.splat(narrow, lanes))

    def load_masked(
        self, pointer: Value, mask: Value, type_: Type, default: Number = 0
    ) -> Value:
        """Elements where *mask* is true, *default* elsewhere; other bytes untouched."""
        if type_.element == "i1":
            return self.load_masked(pointer, mask, type_.of("u8")).compare("ne", 0)
        return self.intrinsic(
            type_,
            f"llvm.masked.load.{type_.suffix}.p0",
            Value(self, f"align {type_.nbytes} {pointer.text}", PTR),
            mask,
            self.value(default, type_),
        )

    def store_masked(self, value: Value, pointer: Value, mask: Value) -> None:
        """Write the elements where *mask* is true."""
        if value.type.element == "i1":
            value = self.convert(value, value.type.of("u8"))
        self.call_void(
            f"llvm.masked.store.{value.type.suffix}.p0",
            value,
            Value(self, f"align {value.type.nbytes} {pointer.text}", PTR),
            mask,
        )

    def aligned(self, pointer: Value, align: int) -> Value:
        """*pointer* as an argument of an intrinsic that must know its alignment."""
        return Value(self, f"align {align} {pointer.text}", pointer.type)

    def prefetch(self, pointer: Value, level: int = 1, *, write: bool = False) -> None:
        """Ask for a cache line in the cache of *level* (1, 2, 3), to *write* to it."""
        locality = Value(self, str(4 - level), I32)
        kind, one = Value(self, str(int(write)), I32), Value(self, "1", I32)
        self.call_void("llvm.prefetch.p0", pointer, kind, locality, one)

    def stack(self, type_: Type, count: int, align: int = 64) -> Value:
        """Room for *count* elements in the function's frame; call before any loop."""
        size = type_.nbytes * max(type_.lanes, 1) * count
        return self.instruction(PTR, f"alloca [{size} x i8], align {align}")

    # lanes

    def insert(self, vector: Value, scalar: Value, lane: int) -> Value:
        """*vector* with *scalar* in a lane."""
        return self.instruction(
            vector.type, f"insertelement {vector}, {scalar}, i64 {lane}"
        )

    def splat(self, scalar: Value, lanes: int) -> Value:
        """*scalar* in every lane."""
        vector = scalar.type.vector(lanes)
        single = self.instruction(
            vector, f"insertelement {vector.text} poison, {scalar}, i64 0"
        )
        return self.instruction(
            vector,
            f"shufflevector {single}, {vector.text} poison, "
            f"<{lanes} x i32> zeroinitializer",
        )

    def load_splat(self, pointer: Value, type_: Type) -> Value:
        """One element of memory in every lane of *type_*."""
        return self.splat(self.load(pointer, type_.scalar), type_.lanes)

    def lane(self, vector: Value, index: int) -> Value:
        """One lane as a scalar."""
        return self.instruction(
            vector.type.scalar, f"extractelement {vector}, i64 {index}"
        )

    def shuffle(self, first: Value, second: Value, lanes: Sequence[int]) -> Value:
        """Lanes picked from *first* and, counting on, *second*."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.instruction(
            first.type.vector(len(lanes)),
            f"shufflevector {first}, {second}, <{len(lanes)} x i32> <{mask}>",
        )

    def reduce(self, operation: str, vector: Value) -> Value:
        """One scalar from all lanes.

        Args:
            operation: ``fadd fmul`` (any order), ``fmax fmin`` (no NaN), ``fmaximum
                fminimum`` (NaN goes through), ``add mul and or xor smax smin umax
                umin``.
        """
        scalar = vector.type.scalar
        name = f"llvm.vector.reduce.{operation}.{vector.type.suffix}"
        if operation in ("fadd", "fmul"):
            start = self.value(1 if operation == "fmul" else 0, scalar)
            self.module.declare(name, scalar, (scalar, vector.type))
            return self.instruction(
                scalar, f"call reassoc {scalar.text} @{name}({start}, {vector})"
            )
        return self.intrinsic(scalar, name, vector)

    # arithmetic beyond operators

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """``a * b + c``, rounded once, on every processor."""
        type_ = a.type
        b, c = self.value(b, type_), self.value(c, type_)
        if not self.module.fuses:
            return multiply_add(self, a, b, c)
        return self.intrinsic(type_, f"llvm.fma.{type_.suffix}", a, b, c)

    def minimum(self, a: Value, b: Operand) -> Value:
        """The smaller; NaN if either is."""
        return self._extreme("min", a, self.value(b, a.type))

    def maximum(self, a: Value, b: Operand) -> Value:
        """The larger; NaN if either is."""
        return self._extreme("max", a, self.value(b, a.type))

    def _extreme(self, which: str, a: Value, b: Value) -> Value:
        if a.type.is_float:
            name = f"llvm.{which}imum"
        else:
            name = f"llvm.{'s' if a.type.is_signed else 'u'}{which}"
        return self.intrinsic(a.type, f"{name}.{a.type.suffix}", a, b)

    def unary(self, intrinsic: str, a: Value) -> Value:
        """``llvm.<intrinsic>`` of one operand: sqrt, fabs, floor, ceil, rint, trunc,
        roundeven … that the processor has as an instruction."""
        return self.intrinsic(a.type, f"llvm.{intrinsic}.{a.type.suffix}", a)

    def select(self, condition: Value, then: Value, otherwise: Operand) -> Value:
        """Per lane *then* where *condition*, else *otherwise*."""
        other = self.value(otherwise, then.type)
        return self.instruction(then.type, f"select {condition}, {then}, {other}")

    def bitcast(self, value: Value, type_: Type) -> Value:
        """The same bits as another type."""
        if value.type.text == type_.text:
            return Value(self, value.text, type_)
        return self.instruction(type_, f"bitcast {value} to {type_.text}")

    def convert(self, value: Value, type_: Type) -> Value:
        """The nearest value of *type_*.

        Floats become integers by truncation, saturated (NaN gives 0); a value becomes
        ``i1`` by comparison with 0.
        """
        source = value.type
        if source.text == type_.text:
            return Value(self, value.text, type_)
        if type_.element == "i1":
            return value.compare("ne", 0)
        if source.is_float and type_.is_float:
            wider = type_.nbytes > source.nbytes
            if type_.nbytes == source.nbytes:  # f16 and bf16
                return self.convert(self.convert(value, source.of("f32")), type_)
            opcode = "fpext" if wider else "fptrunc"
        elif source.is_float:
            sign = "s" if type_.is_signed else "u"
            return self.intrinsic(
                type_, f"llvm.fpto{sign}i.sat.{type_.suffix}.{source.suffix}", value
            )
        elif type_.is_float:
            opcode = "sitofp" if source.is_signed else "uitofp"
        elif type_.bits > source.bits:
            opcode = "sext" if source.is_signed else "zext"
        else:
            opcode = "trunc"
        return self.instruction(type_, f"{opcode} {value} to {type_.text}")

    def convert_finite(self, value: Value, type_: Type) -> Value:
        """Floats as integers, by truncation: one instruction; out of range and for
        NaN some integer, which one depends on the processor."""
        opcode = "fptosi" if type_.is_signed else "fptoui"
        return self.instruction(type_, f"{opcode} {value} to {type_.text}")

    # calls

    def intrinsic(self, returns: Type, name: str, *arguments: Value) -> Value:
        """A call of an LLVM intrinsic, or of a function of the module."""
        self.module.declare(name, returns, [a.type for a in arguments])
        written = ", ".join(map(str, arguments))
        return self.instruction(returns, f"call {returns.text} @{name}({written})")

    def call_void(self, name: str, *arguments: Value) -> None:
        """A call without a result."""
        self.module.declare(name, None, [a.type for a in arguments])
        self.effect(f"call void @{name}({', '.join(map(str, arguments))})")

    def call_pointer(self, pointer: Value, *arguments: Value) -> None:
        """A call without a result of the function at an address."""
        self.effect(f"call void {pointer.text}({', '.join(map(str, arguments))})")

    # control flow

    def loop(
        self,
        count: Operand,
        body: Callable[..., Sequence[Value] | None],
        carried: Sequence[Value] = (),
        *,
        start: Operand = 0,
        step: Operand = 1,
        nonempty: bool = False,
    ) -> list[Value]:
        """``body(i, *carried)`` for *i* (i64) from *start* up to *count* by *step*.

        The body returns the carried values of the next turn; the last ones are the
        loop's result.  *nonempty* promises at least one turn, which saves a branch.
        """
        limit, first = self.value(count, I64), self.value(start, I64)
        before = self._block
        head, done = self._label(), self._label()
        if nonempty:
            self.effect(f"br label %{head}")
        else:
            any_turn = first.compare("lt", limit)
            self.effect(f"br {any_turn}, label %{head}, label %{done}")
        self._start(head)
        index = self._fresh(I64)
        inside = [self._fresh(value.type) for value in carried]
        place = len(self._lines)
        after = list(body(index, *inside) or ())
        latch = self._block
        following = index + step
        again = following.compare("lt", limit)
        self.effect(f"br {again}, label %{head}, label %{done}")
        self._lines[place:place] = [
            _phi(phi, [(old.text, before), (new.text, latch)])
            for phi, old, new in zip(
                [index, *inside],
                [first, *carried],
                [following, *after],
                strict=True,
            )
        ]
        self._start(done)
        if nonempty:
            return after
        return [
            self._merge([(old, before), (new, latch)])
            for old, new in zip(carried, after, strict=True)
        ]

    def repeat(
        self,
        body: Callable[..., tuple[Value, Sequence[Value]]],
        carried: Sequence[Value] = (),
    ) -> list[Value]:
        """``body(*carried)`` once, and again as long as it says so.

        The body returns an ``i1``, whether to go on, and the carried values of the
        next turn; the last ones are the result.
        """
        before = self._block
        head, done = self._label(), self._label()
        self.effect(f"br label %{head}")
        self._start(head)
        inside = [self._fresh(value.type) for value in carried]
        place = len(self._lines)
        again, after = body(*inside)
        latch = self._block
        self.effect(f"br {again}, label %{head}, label %{done}")
        self._lines[place:place] = [
            _phi(phi, [(old.text, before), (new.text, latch)])
            for phi, old, new in zip(inside, carried, after, strict=True)
        ]
        self._start(done)
        return list(after)

    def branch(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value] | None],
        otherwise: Callable[[], Sequence[Value] | None] = lambda: None,
    ) -> list[Value]:
        """One of two paths; both return as many values, of the same types."""
        labels = self._label(), self._label(), self._label()
        self.effect(f"br {condition}, label %{labels[0]}, label %{labels[1]}")
        results: list[tuple[list[Value], str]] = []
        for label, path in zip(labels, (then, otherwise), strict=False):
            self._start(label)
            values = list(path() or ())
            results.append((values, self._block))
            self.effect(f"br label %{labels[2]}")
        self._start(labels[2])
        (yes, from_yes), (no, from_no) = results
        return [
            self._merge([(a, from_yes), (b, from_no)])
            for a, b in zip(yes, no, strict=True)
        ]

    def _fresh(self, type_: Type) -> Value:
        self._count += 1
        return Value(self, f"%v{self._count}", type_)

    def _merge(self, ways: Sequence[tuple[Value, str]]) -> Value:
        merged = self._fresh(ways[0][0].type)
        self._lines.append(_phi(merged, [(value.text, block) for value, block in ways]))
        return merged

    def finish(self, result: Value | None = None) -> None:
        """Return, and add the function to its module."""
        self.effect(f"ret {result}" if result else "ret void")
        self._lines.append("}")
        self.module.add("\n".join(self._lines))


def _phi(value: Value, ways: Sequence[tuple[str, str]]) -> str:
    written = ", ".join(f"[ {text}, %{block} ]" for text, block in ways)
    return f"  {value.text} = phi {value.type.text} {written}"


class Module:
    """Functions and constants that are compiled together.

    Args:
        fuses: the processor has an instruction for ``a * b + c``.
    """

    def __init__(self, *, fuses: bool = True) -> None:
        self.fuses = fuses
        self._parts: list[str] = []
        self._declared: dict[str, str] = {}
        self._defined: set[str] = set()
        self._constants: dict[str, str] = {}

    def function(
        self,
        name: str,
        parameters: Sequence[tuple[str, Type]],
        returns: Type | None = None,
        *,
        internal: bool = False,
        inline: bool | None = None,
        convention: str = "",
    ) -> Function:
        """Begin a function.

        Args:
            internal: only this module calls it.
            inline: forces or forbids inlining into its callers.
            convention: LLVM's name of the calling convention, C's by default.
        """
        self._defined.add(name)
        attributes = {None: "", True: "alwaysinline", False: "noinline"}[inline]
        return Function(
            self,
            name,
            parameters,
            returns,
            internal=internal,
            attributes=attributes,
            convention=convention,
        )

    def defines(self, name: str) -> bool:
        """Whether a function of this name was begun."""
        return name in self._defined

    def declare(self, name: str, returns: Type | None, types: Sequence[Type]) -> None:
        """Declare what is called and not defined here: an intrinsic."""
        result = returns.text if returns else "void"
        written = ", ".join(type_.text for type_ in types)
        self._declared.setdefault(name, f"declare {result} @{name}({written})")

    def constant(self, name: str, data: np.ndarray) -> str:
        """A constant array, 64-byte aligned; its address as an operand."""
        data = np.ascontiguousarray(data)
        body = "".join(f"\\{byte:02X}" for byte in data.tobytes())
        self._constants[name] = (
            f'@{name} = internal constant [{data.nbytes} x i8] c"{body}", align 64'
        )
        return f"@{name}"

    def add(self, text: str) -> None:
        """Add a finished definition."""
        self._parts.append(text)

    def text(self, attributes: str) -> str:
        """The whole module; *attributes* are those of every function."""
        declared = [
            text for name, text in self._declared.items() if name not in self._defined
        ]
        return "\n".join(
            [
                *self._constants.values(),
                *self._parts,
                *declared,
                f"attributes #0 = {{ {attributes} }}",
                "",
            ]
        )
