"""Mixtures of experts: each row meets the few networks that a router chose for it.

Letters in shapes: R rows, E experts, H elements of a row, I of what an expert has
between its products, of which the first gives F * I, F being 2 for a gated expert whose
two halves are in one matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from onnxplug.authoring.bounds import at_least
from onnxplug_microsoft.kernels import KERNELS
from onnxplug_microsoft.kernels.quantize import unpacked

_ALLOWED: Final = {
    "activation_type": ("relu", "gelu", "silu", "swiglu", "identity"),
    "swiglu_fusion": (0, 1, 2),
    "swiglu_limit_after_activation": (0,),
}


@KERNELS.operator("MoE", since=1, allowed={**_ALLOWED, "use_sparse_mixer": (0, 1)})
def mixture_of_experts(
    xp: Any,
    input: Any,
    router_probs: Any,
    fc1_experts_weights: Any,
    fc1_experts_bias: Any | None,
    fc2_experts_weights: Any,
    fc2_experts_bias: Any | None = None,
    fc3_experts_weights: Any | None = None,
    fc3_experts_bias: Any | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float = math.inf,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
) -> Any:
    """The weighted sum of what the *k* experts of each row give, in float32.

    Their weights are the softmax of *router_probs* [R, E] over all experts, of which
    *normalize_routing_weights* makes the chosen ones a whole; of equal scores the
    last is chosen.  As ONNX Runtime on the CPU, it takes no notice of
    *use_sparse_mixer*.

    Args:
        input: [..., H], R rows.
        fc1_experts_weights, fc2_experts_weights: [E, F * I, H] and [E, H, I].
        fc3_experts_weights: [E, I, H], the other half of a gated expert.

    Raises:
        ValueError: sizes do not fit.
    """
    weights = [fc1_experts_weights, fc2_experts_weights, fc3_experts_weights]
    for matrix in weights:
        if matrix is not None and matrix.ndim != 3:
            raise ValueError(f"MoE has weights {matrix.shape}; expected three axes")

    def matrix_of(number: int, expert: int) -> Any | None:
        found = weights[number]
        return None if found is None else xp.astype(found[expert], xp.float32)

    scores, chosen = _chosen(xp, router_probs, k, "MoE")
    power = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    shares = xp.take_along_axis(power, chosen, axis=-1)
    if normalize_routing_weights:
        shares = shares / xp.sum(shares, axis=-1, keepdims=True)
    else:
        shares = shares / xp.sum(power, axis=-1, keepdims=True)
    form = activation_alpha, activation_beta, swiglu_limit, swiglu_fusion
    biases = fc1_experts_bias, fc2_experts_bias, fc3_experts_bias
    return _mixed(
        xp, input, (chosen, shares), matrix_of, biases, activation_type, form, "MoE"
    )


@KERNELS.operator(
    "QMoE",
    since=1,
    allowed={
        **_ALLOWED,
        "use_sparse_mixer": (0, 1),
        "expert_weight_bits": (2, 4, 8),
        "quant_type": ("int",),
        "weights_prepacked": (-1, 0),
    },
)
def quantized_mixture_of_experts(
    xp: Any,
    input: Any,
    router_probs: Any,
    fc1_experts_weights: Any,
    fc1_scales: Any,
    fc1_experts_bias: Any | None,
    fc2_experts_weights: Any,
    fc2_scales: Any,
    fc2_experts_bias: Any | None = None,
    fc3_experts_weights: Any | None = None,
    fc3_scales: Any | None = None,
    fc3_experts_bias: Any | None = None,
    fc1_zero_points: Any | None = None,
    fc2_zero_points: Any | None = None,
    fc3_zero_points: Any | None = None,
    router_weights: Any | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int = 0,
    expert_weight_bits: int = 4,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float = math.inf,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
) -> Any:
    """:func:`mixture_of_experts` with weights that are codes, of which those of one
    chosen expert after the other are made floats.

    The shares of experts are the softmax over those that are chosen, as ONNX Runtime
    computes them on the CPU, or what *router_weights* [R, E] has.

    Args:
        fc1_experts_weights: [E, F * I, H * bits / 8], the first code in the low bits.
        fc1_scales, fc1_zero_points: [E, F * I], packed as weights are, or of blocks
            [E, F * I, H / block_size].

    Raises:
        ValueError: sizes do not fit.
    """
    weights = [fc1_experts_weights, fc2_experts_weights, fc3_experts_weights]
    scales = [fc1_scales, fc2_scales, fc3_scales]
    zeros = [fc1_zero_points, fc2_zero_points, fc3_zero_points]

    def matrix_of(number: int, expert: int) -> Any | None:
        found, scale, zero = weights[number], scales[number], zeros[number]
        if found is None:
            return None
        if found.ndim != 3 or scale is None:
            raise ValueError(f"QMoE has weights {found.shape} and their scales {scale}")
        zero = None if zero is None else zero[expert]
        parts = found[expert], scale[expert], zero
        return _dequantized(xp, parts, expert_weight_bits, block_size)

    scores, chosen = _chosen(xp, router_probs, k, "QMoE")
    if router_weights is None:
        scores = xp.take_along_axis(scores, chosen, axis=-1)
        shares = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    elif router_weights.shape == router_probs.shape:
        shares = xp.take_along_axis(
            xp.astype(router_weights, xp.float32), chosen, axis=-1
        )
    else:
        raise ValueError(
            f"QMoE has router_weights {router_weights.shape} for {router_probs.shape}"
        )
    if router_weights is None or normalize_routing_weights:
        shares = shares / xp.sum(shares, axis=-1, keepdims=True)
    form = activation_alpha, activation_beta, swiglu_limit, swiglu_fusion
    biases = fc1_experts_bias, fc2_experts_bias, fc3_experts_bias
    return _mixed(
        xp, input, (chosen, shares), matrix_of, biases, activation_type, form, "QMoE"
    )


def _chosen(xp: Any, scores: Any, count: int, operator: str) -> tuple[Any, Any]:
    """The scores [R, E] in float32, and the experts [R, count] with the largest."""
    at_least(1, [count], "k")
    if scores.ndim != 2 or count > scores.shape[1]:
        raise ValueError(
            f"{operator} chooses {count} experts by scores {scores.shape}; expected "
            "rows of as many, or more"
        )
    scores = xp.astype(scores, xp.float32)
    last = scores.shape[1] - 1
    flipped = xp.flip(scores, axis=-1)
    return scores, last - xp.top_indices(flipped, count, largest=True)


def _dequantized(
    xp: Any, parts: tuple[Any, Any, Any | None], bits: int, block: int
) -> Any:
    """A matrix [N, K] of codes [N, K * bits / 8] as float32."""
    packed, scales, zeros = parts
    codes = unpacked(xp, packed, bits)
    rows, depth = codes.shape
    blocks = depth // block if block > 0 else 1
    wanted = (rows, blocks) if block > 0 else (rows,)
    if scales.shape != wanted or (block > 0 and depth % block):
        raise ValueError(
            f"QMoE has scales {scales.shape} of {rows} × {depth} codes; expected "
            f"{wanted} of blocks of {block or depth}"
        )
    middle: Any = 1 << (bits - 1)
    if zeros is not None:
        found = unpacked(xp, zeros, bits)
        if found.ndim != len(wanted) or found.shape[:-1] != wanted[:-1]:
            raise ValueError(f"QMoE has zero points {zeros.shape} for scales {wanted}")
        middle = xp.reshape(found[..., : wanted[-1]], (rows, blocks, 1))
        middle = xp.astype(middle, xp.float32)
    apart = xp.astype(xp.reshape(codes, (rows, blocks, -1)), xp.float32) - middle
    scale = xp.astype(xp.reshape(scales, (rows, blocks, 1)), xp.float32)
    return xp.reshape(apart * scale, (rows, depth))


def _mixed(
    xp: Any,
    x: Any,
    routed: tuple[Any, Any],
    matrix_of: Callable[[int, int], Any | None],
    biases: tuple[Any | None, ...],
    activation: str,
    form: tuple[float, float, float, int],
    operator: str,
) -> Any:
    """The shares of what experts give, added up.

    Args:
        routed: experts of rows, and their shares.
        matrix_of: the matrix number 0, 1 or 2 of an expert, [outputs, inputs].
        form: alpha, beta, limit and how the halves of a gated expert lie.
    """
    chosen, shares = routed
    rows = xp.astype(xp.reshape(x, (-1, x.shape[-1])), xp.float32)
    if rows.shape[0] != chosen.shape[0]:
        raise ValueError(
            f"{operator} has scores of {chosen.shape[0]} rows for {rows.shape[0]}"
        )
    y = xp.zeros(rows.shape, dtype=xp.float32)
    for expert in xp.tolist(xp.distinct(chosen)):
        places, slots = xp.nonzero(chosen == expert)

        def product(part: Any, number: int, expert: int = expert) -> Any | None:
            matrix, bias = matrix_of(number, expert), biases[number]
            if matrix is None:
                return None
            found = xp.matmul(part, xp.permute_dims(matrix, (1, 0)))
            if bias is not None:
                found = found + xp.astype(bias[expert], xp.float32)
            return found

        part = xp.take(rows, places, axis=0)
        inner = _activated(
            xp, product(part, 0), product(part, 2), activation, form, operator
        )
        share = shares[places, slots][:, None]
        y[places] += product(inner, 1) * share
    return xp.astype(xp.reshape(y, x.shape), x.dtype, copy=False)


def _activated(
    xp: Any,
    first: Any,
    third: Any | None,
    activation: str,
    form: tuple[float, float, float, int],
    operator: str,
) -> Any:
    """What an expert has between its products."""
    alpha, beta, limit, fusion = form
    if activation == "swiglu":
        if fusion and third is None and first.shape[-1] % 2 == 0:
            half = first.shape[-1] // 2
            if fusion == 1:
                first, third = first[:, ::2], first[:, 1::2]
            else:
                first, third = first[:, :half], first[:, half:]
        elif fusion or third is None:
            raise ValueError(
                f"{operator} has experts gated by swiglu_fusion {fusion}: expected the "
                "other half in fc3 for 0, and in fc1 for 1 and 2"
            )
        gate = xp.minimum(first, limit)
        other = xp.clip(third, -limit, limit)
        return gate / (1 + xp.exp(-alpha * gate)) * (other + beta)
    if third is not None:
        raise ValueError(f"{operator} has fc3, and is not gated by 'swiglu'")
    if activation == "relu":
        return xp.maximum(first, xp.zeros((), dtype=first.dtype))
    if activation == "silu":
        return first / (1 + xp.exp(-first))
    if activation == "gelu":  # ONNX Runtime's is the approximation by tanh
        cube = first + 0.044715 * first * first * first
        return 0.5 * first * (1 + xp.tanh((2 / math.pi) ** 0.5 * cube))
    return first
