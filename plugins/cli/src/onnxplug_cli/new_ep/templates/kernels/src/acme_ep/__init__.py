"""An execution provider that runs each node by a kernel on numpy arrays.

:mod:`.operators` has the kernels, :mod:`.provider` chooses among them, and
:mod:`.plugin` is what onnxplug asks for the EP.
"""

__version__ = "0.1.0"
