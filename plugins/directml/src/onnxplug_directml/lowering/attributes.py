"""Which kind of value each attribute has, by ONNX's and ONNX Runtime's schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

_TABLE: Final = """
INT: align_corners antialias axis batch_axis batch_dims bits block_size blocksize
  broadcast causal channels_last count_include_pad detect_negative detect_positive
  do_rotary exclude_outside exclusive fmod group groups
  hidden_size input_forget interleaved
  is_causal is_test k K keepdims kv_cache_bit_width kv_num_heads largest layout
  left_window_size linear_before_reset local_window_size N noop_with_empty_axes
  num_groups num_heads num_outputs p past_present_share_buffer q_num_heads
  qk_matmul_output_mode qk_output reverse right_window_size rotary_embedding_dim
  rotary_interleaved sampling_ratio saturate select_last_index size
  sliding_window_cache smooth_softmax softmax_precision spatial stash_type
  storage_order time_axis training_mode transA transB transBatchA transBatchB
  unidirectional upper weight_prepacked GroupNorm.activation
FLOAT: FusedGemm.activation_alpha alpha beta bias clip cubic_coeff_a epsilon
  extrapolation_value gamma height_scale lambd mask_filter_value max min p scale
  softcap spatial_scale value width_scale
STRING: activation approximate auto_pad coordinate_transformation_mode direction
  equation k_quant_type keep_aspect_ratio_policy mode nearest_mode padding_mode
  reduction v_quant_type
INTS: axes dilations ends kernel_shape output_padding output_shape paddings pads perm
  pooled_shape qkv_hidden_sizes split starts strides
FLOATS: activation_alpha activation_beta activation_params scales
STRINGS: activations
TENSOR: ConstantOfShape.value
"""


_NUMBERS: Final[Mapping[str, tuple[type, ...]]] = {
    "INT": (int,),
    "FLOAT": (float, np.floating),
    "STRING": (str,),
    "TENSOR": (np.ndarray, np.generic),
}
"""The types that single values have in Python."""


def _by_name() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    kind = ""
    for word in _TABLE.split():
        if word.endswith(":"):
            kind = word[:-1]
        else:
            found[word] = (*found.get(word, ()), kind)
    return found


KINDS: Final[Mapping[str, tuple[str, ...]]] = _by_name()
"""By name, or by operator and name where that has another kind there: one kind, or
those that versions of operators have."""


def kinds_of(op_type: str, name: str) -> tuple[str, ...]:
    """The kinds that an attribute of an operator may have."""
    return KINDS.get(f"{op_type}.{name}") or KINDS[name]


def is_of(value: Any, kind: str) -> bool:
    """Whether an attribute's value is of a kind, as ``AttributeProto`` names it."""
    single = _NUMBERS.get(kind)
    if single is not None:
        return isinstance(value, single)
    each = _NUMBERS[kind.removesuffix("S")]
    return isinstance(value, tuple | list) and all(isinstance(x, each) for x in value)
