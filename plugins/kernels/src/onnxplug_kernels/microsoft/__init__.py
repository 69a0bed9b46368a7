"""Operators of ``com.microsoft``, the domain of ONNX Runtime's own operators.

Source: ``docs/ContribOperators.md`` of ONNX Runtime; where it leaves something open,
what ONNX Runtime computes on the CPU.  Operators that are compositions of ONNX's have
no kernels: they are functions.
"""
