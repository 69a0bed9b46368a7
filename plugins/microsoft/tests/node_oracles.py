"""One node of ``com.microsoft`` evaluated by its kernel, and by ONNX Runtime."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

import onnxplug_microsoft.kernels
from onnxplug_kernels import Kernel
from onnxplug_microsoft.kernels import KERNELS
from onnxplug_testing.oracles import onnx_runtime

MICROSOFT = "com.microsoft"

for path in Path(onnxplug_microsoft.kernels.__file__).parent.glob("[!_]*.py"):
    import_module(f"onnxplug_microsoft.kernels.{path.stem}")


def find_kernel(op_type: str) -> Kernel:
    (kernel,) = KERNELS.versions(MICROSOFT, op_type)
    return kernel


def run(
    op_type: str,
    *inputs: Any,
    output_count: int = 1,
    **attributes: Any,
) -> Any:
    """What the kernel returns: one value, or a tuple of them."""
    return find_kernel(op_type).bind(np, attributes, output_count=output_count)(*inputs)


def assert_as_onnx_runtime(
    op_type: str,
    *inputs: Any,
    outputs: tuple[int, ...] = (TensorProto.FLOAT,),
    rtol: float = 0,
    atol: float = 0,
    constants: bool = False,
    **attributes: Any,
) -> None:
    """Compare an operator of ``com.microsoft`` with ONNX Runtime; exactly by default.

    With *constants* the inputs are weights, of types that NumPy does not have.
    """
    expected = onnx_runtime(
        op_type,
        *inputs,
        outputs=outputs,
        domain=MICROSOFT,
        version=1,
        constants=constants,
        **attributes,
    )
    found = run(
        op_type,
        *inputs,
        output_count=len(outputs),
        **attributes,
    )
    found = found if isinstance(found, tuple) else (found,)
    for want, have in zip(expected, found, strict=True):
        assert isinstance(have, np.ndarray)
        assert (have.dtype, have.shape) == (want.dtype, want.shape)
        if rtol or atol:
            np.testing.assert_allclose(have, want, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(have, want)
