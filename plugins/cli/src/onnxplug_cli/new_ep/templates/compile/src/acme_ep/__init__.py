"""An execution provider that compiles whole partitions into functions.

:mod:`.operators` says which nodes it takes and how one is written, :mod:`.program`
makes a function of many, :mod:`.provider` puts this behind the interface of EPs, and
:mod:`.plugin` is what onnxplug asks for the EP.
"""

__version__ = "0.1.0"
