"""What is known of engines besides what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from onnxplug_testing.measuring.learning import Subject

_OPENVINO: Final = Subject(
    about={},
    lacks={
        **dict.fromkeys(("float64", "uint64"), "for which OpenVINO has 32 bits"),
        "uint32": "for which OpenVINO has 31 bits in many an operator",
    },
    left_out={
        "Attention": "wrong in most of its forms; its function body is right",
        **dict.fromkeys(
            ("If", "Loop", "Scan"),
            "wrong where bodies are in bodies; the host runs them",
        ),
    },
    # it multiplies by the reciprocal, which may round to the next whole number; with a
    # scale made of the very values, as many a dynamic one, that is common
    manual={
        "QuantizeLinear": [("fed:1",)],
        # it gives numbers of matrices of any size, where ONNX has errors
        "AffineGrid": [("dynamic",)],
    },
    int64_bits=32,
    looks_at_indices=False,
    widens=True,
)


def openvino_subject(about: Mapping[str, str], *, refuses: bool = False) -> Subject:
    """OpenVINO on processors, by itself or in a library of ONNX Runtime's."""
    return replace(_OPENVINO, about=about, refuses=refuses)


_OF_FLOAT16: Final = {
    name: [("types=float16",)] for name in ("Gemm", "MatMul", "Softmax")
}
"""In engines of which the suite's attentions are off by a step of float16."""

_WEBGPU: Final = Subject(
    about={},
    left_out={
        **dict.fromkeys(
            ("GRU", "LSTM", "Pow"),
            "wrong with NaN and infinity in every form that was tried so",
        ),
        "DFT": "off by 4e-6 where sums cancel, of which the suite wants zeros",
        "Softplus": "off by a thousandth of what it makes of -10, as Mish shows",
    },
    manual=_OF_FLOAT16,
    looks_at_indices=False,
)


def webgpu_subject(about: Mapping[str, str], *, refuses: bool = False) -> Subject:
    """ONNX Runtime's library for WebGPU."""
    return replace(_WEBGPU, about=about, refuses=refuses)


# it ends the process where a tensor has no elements, if not at once, then in the next
# trial, and a size that is not known tells nothing of that
_GGML: Final = Subject(
    about={},
    lacks={"float64": "for which ggml's library has 32 bits"},
    left_out=dict.fromkeys(
        ("If", "Loop"), "of which a dozen trials tell too little; the host runs them"
    ),
    everywhere=[("dynamic",), ("empty:0",)],
    # of more than two inputs it computes something else
    manual={
        **_OF_FLOAT16,
        **{name: [("inputs=3",), ("inputs=5",)] for name in ("Max", "Min")},
    },
)


def ggml_subject(about: Mapping[str, str], *, refuses: bool = False) -> Subject:
    """ggml on processors, in the library ``onnxruntime-ggml``."""
    return replace(_GGML, about=about, refuses=refuses)
