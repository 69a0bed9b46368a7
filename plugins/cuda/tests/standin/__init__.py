"""A stand-in for CuPy, which computes on the processor and watches what is done to it.

It has what onnxplug-cuda uses of ``cupy.cuda``, and does in a thread per stream, late,
what is queued there.  Kernels are compiled for the processor
(:mod:`onnxplug_testing.cuda_on_cpu`).  Memory of the device is the host's, which nobody
but kernels and copies may touch.

*Violations* are noted, and looked at when a test ends: a copy or a kernel that reads
or writes memory which other work may be writing, as nothing orders the two (by vector
clocks over streams, events and what the host waited for); memory used after it was
freed, or freed while work that is queued uses it; memory of the host that changes
while it is copied; copies that the host would have to wait for; kernels that run after
their module was unloaded.
"""

from .machine import Machine
from .module import CuPy

__all__ = ["CuPy", "Machine"]
