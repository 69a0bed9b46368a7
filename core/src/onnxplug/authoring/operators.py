"""Facts of ONNX's operators, one row for each, whoever computes them.

They are those of the operators' schemas in ONNX 1.23, all versions, for whoever cannot
wait for onnx to be imported; and traits, which no schema states.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from onnxplug.authoring.record import Record

LATEST: Final = 1 << 31
"""In place of the last opset of what holds still."""

FLAG: Final = "b"
"""The letter of integers that are 0 or 1."""


class Attributes(Record):
    """What is known of an operator's attributes.

    Attributes:
        types: the letters of the types that each may have, in one version or another.
        needed: those that must be set, with the first and the last opset in which.
    """

    types: Mapping[str, str]
    needed: tuple[tuple[str, int, int], ...]


@functools.cache
def attributes_of(domain: str, op_type: str) -> Attributes | None:
    """The attributes of an operator of ONNX; ``None`` if it has no row."""
    text = _rows(domain).get(op_type)
    if text is None:
        return None
    types: dict[str, str] = {}
    needed: list[tuple[str, int, int]] = []
    for word in text.split():
        name, is_attribute, rest = word.partition(":")
        if not is_attribute:
            continue
        types[name], is_needed, when = rest.partition("!")
        if is_needed:
            since, _, until = when.partition("-")
            needed.append((name, int(since or 1), int(until or LATEST)))
    return Attributes(types, tuple(needed))


@functools.cache
def having(trait: str, domain: str = "") -> frozenset[str]:
    """The operators of a domain of ONNX's that have *trait*:

    - ``unary``: each element of the result follows from that of the first input; the
      other inputs are the same for all
    - ``broadcast``: elements follow from those at their place in all inputs, which are
      broadcast; ``comparison``: likewise, and are truths
    - ``reduction``: axes are reduced, of an attribute or an input ``axes``
    - ``softmax``: along one axis; before opset 13 along all from it on
    - ``reshapes``: the same elements in the same order, in another shape
    - ``any_number``: of inputs, and a single one may be the result
    - ``shape_only``: of elements nothing is read
    - ``intensive``: takes many times as long as reading each element once
    - ``random``: results of the same inputs may differ
    - ``control_flow``: has bodies, which the host can run
    - ``dequantize``: floats of integers, a scale and a zero point
    - ``container``: gives a sequence, an optional or a map, which is no tensor
    - ``text``: gives texts hardly larger than those that it reads

    Raises:
        KeyError: there is no such trait in the domain.
    """
    return _traits(domain)[trait]


def since_version(domain: str, op_type: str, opset: int) -> int | None:
    """The opset in which an operator of ONNX last changed, up to *opset*; 0 if it has
    none such by then.

    Returns:
        ``None`` where only onnx knows.
    """
    if domain not in _CHANGED:
        return None
    latest, changed = _CHANGED[domain]
    if not 0 < opset <= latest:
        return None
    if op_type not in _rows(domain):
        return 0
    opsets = changed.get(op_type, (1,))
    return max((each for each in opsets if each <= opset), default=0)


@functools.cache
def flags() -> frozenset[str]:
    """The attributes that are 0 or 1 in each operator of ONNX that has them.

    Of other values engines make either: ONNX's shape inference and ONNX Runtime take a
    *keepdims* of 2 for 0, where ONNX's reference implementation takes it for 1.
    """
    return frozenset(
        word.partition(":")[0]
        for domain in _TABLE
        for text in _rows(domain).values()
        for word in text.split()
        if word.endswith(f":{FLAG}")
    )


@functools.cache
def _traits(domain: str) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for op_type, text in _rows(domain).items():
        for word in text.split():
            if ":" in word:
                break  # traits come first
            found.setdefault(word, set()).add(op_type)
    return {trait: frozenset(operators) for trait, operators in found.items()}


@functools.cache
def _rows(domain: str) -> Mapping[str, str]:
    text = _TABLE.get(domain, "").replace("\n  ", " ")
    lines = (line.partition(" ") for line in text.splitlines())
    return {op_type: rest for op_type, _, rest in lines}


_TABLE: Final[Mapping[str, str]] = {
    "": """\
Abs unary consumed_inputs:I
Acos unary
Acosh unary
Add broadcast axis:i broadcast:b consumed_inputs:I
AffineGrid align_corners:b
And broadcast axis:i broadcast:b
ArgMax axis:i keepdims:b select_last_index:b
ArgMin axis:i keepdims:b select_last_index:b
Asin unary
Asinh unary
Atan unary
Atanh unary
Attention intensive is_causal:b kv_num_heads:i left_window_size:i q_num_heads:i
  qk_matmul_output_mode:i right_window_size:i scale:f softcap:f softmax_precision:i
