"""Whether nodes have the attributes that their operators need, of the right types.

Whoever reads an attribute later may trust its type, and that one that is needed is
there.  Attributes that ONNX does not define are nobody's business here.
Source: the operators' schemas in ONNX 1.23, all versions.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from onnxplug.authoring.nodes import describe
from onnxplug.authoring.record import Record
from onnxplug.errors import InvalidModel
from onnxplug.graph import AttributeType, Graph, Node
from onnxplug.graph.scopes import all_graphs

_TYPES: Final = {
    "f": AttributeType.FLOAT,
    "i": AttributeType.INT,
    "s": AttributeType.STRING,
    "t": AttributeType.TENSOR,
    "g": AttributeType.GRAPH,
    "x": AttributeType.SPARSE_TENSOR,
    "y": AttributeType.TYPE_PROTO,
    "F": AttributeType.FLOATS,
    "I": AttributeType.INTS,
    "S": AttributeType.STRINGS,
}

_LATEST: Final = 1 << 31


class _Definition(Record):
    """What is known of an operator's attributes.

    Attributes:
        types: those that each may have, in one version or another.
        needed: those that must be set, with the first and the last opset in which.
    """

    types: Mapping[str, tuple[AttributeType, ...]]
    needed: tuple[tuple[str, int, int], ...]


def check_attributes(graph: Graph) -> None:
    """Check the attributes of the nodes of *graph* and of bodies within.

    Raises:
        InvalidModel: an attribute is of another type than its operator's, is missing
            though the operator needs it, or refers to a function's attribute outside of
            any function.
    """
    for each in all_graphs(graph):
        for node in each.nodes:
            definition = _definition(node.domain, node.op_type)
            if definition is not None and (node.typed_attributes or definition.needed):
                _check(each, node, definition)


def _check(graph: Graph, node: Node, definition: _Definition) -> None:
    for name, attribute in node.typed_attributes.items():
        expected = definition.types.get(name)
        if expected is not None and attribute.type not in expected:
            raise InvalidModel(
                f"{describe(node)} has the attribute {name!r} of type "
                f"{attribute.type.name}; expected {_in_words(expected)}"
            )
        if attribute.reference:
            raise InvalidModel(
                f"{describe(node)} has the attribute {name!r} that refers to "
                f"{attribute.reference!r} of a function, but is in no function"
            )
    for name, since, until in definition.needed:
        if name in node.typed_attributes:
            continue
        if since <= (graph.opset(node.domain) or _LATEST) <= until:
            raise InvalidModel(
                f"{describe(node)} lacks the attribute {name!r} of type "
                f"{_in_words(definition.types[name])}, which the operator needs"
            )


def _in_words(types: tuple[AttributeType, ...]) -> str:
    return " or ".join(type.name for type in types)


@functools.cache
def _definition(domain: str, op_type: str) -> _Definition | None:
    text = _lines(domain).get(op_type)
    if text is None:
        return None
    types: dict[str, tuple[AttributeType, ...]] = {}
    needed: list[tuple[str, int, int]] = []
    for word in text.split():
        name, _, rest = word.partition(":")
        letters, is_needed, when = rest.partition("!")
        types[name] = tuple(map(_TYPES.__getitem__, letters))
        if is_needed:
            since, _, until = when.partition("-")
            needed.append((name, int(since or 1), int(until or _LATEST)))
    return _Definition(types, tuple(needed))


@functools.cache
def _lines(domain: str) -> dict[str, str]:
    text = _TABLE.get(domain, "").replace("\n  ", " ")
    lines = (line.partition(" ") for line in text.splitlines())
    return {op_type: rest for op_type, _, rest in lines}


_TABLE: Final[Mapping[str, str]] = {
    "": """\
Abs consumed_inputs:I
Add axis:i broadcast:i consumed_inputs:I
AffineGrid align_corners:i
And axis:i broadcast:i
ArgMax axis:i keepdims:i select_last_index:i
ArgMin axis:i keepdims:i select_last_index:i
Attention is_causal:i kv_num_heads:i left_window_size:i q_num_heads:i
  qk_matmul_output_mode:i right_window_size:i scale:f softcap:f softmax_precision:i
AveragePool auto_pad:s ceil_mode:i count_include_pad:i dilations:I kernel_shape:I!
  pads:I strides:I
BatchNormalization consumed_inputs:I epsilon:f is_test:i momentum:f spatial:i
  training_mode:i
Bernoulli dtype:i seed:f
BitCast to:i!
BitShift direction:s!
BlackmanWindow output_datatype:i periodic:i
Cast round_mode:s saturate:i to:si!
CastLike round_mode:s saturate:i
CausalConvWithState activation:s
Ceil consumed_inputs:I
Celu alpha:f
CenterCropPad axes:I
Clip consumed_inputs:I max:f min:f
Col2Im dilations:I pads:I strides:I
Compress axis:i
Concat axis:i!4
ConcatFromSequence axis:i! new_axis:i
Constant sparse_value:x value:t!-10 value_float:f value_floats:F value_int:i
  value_ints:I value_string:s value_strings:S
