"""Has TensorRT 10 compute with codes of 8 bits, by the ranges of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_tensorrt.calibration import NAME, Ranges
from onnxplug_tensorrt.library import Library

_NUMPY: Final = ("FLOAT", "HALF")
"""Types of constants whose elements TensorRT gives as arrays of NumPy's."""

_WITH_OWN_RANGES: Final = ("QuantizeLinear", "DequantizeLinear")


def refuse_codes(partition: ep.Partition) -> None:
    """See that a partition whose tensors have ranges says nothing of codes itself.

    Raises:
        SessionRefused: it does.
    """
    for node in partition.nodes:
        if node.op_type in _WITH_OWN_RANGES:
            raise ep.SessionRefused(
                f"option {NAME!r} is set, and the model has {node.op_type}, which says "
                "its ranges itself; TensorRT goes by one of both: leave the table out"
            )


def set_ranges(library: Library, network: Any, ranges: Ranges, what: str) -> None:
    """Set the ranges of a network's inputs and values, and of its constants.

    Those of constants that the table does not name are what their elements have, as in
    ONNX Runtime.  What has no range, or that of 0, is not computed with codes.

    Args:
        network: TensorRT's, weakly typed.
        what: it computes, for the log.

    Raises:
        Declined: TensorRT does not take a range.
    """
    known = set()
    for tensor, elements in tensors_of(library.tensorrt, network):
        most = ranges.get(tensor.name)
        if most is not None:
            known.add(tensor.name)
        elif elements is not None and elements.size:
            most = float(np.abs(elements.astype(np.float32)).max())
            # codes have no infinity, as masks do
            most = most if np.isfinite(most) else None
        if most and not tensor.set_dynamic_range(-most, most):
            raise ep.Declined(
                ep.Reason(
                    ep.RefusalCode.OTHER,
                    f"TensorRT does not take the range {most} of {tensor.name!r}: "
                    f"{library.log.taken()}",
                )
            )
    log = library.logger.info if known else library.logger.warning
    unknown = sorted(ranges.keys() - known)
    log(
        "the calibration table has ranges of %d tensors of %s, and %d of others, which "
        "it does not have: %s",
        len(known), what, len(unknown), ", ".join(unknown[:5]),
    )  # fmt: skip


def tensors_of(
    tensorrt: Any, network: Any
) -> Iterator[tuple[Any, np.ndarray[Any, Any] | None]]:
    """A network's tensors, and the elements of those that are constants in float32 or
    float16, which its parser names after those of the model, with ``_output``.

    Args:
        tensorrt: the module.
        network: TensorRT's.
    """
    for index in range(network.num_inputs):
        yield network.get_input(index), None
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        is_constant = layer.type == tensorrt.LayerType.CONSTANT
        for place in range(layer.num_outputs):
            output = layer.get_output(place)
            if output is None:
                continue
            if is_constant and output.dtype.name in _NUMPY:
                # the bindings have no cast; this is how NVIDIA's own tools have it
                layer.__class__ = tensorrt.IConstantLayer
                yield output, layer.weights
            else:
                yield output, None
