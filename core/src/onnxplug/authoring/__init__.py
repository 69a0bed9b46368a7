"""What helps authors of EPs, and the host itself; it promises less than the interface.

:mod:`onnxplug.ep` is what an author must know, and stays as it is from one version of
the SPI to the next.  What is here saves work: arrays and limits of memory, bounds of
what is taken from a model, sizes by name, records, locks that survive a fork, files and
a cache on disk, lists of what an engine was seen to compute, bases of EPs that compute
node by node.  It may change with any version.
"""
