"""Windows' DirectML.dll, d3d12.dll and dxgi.dll, as far as their documentation says.

`Windows.load` gives these libraries, with C functions as attributes, to a program that
loads them.  What they return are COM objects behind real tables of functions, so what
crosses the border are the bytes that Windows would get.  Rules are written from
Microsoft's documentation and layouts from its metadata, neither from the plugin; what
breaks one is noted, and fails the test in the end, also where Windows would go on.

It is stricter than Windows where Windows' answer depends on luck: the GPU uses what was
submitted until the program has seen a fence reached that was signalled behind it, and
what is in an upload buffer must not change from the submission until the GPU reads it.

It knows nothing of textures, shaders, bundles, split and aliasing barriers, hazards
between queues, constant nodes of graphs, and data types of four bits.
"""

from .adapters import ALL_TYPES, GPU, NPU, SOFTWARE, AdapterDescription
from .windows import Counts, Faults, Violation, Windows

__all__ = [
    "ALL_TYPES",
    "GPU",
    "NPU",
    "SOFTWARE",
    "AdapterDescription",
    "Counts",
    "Faults",
    "Violation",
    "Windows",
]