AveragePool auto_pad:s ceil_mode:b count_include_pad:b dilations:I kernel_shape:I!
  pads:I strides:I
BatchNormalization consumed_inputs:I epsilon:f is_test:b momentum:f spatial:b
  training_mode:b
Bernoulli random dtype:i seed:f
BitCast to:i!
BitShift broadcast direction:s!
BitwiseAnd broadcast
BitwiseNot unary
BitwiseOr broadcast
BitwiseXor broadcast
BlackmanWindow output_datatype:i periodic:b
Cast unary round_mode:s saturate:b to:si!
CastLike round_mode:s saturate:b
CausalConvWithState activation:s
Ceil unary consumed_inputs:I
Celu unary alpha:f
CenterCropPad axes:I
Clip unary consumed_inputs:I max:f min:f
Col2Im dilations:I pads:I strides:I
Compress axis:i
Concat any_number axis:i!4
ConcatFromSequence axis:i! new_axis:b
Constant sparse_value:x value:t!-10 value_float:f value_floats:F value_int:i
  value_ints:I value_string:s value_strings:S
ConstantOfShape value:t
Conv intensive auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I
ConvInteger auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I
ConvTranspose intensive auto_pad:s dilations:I group:i kernel_shape:I output_padding:I
  output_shape:I pads:I strides:I
Cos unary
Cosh unary
CumProd exclusive:b reverse:b
CumSum exclusive:b reverse:b
DFT axis:i inverse:b onesided:b
DeformConv dilations:I group:i kernel_shape:I offset_group:i pads:I strides:I
DepthToSpace blocksize:i! mode:s
DequantizeLinear dequantize axis:i block_size:i output_dtype:i
Div broadcast axis:i broadcast:b consumed_inputs:I
Dropout consumed_inputs:I is_test:b ratio:f seed:i
Einsum any_number intensive equation:s!
Elu unary alpha:f consumed_inputs:I
Equal broadcast comparison axis:i broadcast:b
Erf unary
Exp unary consumed_inputs:I
EyeLike dtype:i k:i
Flatten reshapes axis:i
Floor unary consumed_inputs:I
GRU intensive activation_alpha:F activation_beta:F activations:S clip:f direction:s
  hidden_size:i layout:b linear_before_reset:b output_sequence:b
Gather axis:i
GatherElements axis:i
GatherND batch_dims:i
Gelu unary approximate:s
Gemm intensive alpha:f beta:f broadcast:b transA:b transB:b
GlobalLpPool p:fi
Greater broadcast comparison axis:i broadcast:b
GreaterOrEqual broadcast comparison
GridSample align_corners:b mode:s padding_mode:s
GroupNormalization epsilon:f num_groups:i! stash_type:i
HammingWindow output_datatype:i periodic:b
HannWindow output_datatype:i periodic:b
HardSigmoid unary alpha:f beta:f consumed_inputs:I
HardSwish unary
Hardmax softmax axis:i
Identity unary
If control_flow else_branch:g! then_branch:g!
ImageDecoder pixel_format:s
InstanceNormalization consumed_inputs:I epsilon:f
IsInf unary detect_negative:b detect_positive:b
IsNaN unary
LRN alpha:f beta:f bias:f size:i!
LSTM intensive activation_alpha:F activation_beta:F activations:S clip:f direction:s
  hidden_size:i input_forget:b layout:b output_sequence:b
LayerNormalization axis:i epsilon:f stash_type:i
LeakyRelu unary alpha:f consumed_inputs:I
Less broadcast comparison axis:i broadcast:b
LessOrEqual broadcast comparison
LinearAttention chunk_size:i kv_num_heads:i! q_num_heads:i! scale:f update_rule:s
Log unary consumed_inputs:I
LogSoftmax softmax axis:i
Loop control_flow body:g!
LpNormalization axis:i p:i
LpPool auto_pad:s ceil_mode:b dilations:I kernel_shape:I!2 p:fi pads:I strides:I
MatMul intensive
Max broadcast any_number consumed_inputs:I
MaxPool auto_pad:s ceil_mode:b dilations:I kernel_shape:I! pads:I storage_order:b
  strides:I
