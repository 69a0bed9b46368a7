"""Measures which nodes an engine computes as ONNX defines them, and learns from it.

:mod:`.variations` makes models of one node from the backend suite's cases,
:mod:`.trials` tries them in processes of their own, and :mod:`.learning` tells by
which features of nodes what is right differs from what is not
(:mod:`onnxplug.authoring.features`).
"""
