"""Compares the names of ``onnxplug_onnxruntime`` with those of ONNX Runtime.

``python plugins/onnxruntime/tests/comparison.py`` writes what remains into
docs/how-to/move-from-onnxruntime.md.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import onnxruntime
from onnxruntime.capi import _pybind_state, onnxruntime_inference_collection

import onnxplug_onnxruntime
from onnxplug import errors

PAGE: Final = Path(__file__).parents[3] / "docs/how-to/move-from-onnxruntime.md"

BEGIN: Final = "<!-- written by plugins/onnxruntime/tests/comparison.py -->"
END: Final = "<!-- end -->"

NO_API: Final = {
    *("import_capi_exception", "onnxruntime_validation", "opkernel", "schemadef"),
    *("Callable", "IntEnum", "Sequence"),
    *("GetInitializerLocationFunc", "GetInitializerLocationWrapperFunc"),
    "contextlib",
    "os",
    "platform",
    "warnings",
}
"""What is public there by accident."""

_ADAPTERS: Final = "adapters (LoRA) are not read; merge them into the model"
_PACKAGES: Final = "packages of several models are not read; load the model that fits"
_ARENAS: Final = "there are no arenas: EPs own their memory"
_KERNELS: Final = (
    "its own kernels' list; `onnxplug ops` lists the operators of EPs, "
    "`EpFactory.operators` in Python"
)
_PACKING: Final = (
    "native code of its quantizer of weights to 2, 4 and 8 bits; what it wrote runs"
)
_INTERNAL: Final = "for its own modules in Python; here they are classes of their own"

_BY_REASON: Final = {
    _ADAPTERS: "AdapterFormat LoraAdapter RunOptions.add_active_adapter",
    _PACKAGES: "ModelPackage ModelPackageComponentContext ModelPackageContext "
    "ModelPackageOptions ModelPackageWriteMode",
    _ARENAS: "ArenaExtendStrategy kNextPowerOfTwo kSameAsRequested",
    _KERNELS: "get_all_operator_schema get_all_opkernel_def "
    "get_registered_ep_kernel_defs",
    _PACKING: "pack_fp4_weights_for_cuda_moe_gemm quantize_matmul_2bits "
    "quantize_matmul_4bits quantize_matmul_8bits quantize_matmul_bnb4 "
    "quantize_qdq_matmul_2bits quantize_qdq_matmul_4bits",
    _INTERNAL: "OrtValue(ortvalue) OrtValue(numpy_obj) OrtValue(session) "
    "OrtDevice(c_ort_device) SessionObjectInitializer SparseTensor(sparse_tensor) "
    "get_session_initializer get_vendor_id_for_device_type "
    "make_get_initializer_location_func_wrapper",
    "ONNX has no sparse tensors of blocks": "SparseBlockSparseView",
}

REASONS: Final = {
    name: reason for reason, names in _BY_REASON.items() for name in names.split()
}
"""What is not to be had, and why."""


def names(module: ModuleType) -> set[str]:
    """The public names of *module* that are no modules."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    } - NO_API


def ours(name: str) -> Any:
    """The object of that name here; ``None`` if there is none."""
    return getattr(onnxplug_onnxruntime, name, None)


def members(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def attributes_of(kind: Any) -> set[str]:
    """The members of a class here, with those that only its objects have."""
    found = members(kind) if inspect.isclass(kind) else set()
    if inspect.isclass(kind) and issubclass(kind, enum.Enum):
        return found | {"name", "value", *kind.__members__}
    for each in inspect.getmro(kind) if inspect.isclass(kind) else ():
        if each.__module__.startswith("onnxplug"):
            source = inspect.getsource(each)
            found |= {*re.findall(r"self\.(\w+)(?:: .+)? = ", source)}
    if issubclass(kind, onnxplug_onnxruntime.SessionOptions):
        found |= vars(kind()).keys()
    return found


def missing() -> Iterator[str]:
    """Names, ``Class.member`` and ``Class.method(argument)`` that are not here."""
    modules = (onnxruntime, _pybind_state, onnxruntime_inference_collection)
    for name in sorted(set().union(*map(names, modules))):
        theirs = next(getattr(each, name) for each in modules if hasattr(each, name))
        found = getattr(errors, name, None) or ours(name)
        if found is None:
            yield name
        elif inspect.isclass(theirs) and not issubclass(theirs, Exception):
            yield from missing_of(name, theirs, found)


def missing_of(name: str, theirs: type, found: Any) -> Iterator[str]:
    here = attributes_of(found)
    for member in sorted(members(theirs)):
        if member not in here:
            yield f"{name}.{member}"
            continue
        for argument in missing_arguments(
            getattr(theirs, member), getattr(found, member, None)
        ):
            yield f"{name}.{member}({argument})"
    for argument in missing_arguments(theirs.__init__, found.__init__):
        yield f"{name}({argument})"


def missing_arguments(theirs: Any, found: Any) -> list[str]:
    if not inspect.isroutine(theirs) or not callable(found):
        return []
    try:
        expected = inspect.signature(theirs).parameters.values()
        known = inspect.signature(found).parameters
    except ValueError:  # of native code
        return []
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return []
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        each.name
        for each in expected
        if each.kind in by_name and each.name != "self" and each.name not in known
    ]


def written() -> str:
    """The table of the page."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in REASONS.items():
        by_reason.setdefault(reason, []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {reason} |" for reason, names in by_reason.items()]
    return "\n".join(["| ONNX Runtime | why not |", "| --- | --- |", *rows])


def page() -> str:
    """The page with the table as it should be."""
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{written()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE}")
