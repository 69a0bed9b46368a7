"""An execution provider with memory and streams of its own, on OpenCL.

To be read from the device upwards: :mod:`.memory` has its arrays and copies,
:mod:`.streams` its queues of work, :mod:`.context` what all sessions share of it,
:mod:`.operators` and :mod:`.kernels` what it computes, :mod:`.partition` and
:mod:`.provider` how runs queue that, and :mod:`.plugin` what onnxplug asks first.
"""

__version__ = "0.1.0"