ConstantOfShape value:t
Conv auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I
ConvInteger auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I
ConvTranspose auto_pad:s dilations:I group:i kernel_shape:I output_padding:I
  output_shape:I pads:I strides:I
CumProd exclusive:i reverse:i
CumSum exclusive:i reverse:i
DFT axis:i inverse:i onesided:i
DeformConv dilations:I group:i kernel_shape:I offset_group:i pads:I strides:I
DepthToSpace blocksize:i! mode:s
DequantizeLinear axis:i block_size:i output_dtype:i
Div axis:i broadcast:i consumed_inputs:I
Dropout consumed_inputs:I is_test:i ratio:f seed:i
Einsum equation:s!
Elu alpha:f consumed_inputs:I
Equal axis:i broadcast:i
Exp consumed_inputs:I
EyeLike dtype:i k:i
Flatten axis:i
Floor consumed_inputs:I
GRU activation_alpha:F activation_beta:F activations:S clip:f direction:s
  hidden_size:i layout:i linear_before_reset:i output_sequence:i
Gather axis:i
GatherElements axis:i
GatherND batch_dims:i
Gelu approximate:s
Gemm alpha:f beta:f broadcast:i transA:i transB:i
GlobalLpPool p:fi
Greater axis:i broadcast:i
GridSample align_corners:i mode:s padding_mode:s
GroupNormalization epsilon:f num_groups:i! stash_type:i
HammingWindow output_datatype:i periodic:i
HannWindow output_datatype:i periodic:i
HardSigmoid alpha:f beta:f consumed_inputs:I
Hardmax axis:i
If else_branch:g! then_branch:g!
ImageDecoder pixel_format:s
InstanceNormalization consumed_inputs:I epsilon:f
IsInf detect_negative:i detect_positive:i
LRN alpha:f beta:f bias:f size:i!
LSTM activation_alpha:F activation_beta:F activations:S clip:f direction:s
  hidden_size:i input_forget:i layout:i output_sequence:i
LayerNormalization axis:i epsilon:f stash_type:i
LeakyRelu alpha:f consumed_inputs:I
Less axis:i broadcast:i
LinearAttention chunk_size:i kv_num_heads:i! q_num_heads:i! scale:f update_rule:s
Log consumed_inputs:I
LogSoftmax axis:i
Loop body:g!
LpNormalization axis:i p:i
LpPool auto_pad:s ceil_mode:i dilations:I kernel_shape:I!2 p:fi pads:I strides:I
Max consumed_inputs:I
MaxPool auto_pad:s ceil_mode:i dilations:I kernel_shape:I! pads:I storage_order:i
  strides:I
MaxRoiPool pooled_shape:I! spatial_scale:f
MaxUnpool kernel_shape:I! pads:I strides:I
Mean consumed_inputs:I
MeanVarianceNormalization axes:I
MelWeightMatrix output_datatype:i
Min consumed_inputs:I
Mod fmod:i
Mul axis:i broadcast:i consumed_inputs:I
Multinomial dtype:i sample_size:i seed:f
Neg consumed_inputs:I
NegativeLogLikelihoodLoss ignore_index:i reduction:s
NonMaxSuppression center_point_box:i
OneHot axis:i
Optional type:y
Or axis:i broadcast:i
PRelu consumed_inputs:I
Pad mode:s paddings:I pads:I!2-10 value:f
Pow axis:i broadcast:i
QLinearConv auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I
QuantizeLinear axis:i block_size:i output_dtype:i precision:i saturate:i
RMSNormalization axis:i epsilon:f stash_type:i
RNN activation_alpha:F activation_beta:F activations:S clip:f direction:s
  hidden_size:i layout:i output_sequence:i
RandomNormal dtype:i mean:f scale:f seed:f shape:I!
RandomNormalLike dtype:i mean:f scale:f seed:f
RandomUniform dtype:i high:f low:f seed:f shape:I!
RandomUniformLike dtype:i high:f low:f seed:f
Range stash_type:i
Reciprocal consumed_inputs:I
ReduceL1 axes:I keepdims:i noop_with_empty_axes:i
ReduceL2 axes:I keepdims:i noop_with_empty_axes:i
ReduceLogSum axes:I keepdims:i noop_with_empty_axes:i
ReduceLogSumExp axes:I keepdims:i noop_with_empty_axes:i
ReduceMax axes:I keepdims:i noop_with_empty_axes:i
ReduceMean axes:I keepdims:i noop_with_empty_axes:i
ReduceMin axes:I keepdims:i noop_with_empty_axes:i
ReduceProd axes:I keepdims:i noop_with_empty_axes:i
ReduceSum axes:I keepdims:i noop_with_empty_axes:i
ReduceSumSquare axes:I keepdims:i noop_with_empty_axes:i
RegexFullMatch pattern:s
Relu consumed_inputs:I
Reshape allowzero:i consumed_inputs:I shape:I
Resize antialias:i axes:I coordinate_transformation_mode:s cubic_coeff_a:f
  exclude_outside:i extrapolation_value:f keep_aspect_ratio_policy:s mode:s
  nearest_mode:s
