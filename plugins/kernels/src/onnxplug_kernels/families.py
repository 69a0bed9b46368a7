"""Which module holds the kernels of which operator.

A table rather than imports, so that a model pays only for the families it uses.
"""

from __future__ import annotations

from typing import Final

_ONNX: Final[dict[str, str]] = {
    "arithmetic": (
        "Abs Add Ceil Clip Div Erf Exp Floor Log Max Mean Min Mod Mul Neg Pow "
        "Reciprocal Round Sign Sqrt Sub Sum"
    ),
    "trigonometry": "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Sin Sinh Tan Tanh",
    "logic": (
        "And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Equal Greater "
        "GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Where Xor"
    ),
    "activation": (
        "Celu Dropout Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu "
        "Shrink Sigmoid Softplus Softsign SwiGLU Swish ThresholdedRelu"
    ),
    "softmax": "Hardmax LogSoftmax Softmax",
    "cast": "BitCast Cast CastLike",
    "quantize": (
        "ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger "
        "QLinearConv QLinearMatMul QuantizeLinear"
    ),
    "random": (
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform "
        "RandomUniformLike"
    ),
    "generate": "Constant ConstantOfShape EyeLike Range",
    "shape": "Expand Flatten Identity Reshape Shape Size Squeeze Tile Unsqueeze",
    "layout": (
        "CenterCropPad Concat DepthToSpace Pad ReverseSequence Slice SpaceToDepth "
        "Split Transpose Trilu"
    ),
    "gather": (
        "Compress Gather GatherElements GatherND NonZero OneHot Scatter "
        "ScatterElements ScatterND TensorScatter"
    ),
    "reduce": (
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax "
        "ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
    ),
    "scan": "CumProd CumSum",
    "sort": "TopK Unique",
    "sequence": (
        "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase "
        "SequenceInsert SequenceLength SplitToSequence"
    ),
    "optional": "Optional OptionalGetElement OptionalHasElement",
    "matmul": "Det Einsum Gemm MatMul",
    "conv": "CausalConvWithState Col2Im Conv ConvTranspose DeformConv",
    "pool": (
        "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool "
        "MaxUnpool"
    ),
    "norm": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN "
        "LayerNormalization LpNormalization MeanVarianceNormalization "
        "RMSNormalization"
    ),
    "rnn": "GRU LSTM RNN",
    "attention": "Attention LinearAttention RotaryEmbedding",
    "resize": "AffineGrid GridSample Resize Upsample",
    "region": "MaxRoiPool NonMaxSuppression RoiAlign",
    "text": (
        "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer"
    ),
    "image": "ImageDecoder",
    "signal": ("BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT"),
    "loss": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
}

_ONNX_ML: Final[dict[str, str]] = {
    "ml.encode": (
        "ArrayFeatureExtractor Binarizer CastMap CategoryMapper DictVectorizer "
        "FeatureVectorizer Imputer LabelEncoder Normalizer OneHotEncoder Scaler ZipMap"
    ),
    "ml.linear": "LinearClassifier LinearRegressor",
    "ml.svm": "SVMClassifier SVMRegressor",
    "ml.tree": "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor",
}

FAMILIES: Final[dict[tuple[str, str], str]] = {
    (domain, op_type): family
    for domain, table in (("", _ONNX), ("ai.onnx.ml", _ONNX_ML))
    for family, operators in table.items()
    for op_type in operators.split()
}
"""(domain, operator) to the module of this package that declares its kernels."""
