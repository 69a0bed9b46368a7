"""Rewrites a float32 model so that it computes in float16 or bfloat16.

TensorRT 11 computes in the types that a network states: its flags that let the builder
choose float16 or bfloat16 are gone.  So the types are chosen here, in the ONNX model:

1. ``signatures`` says which formal parameters of an operator admit the element type;
2. ``hazards`` follows what its range cannot hold: masks of large negative numbers,
   epsilons, counts of elements;
3. ``norms`` finds normalisations that are written as several nodes;
4. ``choice`` decides for each node, with a reason for each that stays float32;
5. ``rewriting`` writes the model, with as few casts as the choice needs.

Inputs and outputs keep their types.
"""

from onnxplug_tensorrt.precision.choice import Exclusions
from onnxplug_tensorrt.precision.rewriting import NarrowedModel, narrow_model

__all__ = ["Exclusions", "NarrowedModel", "narrow_model"]