ReverseSequence batch_axis:i time_axis:i
RoiAlign coordinate_transformation_mode:s mode:s output_height:i output_width:i
  sampling_ratio:i spatial_scale:f
RotaryEmbedding interleaved:i num_heads:i rotary_embedding_dim:i
STFT onesided:i
Scan body:g! directions:I num_scan_inputs:i! scan_input_axes:I
  scan_input_directions:I scan_output_axes:I scan_output_directions:I
Scatter axis:i
ScatterElements axis:i reduction:s
ScatterND reduction:s
Selu alpha:f consumed_inputs:I gamma:f
SequenceEmpty dtype:i
SequenceMap body:g!
Shape end:i start:i
Shrink bias:f lambd:f
Sigmoid consumed_inputs:I
Slice axes:I ends:I!-9 starts:I!-9
Softmax axis:i
SoftmaxCrossEntropyLoss ignore_index:i reduction:s
SpaceToDepth blocksize:i! mode:s
Split axis:i num_outputs:i split:I
SplitToSequence axis:i keepdims:i
Sqrt consumed_inputs:I
Squeeze axes:I
StringNormalizer case_change_action:s is_case_sensitive:i locale:s stopwords:S
StringSplit delimiter:s maxsplit:i
Sub axis:i broadcast:i consumed_inputs:I
Sum consumed_inputs:I
SwiGLU alpha:f
Swish alpha:f
Tanh consumed_inputs:I
TensorScatter axis:i mode:s
TfIdfVectorizer max_gram_length:i! max_skip_count:i! min_gram_length:i! mode:s!
  ngram_counts:I! ngram_indexes:I! pool_int64s:I pool_strings:S weights:F
ThresholdedRelu alpha:f
TopK axis:i k:i!-9 largest:i sorted:i
Transpose perm:I
Trilu upper:i
Unique axis:i sorted:i
Unsqueeze axes:I!-12
Upsample height_scale:f!-6 mode:s scales:F!7-8 width_scale:f!-6
Xor axis:i broadcast:i
""",
    "ai.onnx.ml": """\
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
LinearClassifier classlabels_ints:I classlabels_strings:S coefficients:F!
  intercepts:F multi_class:i post_transform:s
LinearRegressor coefficients:F intercepts:F post_transform:s targets:i
Normalizer norm:s
OneHotEncoder cats_int64s:I cats_strings:S zeros:i
SVMClassifier classlabels_ints:I classlabels_strings:S coefficients:F
  kernel_params:F kernel_type:s post_transform:s prob_a:F prob_b:F rho:F
  support_vectors:F vectors_per_class:I
SVMRegressor coefficients:F kernel_params:F kernel_type:s n_supports:i one_class:i
  post_transform:s rho:F support_vectors:F
Scaler offset:F scale:F
TreeEnsemble aggregate_function:i leaf_targetids:I! leaf_weights:t!
  membership_values:t n_targets:i nodes_falseleafs:I! nodes_falsenodeids:I!
  nodes_featureids:I! nodes_hitrates:t nodes_missing_value_tracks_true:I
  nodes_modes:t! nodes_splits:t! nodes_trueleafs:I! nodes_truenodeids:I!
  post_transform:i tree_roots:I!
TreeEnsembleClassifier base_values:F base_values_as_tensor:t class_ids:I
  class_nodeids:I class_treeids:I class_weights:F class_weights_as_tensor:t
  classlabels_int64s:I classlabels_strings:S nodes_falsenodeids:I nodes_featureids:I
  nodes_hitrates:F nodes_hitrates_as_tensor:t nodes_missing_value_tracks_true:I
  nodes_modes:S nodes_nodeids:I nodes_treeids:I nodes_truenodeids:I nodes_values:F
  nodes_values_as_tensor:t post_transform:s
TreeEnsembleRegressor aggregate_function:s base_values:F base_values_as_tensor:t
  n_targets:i nodes_falsenodeids:I nodes_featureids:I nodes_hitrates:F
  nodes_hitrates_as_tensor:t nodes_missing_value_tracks_true:I nodes_modes:S
  nodes_nodeids:I nodes_treeids:I nodes_truenodeids:I nodes_values:F
  nodes_values_as_tensor:t post_transform:s target_ids:I target_nodeids:I
  target_treeids:I target_weights:F target_weights_as_tensor:t
ZipMap classlabels_int64s:I classlabels_strings:S
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
"""The operators of each domain that have attributes: the letters of their types, and
``!`` if they are needed, with the first and the last opset where it is not always."""
