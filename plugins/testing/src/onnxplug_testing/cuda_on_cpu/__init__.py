"""Kernels in CUDA C++ run on the processor, without a GPU, and are watched.

Each lane of a block is a fiber; warps and lanes take turns in random order.  These are
errors, with the line of the kernel: memory touched out of its arrays, out of views, or
without alignment; what is only read written to; shared memory read before it is
written; two lanes that touch the same byte, one to write, without a barrier between
them, within a block or of two blocks; lanes that end or wait elsewhere while others
wait at a barrier or a shuffle; a shuffle from a lane that is not there; what C++ does
not define.

It needs g++, on Linux.  What there is of CUDA is said in ``cuda.h``; functions of the
host's libm compute what CUDA's do, to other last bits.  It has been run on x86-64; on
other processors lanes change by ``swapcontext``, which x86-64 was made to try, too.
"""

from onnxplug_testing.cuda_on_cpu.compilation import CompilerMissing, find_compiler
from onnxplug_testing.cuda_on_cpu.processor import (
    Kernel,
    KernelFault,
    Memory,
    Processor,
)

__all__ = [
    "CompilerMissing",
    "Kernel",
    "KernelFault",
    "Memory",
    "Processor",
    "find_compiler",
]