MaxRoiPool pooled_shape:I! spatial_scale:f
MaxUnpool kernel_shape:I! pads:I strides:I
Mean broadcast any_number consumed_inputs:I
MeanVarianceNormalization axes:I
MelWeightMatrix output_datatype:i
Min broadcast any_number consumed_inputs:I
Mish unary
Mod broadcast fmod:b
Mul broadcast axis:i broadcast:b consumed_inputs:I
Multinomial random dtype:i sample_size:i seed:f
Neg unary consumed_inputs:I
NegativeLogLikelihoodLoss ignore_index:i reduction:s
NonMaxSuppression center_point_box:b
Not unary
OneHot axis:i
Optional container type:y
Or broadcast axis:i broadcast:b
PRelu broadcast consumed_inputs:I
Pad mode:s paddings:I pads:I!2-10 value:f
Pow broadcast axis:i broadcast:b
QLinearConv auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I
QuantizeLinear axis:i block_size:i output_dtype:i precision:i saturate:b
RMSNormalization axis:i epsilon:f stash_type:i
RNN intensive activation_alpha:F activation_beta:F activations:S clip:f direction:s
  hidden_size:i layout:b output_sequence:b
RandomNormal random dtype:i mean:f scale:f seed:f shape:I!
RandomNormalLike random dtype:i mean:f scale:f seed:f
RandomUniform random dtype:i high:f low:f seed:f shape:I!
RandomUniformLike random dtype:i high:f low:f seed:f
Range stash_type:i
Reciprocal unary consumed_inputs:I
ReduceL1 reduction axes:I keepdims:b noop_with_empty_axes:b
ReduceL2 reduction axes:I keepdims:b noop_with_empty_axes:b
ReduceLogSum reduction axes:I keepdims:b noop_with_empty_axes:b
ReduceLogSumExp reduction axes:I keepdims:b noop_with_empty_axes:b
ReduceMax reduction axes:I keepdims:b noop_with_empty_axes:b
ReduceMean reduction axes:I keepdims:b noop_with_empty_axes:b
ReduceMin reduction axes:I keepdims:b noop_with_empty_axes:b
ReduceProd reduction axes:I keepdims:b noop_with_empty_axes:b
ReduceSum reduction axes:I keepdims:b noop_with_empty_axes:b
ReduceSumSquare reduction axes:I keepdims:b noop_with_empty_axes:b
RegexFullMatch text pattern:s
Relu unary consumed_inputs:I
Reshape reshapes allowzero:b consumed_inputs:I shape:I
Resize antialias:b axes:I coordinate_transformation_mode:s cubic_coeff_a:f
  exclude_outside:b extrapolation_value:f keep_aspect_ratio_policy:s mode:s
  nearest_mode:s
ReverseSequence batch_axis:i time_axis:i
RoiAlign coordinate_transformation_mode:s mode:s output_height:i output_width:i
  sampling_ratio:i spatial_scale:f
RotaryEmbedding interleaved:b num_heads:i rotary_embedding_dim:i
Round unary
STFT onesided:b
Scan control_flow body:g! directions:I num_scan_inputs:i! scan_input_axes:I
  scan_input_directions:I scan_output_axes:I scan_output_directions:I
Scatter axis:i
ScatterElements axis:i reduction:s
ScatterND reduction:s
Selu unary alpha:f consumed_inputs:I gamma:f
SequenceConstruct container
SequenceEmpty dtype:i
SequenceMap body:g!
Shape shape_only end:i start:i
Shrink unary bias:f lambd:f
Sigmoid unary consumed_inputs:I
Sign unary
Sin unary
Sinh unary
Size shape_only
Slice axes:I ends:I!-9 starts:I!-9
Softmax softmax axis:i
SoftmaxCrossEntropyLoss ignore_index:i reduction:s
Softplus unary
Softsign unary
SpaceToDepth blocksize:i! mode:s
Split axis:i num_outputs:i split:I
SplitToSequence container axis:i keepdims:b
Sqrt unary consumed_inputs:I
Squeeze reshapes axes:I
StringConcat text
StringNormalizer text case_change_action:s is_case_sensitive:b locale:s stopwords:S
StringSplit text delimiter:s maxsplit:i
Sub broadcast axis:i broadcast:b consumed_inputs:I
Sum broadcast any_number consumed_inputs:I
SwiGLU alpha:f
Swish unary alpha:f
Tan unary
Tanh unary consumed_inputs:I
TensorScatter axis:i mode:s
TfIdfVectorizer max_gram_length:i! max_skip_count:i! min_gram_length:i! mode:s!
  ngram_counts:I! ngram_indexes:I! pool_int64s:I pool_strings:S weights:F
ThresholdedRelu unary alpha:f
TopK axis:i k:i!-9 largest:b sorted:b
Transpose perm:I
Trilu upper:b
Unique axis:i sorted:b
Unsqueeze reshapes axes:I!-12
Upsample height_scale:f!-6 mode:s scales:F!7-8 width_scale:f!-6
Where broadcast
Xor broadcast axis:i broadcast:b
""",
    "ai.onnx.ml": """\
