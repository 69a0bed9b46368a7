"""A stand-in for TensorRT, which computes by the CPU EP and watches how it is called.

It has what onnxplug-tensorrt uses of the module ``tensorrt``, with its names, arguments
and rules: inputs have shapes and addresses before anything runs; what is queued is done
late, on the stand-in for CuPy's streams, in memory that nobody else may touch; engines
take shapes within their profiles, on the GPU and by the version that built them; an
execution context computes in memory of its own, one run after the other; sizes that
depend on elements are told by an output allocator, in a call that waits.

What nobody may do is noted as *violations* of the stand-in for CuPy.
"""

from .libcuda import LibCuda
from .module import TensorRT

__all__ = ["LibCuda", "TensorRT"]
