"""Kernels of a library that are called one after another, without Python between them.

Each call from Python gives up the interpreter's lock and takes it again, and looks at
what a kernel left.  The function here, which llvmlite compiles, does so for several
kernels, and returns where one did not leave what it should.  Without llvmlite, or where
nothing catches what C++ throws, there is none, and Python calls each.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from onnxplug_native.functions.kernel_context import ContextMemory
from onnxplug_native.functions.tensor import GIVEN, TensorMemory
from onnxplug_native.interface.ending import lasting
from onnxplug_native.interface.throwing import guard_address


class Call(ctypes.Structure):
    """A kernel to be called.

    Attributes:
        function: the library's.
        kernel: its first argument.
        context: its second argument, a slot of :class:`ContextMemory`.
    """

    _fields_: ClassVar = [
        ("function", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


_TEXT: Final = """
define i64 @run_calls(i8* %calls, i64 %first, i64 %end, i8** %status) {{
entry:
  br label %next
next:
  %number = phi i64 [ %first, %entry ], [ %following, %done ]
  %is_over = icmp uge i64 %number, %end
  br i1 %is_over, label %stop, label %call
call:
  %offset = mul i64 %number, {size}
  %place = getelementptr i8, i8* %calls, i64 %offset
  %parts = bitcast i8* %place to i8**
  %function = load i8*, i8** %parts
  %kernel_at = getelementptr i8*, i8** %parts, i64 1
  %kernel = load i8*, i8** %kernel_at
  %context_at = getelementptr i8*, i8** %parts, i64 2
  %context = load i8*, i8** %context_at
  %guard = inttoptr i64 {guard} to i8* (i8*, i8*, i8*)*
  %found = call i8* %guard(i8* %function, i8* %kernel, i8* %context)
  store i8* %found, i8** %status
  %has_failed = icmp ne i8* %found, null
  br i1 %has_failed, label %stop, label %look
look:
  %failed_at8 = getelementptr i8, i8* %context, i64 {failed}
  %failed_at = bitcast i8* %failed_at8 to i64*
  %failed = load i64, i64* %failed_at
  %was_refused = icmp ne i64 %failed, 0
  br i1 %was_refused, label %stop, label %outputs
outputs:
  %count_at8 = getelementptr i8, i8* %context, i64 {output_count}
  %count_at = bitcast i8* %count_at8 to i64*
  %count = load i64, i64* %count_at
  %values_at8 = getelementptr i8, i8* %context, i64 {outputs}
  %values_at = bitcast i8* %values_at8 to i8***
  %values = load i8**, i8*** %values_at
  br label %output
output:
  %place_of = phi i64 [ 0, %outputs ], [ %after, %given ]
  %has_all = icmp uge i64 %place_of, %count
  br i1 %has_all, label %done, label %value
value:
  %value_at = getelementptr i8*, i8** %values, i64 %place_of
  %found_value = load i8*, i8** %value_at
  %is_unwanted = icmp eq i8* %found_value, null
  br i1 %is_unwanted, label %given, label %wanted
wanted:
  %state_at8 = getelementptr i8, i8* %found_value, i64 {state}
  %state_at = bitcast i8* %state_at8 to i32*
  %state = load i32, i32* %state_at
  %bit = and i32 %state, {is_given}
  %is_missing = icmp eq i32 %bit, 0
  br i1 %is_missing, label %stop, label %given
given:
  %after = add i64 %place_of, 1
  br label %output
done:
  %following = add i64 %number, 1
  br label %next
stop:
  ret i64 %number
}}
"""

Loop = Any
"""A function of the address of an array of :class:`Call`, the first to be called, the
one behind the last, and where to put the status of the last that was called.  It
returns which did not leave what it should, or that behind the last."""


@functools.cache
def loop() -> Loop | None:
    """What calls several kernels; ``None`` where there can be none."""
    guard = guard_address("!", "pp")
    if guard is None:
        return None
    from llvmlite import binding as module_of_binding

    binding: Any = module_of_binding
    text = _TEXT.format(
        size=ctypes.sizeof(Call),
        guard=guard,
        is_given=GIVEN,
        state=TensorMemory.state.offset,
        **{
            name: getattr(ContextMemory, name).offset
            for name in ("failed", "output_count", "outputs")
        },
    )
    machine = binding.Target.from_default_triple().create_target_machine(opt=2)
    module = binding.parse_assembly(text)
    module.verify()
    engine = lasting(binding.create_mcjit_compiler(module, machine))
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_void_p,
    )
    return kind(engine.get_function_address("run_calls"))


def calls_of(each: Iterable[tuple[int, int, int]]) -> Any:
    """An array of calls, of the function, the kernel and the context of each."""
    calls = [Call(*one) for one in each]
    return (Call * len(calls))(*calls)
