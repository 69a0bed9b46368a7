"""Shapes as expressions of named sizes, and small integer tensors of such sizes.

Exporters compute shapes in the graph: the target of a Reshape is a Concat of what
Gather takes out of a Shape.  Such tensors are followed element by element, so that a
value's sizes are known as expressions, like ``past + 1``, before any size is.

Source of the method: partial data propagation of the ONNX specification
(ShapeInference.md), with expressions where that has names.
"""
