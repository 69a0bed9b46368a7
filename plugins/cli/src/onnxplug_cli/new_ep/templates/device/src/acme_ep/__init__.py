"""An execution provider with a device of its own, which is simulated.

The device is a thread for each stream, and numpy arrays that nothing else looks into.
To drive a real one, replace :mod:`.streams` and :mod:`.memory`, which do its work and
keep its arrays, and what :mod:`.operators` computes. :mod:`.provider` queues work and
waits for none, and :mod:`.plugin` is what onnxplug asks for the EP.
"""

__version__ = "0.1.0"
