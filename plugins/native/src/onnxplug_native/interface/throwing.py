"""Calls of libraries that end where C++ throws, instead of ending the process.

The interface is C's, which exceptions must not pass, and some libraries let them;
nobody catches them in an interpreter that was written in C.  So libraries are called by
functions of a few instructions that catch all, compiled by llvmlite.  Without llvmlite,
without libstdc++, and for libraries with a copy of their own of what unwinds, it is as
ever.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from onnxplug import ep
from onnxplug_native.interface.codes import Code
from onnxplug_native.interface.ending import lasting
from onnxplug_native.interface.readable import text_at
from onnxplug_native.interface.status import Status
from onnxplug_native.interface.table import entries, signature

_CALLED: Final = (
    "OrtAllocator",
    "OrtDataTransferImpl",
    "OrtEp",
    "OrtEpFactory",
    "OrtEpProfilerImpl",
    "OrtKernelImpl",
    "OrtLoopKernelHelper",
    "OrtNodeComputeInfo",
    "OrtScanKernelHelper",
    "OrtSyncNotificationImpl",
    "OrtSyncStreamImpl",
)
"""The structures of libraries."""

_EXPORTED: Final = (("!", "spppnp"), ("!", "p"), ("!", "ppp"), (".", "pn"))
"""What is called besides: what makes factories and releases them, what makes kernels,
and what is done in parallel."""

_SYMBOLS: Final = (
    "__gxx_personality_v0",
    "__cxa_begin_catch",
    "__cxa_end_catch",
    "_ZTISt9exception",
)
_TYPES: Final = {
    "!": "i8*",
    "p": "i8*",
    "s": "i8*",
    "t": "i8*",
    "f": "i8*",
    "i": "i32",
    "u": "i32",
    "l": "i64",
    "q": "i64",
    "n": "i64",
    "b": "i8",
    ".": "void",
}
_HEAD: Final = """
declare i32 @__gxx_personality_v0(...)
declare i8* @__cxa_begin_catch(i8*)
declare void @__cxa_end_catch()
declare i32 @llvm.eh.typeid.for(i8*)
@_ZTISt9exception = external constant i8
"""
_FUNCTION: Final = """
define {result} @{name}(i8* %f{parameters})
    personality i8* bitcast (i32 (...)* @__gxx_personality_v0 to i8*) {{
  %g = bitcast i8* %f to {result} ({types})*
  {keep}invoke {result} %g({arguments}) to label %done unwind label %thrown
done:
  ret {value}
thrown:
  %pad = landingpad {{ i8*, i32 }} catch i8* @_ZTISt9exception catch i8* null
  %exception = extractvalue {{ i8*, i32 }} %pad, 0
  %found = extractvalue {{ i8*, i32 }} %pad, 1
  %standard = call i32 @llvm.eh.typeid.for(i8* @_ZTISt9exception)
  %is = icmp eq i32 %found, %standard
  %flag = zext i1 %is to i32
  %object = call i8* @__cxa_begin_catch(i8* %exception)
  %tell = inttoptr i64 {tell} to i8* (i8*, i32, i32)*
  %status = call i8* %tell(i8* %object, i32 %flag, i32 {is_status})
  call void @__cxa_end_catch()
  ret {instead}
}}
"""


def _name(result: str, arguments: str) -> str:
    words = {"!": "status", ".": "nothing"}
    return f"call_{words.get(result, result)}_{arguments}"


def _text(result: str, arguments: str) -> str:
    kind, kinds = _TYPES[result], [_TYPES[each] for each in arguments]
    names = [f"{each} %a{place}" for place, each in enumerate(kinds)]
    is_nothing = result == "."
    instead = f"{kind} " + ("%status" if result == "!" else "0")
    return _FUNCTION.format(
        result=kind,
        name=_name(result, arguments),
        parameters="".join(f", {each}" for each in names),
        types=", ".join(kinds),
        arguments=", ".join(names),
        keep="" if is_nothing else "%r = ",
        value="void" if is_nothing else f"{kind} %r",
        tell=ctypes.cast(_TELL, ctypes.c_void_p).value,
        is_status=int(result == "!"),
        instead=(
            "void"
            if is_nothing
            else "i8* null"
            if kind == "i8*" and result != "!"
            else instead
        ),
    )


_THROWN: Final = threading.local()


def _tell(exception: int, is_standard: bool, is_status: bool) -> int | None:
    """Note what was thrown; the address of a status where that is returned."""
    said = ""
    if is_standard:
        table = ctypes.c_void_p.from_address(exception).value or 0
        what = ctypes.c_void_p.from_address(table + 2 * 8).value or 0
        said = text_at(signature("p", "p")(what)(exception) or 0) or ""
    text = "it threw an exception of C++'s through the interface, which is C's"
    text = f"{text}: {said}" if said else text
    if is_status:
        return Status(Code.RUNTIME_EXCEPTION, text).address
    _THROWN.text = text
    return None


_TELL: Final = lasting(
    ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(
        _tell
    )
)


def require_not_thrown(what: str) -> None:
    """Check that the last call from this thread, of what returns no status, threw
    nothing.

    Raises:
        RuntimeException: it did.
    """
    text = getattr(_THROWN, "text", "")
    if text:
        _THROWN.text = ""
        raise ep.status_class(Code.RUNTIME_EXCEPTION)(f"{what} failed: {text}")


@functools.cache
def _compiled() -> Any | None:
    """What has the functions; ``None`` where there can be none."""
    try:
        from llvmlite import binding as module_of_binding

        library = ctypes.CDLL("libstdc++.so.6")
    except (ImportError, OSError):
        return None
    if sys.platform != "linux":
        return None
    binding: Any = module_of_binding
    for symbol in _SYMBOLS:
        binding.add_symbol(symbol, ctypes.cast(library[symbol], ctypes.c_void_p).value)
    kinds = {
        (entry.result, entry.arguments) for name in _CALLED for entry in entries(name)
    }
    return _engine(binding, sorted({*kinds, *_EXPORTED}))


def _engine(binding: Any, kinds: Iterable[tuple[str, str]]) -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(opt=0)
    text = _HEAD + "".join(_text(*each) for each in kinds)
    module = binding.parse_assembly(text)
    module.verify()
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return lasting(engine)


@functools.cache
def guard_address(result: str, arguments: str) -> int | None:
    """Where the function is that calls one of that signature, by its address, which it
    is given first; ``None`` where there can be none."""
    engine = _compiled()
    if engine is None:
        return None
    return engine.get_function_address(_name(result, arguments)) or None


@functools.cache
def _guard(result: str, arguments: str) -> Any | None:
    address = guard_address(result, arguments)
    return None if address is None else signature(result, "p" + arguments)(address)


def guarded(result: str, arguments: str, address: int) -> Callable[..., Any]:
    """The function of a library at *address*, which throws nothing.

    Where it would, it returns a status that says so, or nothing if it returns none: ask
    :func:`require_not_thrown`.

    Args:
        result, arguments: see :mod:`onnxplug_native.interface.table`.
    """
    guard = _guard(result, arguments)
    if guard is None:
        function: Callable[..., Any] = signature(result, arguments)(address)
        return function
    return functools.partial(guard, address)