ArrayFeatureExtractor
Binarizer threshold:f
CastMap cast_to:s map_form:s max_map:i
CategoryMapper cats_int64s:I cats_strings:S default_int64:i default_string:s
DictVectorizer int64_vocabulary:I string_vocabulary:S
FeatureVectorizer inputdimensions:I
Imputer imputed_value_floats:F imputed_value_int64s:I replaced_value_float:f
  replaced_value_int64:i
LabelEncoder classes_strings:S default_float:f default_int64:i default_string:s
  default_tensor:t keys_floats:F keys_int64s:I keys_strings:S keys_tensor:t
  values_floats:F values_int64s:I values_strings:S values_tensor:t
LinearClassifier classlabels_ints:I classlabels_strings:S coefficients:F! intercepts:F
  multi_class:i post_transform:s
LinearRegressor coefficients:F intercepts:F post_transform:s targets:i
Normalizer norm:s
OneHotEncoder cats_int64s:I cats_strings:S zeros:b
SVMClassifier classlabels_ints:I classlabels_strings:S coefficients:F kernel_params:F
  kernel_type:s post_transform:s prob_a:F prob_b:F rho:F support_vectors:F
  vectors_per_class:I
SVMRegressor coefficients:F kernel_params:F kernel_type:s n_supports:i one_class:b
  post_transform:s rho:F support_vectors:F
Scaler offset:F scale:F
TreeEnsemble aggregate_function:i leaf_targetids:I! leaf_weights:t! membership_values:t
  n_targets:i nodes_falseleafs:I! nodes_falsenodeids:I! nodes_featureids:I!
  nodes_hitrates:t nodes_missing_value_tracks_true:I nodes_modes:t! nodes_splits:t!
  nodes_trueleafs:I! nodes_truenodeids:I! post_transform:i tree_roots:I!
TreeEnsembleClassifier base_values:F base_values_as_tensor:t class_ids:I class_nodeids:I
  class_treeids:I class_weights:F class_weights_as_tensor:t classlabels_int64s:I
  classlabels_strings:S nodes_falsenodeids:I nodes_featureids:I nodes_hitrates:F
  nodes_hitrates_as_tensor:t nodes_missing_value_tracks_true:I nodes_modes:S
  nodes_nodeids:I nodes_treeids:I nodes_truenodeids:I nodes_values:F
  nodes_values_as_tensor:t post_transform:s
TreeEnsembleRegressor aggregate_function:s base_values:F base_values_as_tensor:t
  n_targets:i nodes_falsenodeids:I nodes_featureids:I nodes_hitrates:F
  nodes_hitrates_as_tensor:t nodes_missing_value_tracks_true:I nodes_modes:S
  nodes_nodeids:I nodes_treeids:I nodes_truenodeids:I nodes_values:F
  nodes_values_as_tensor:t post_transform:s target_ids:I target_nodeids:I
  target_treeids:I target_weights:F target_weights_as_tensor:t
ZipMap container classlabels_int64s:I classlabels_strings:S
""",
    "ai.onnx.preview": """\
FlexAttention prob_mod:g scale:f score_mod:g softmax_precision:i
""",
    "ai.onnx.preview.training": """\
Adagrad decay_factor:f epsilon:f norm_coefficient:f
Adam alpha:f beta:f epsilon:f norm_coefficient:f norm_coefficient_post:f
Gradient xs:S! y:s! zs:S
Momentum alpha:f! beta:f! mode:s! norm_coefficient:f!
""",
}
"""The operators of each domain, but in the first those alone that have traits or
attributes: the traits; and the attributes, with the letters of their types, which are
those of ``AttributeType``, in capitals of lists: f(loat), i(nt), b(oth 0 and 1 alone),
s(tring), t(ensor), g(raph), (sparse tensor) x, t(ype) y.  ``!``: it is needed, in the
opsets from the first to the last that follow, or in all.
"""

_CHANGED: Final[Mapping[str, tuple[int, Mapping[str, tuple[int, ...]]]]] = {
    "ai.onnx.ml": (
        5,
        {
            "LabelEncoder": (1, 2, 4),
            "TreeEnsemble": (5,),
            "TreeEnsembleClassifier": (1, 3, 5),
            "TreeEnsembleRegressor": (1, 3, 5),
        },
    ),
}
"""Of domains of which the host asks that, whatever the model: the last opset that is
known of, and those in which operators came or changed, where that is not the first."""
