"""COM objects of Windows: their methods by Microsoft's names, who owns them, and what
their errors mean.

An object is a Python object with one reference of COM's, which its owner gives back by
``close`` or at the end of a ``with``; none is given back by garbage collection, which
knows nothing of what the device still uses.
"""
