"""Attention by torch's fused function."""

from __future__ import annotations

from typing import Any

from onnxplug import ep
from onnxplug_torch.dtypes import BOOL, FLOATS
from onnxplug_torch.operators.registry import operator


def _refusal(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    """What the fused function has not; the host has the operator's body for it."""
    read = node.attributes.get
    for name, default in (
        ("softcap", 0.0),
        ("qk_matmul_output_mode", 0),
        ("left_window_size", -1),
        ("right_window_size", -1),
        ("softmax_precision", None),
    ):
        if read(name, default) != default:
            return ep.Reason(ep.RefusalCode.ATTRIBUTE, name)
    if len(node.outputs) > 3 and node.outputs[3]:
        return ep.Reason(ep.RefusalCode.OTHER, "the scores are wanted")
    if len(node.inputs) > 6 and node.inputs[6]:
        return ep.Reason(ep.RefusalCode.OTHER, "nonpad_kv_seqlen is given")
    return None


def _heads(x: Any, count: int | None) -> Any:
    if x.ndim == 4:
        return x
    if count is None:
        raise ValueError(f"{list(x.shape)} without its number of heads")
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


@operator("Attention", since=23, types=FLOATS, other={3: FLOATS | BOOL}, check=_refusal)
def attention(
    torch: Any,
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any | None = None,
    past_key: Any | None = None,
    past_value: Any | None = None,
    nonpad_kv_seqlen: Any | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    output_count: int = 1,
) -> Any:
    rank = q.ndim
    q, k, v = _heads(q, q_num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    if past_key is not None:
        k, v = torch.cat((past_key, k), 2), torch.cat((past_value, v), 2)
    # torch reads as many rows of the values as there are keys
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0]:
        raise ValueError(
            f"queries, keys and values {list(q.shape)}, {list(k.shape)} and "
            f"{list(v.shape)} [batch, heads, length, size]; expected as many of each"
        )
    queries, keys = q.shape[2], k.shape[2]
    mask = attn_mask
    if mask is not None and mask.shape[-1] < keys:
        least = False if mask.dtype == torch.bool else float("-inf")
        more = (0, keys - mask.shape[-1])
        mask = torch.nn.functional.pad(mask, more, value=least)
    causal = bool(is_causal)
    if causal and (mask is not None or past_key is not None):
        before = 0 if past_key is None else past_key.shape[2]
        rows = torch.arange(queries, device=q.device).unsqueeze(-1) + before
        seen = torch.arange(keys, device=q.device) <= rows
        if mask is None:
            mask = seen
        elif mask.dtype == torch.bool:
            mask = mask & seen
        else:
            mask = torch.where(seen, mask, float("-inf"))
        causal = False
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q.dtype)
    dtype, present = q.dtype, (k, v)
    if dtype == torch.float16 and q.device.type == "cpu":
        # where torch rounds the weights to float16
        q, k, v = q.float(), k.float(), v.float()
        mask = mask if mask is None or mask.dtype == torch.bool else mask.float()
    y = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    ).to(dtype)
    if rank == 3:
        y = y.transpose(1, 2).flatten(2)
    return y if output_count == 1 else (y, *present)
