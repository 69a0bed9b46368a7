"""Nodes of GroupQueryAttention, and what has to come of them in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

RNG = np.random.default_rng(9)
SIZE, POSITIONS = 16, 48


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def turned(x: Any, angles: Any, interleaved: bool) -> Any:
    """Pairs of elements of each row of *x* [rows, size], rotated by *angles*."""
    half = angles.shape[1]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if interleaved
        else (slice(0, half), slice(half, 2 * half))
    )
    found = x.copy()
    cos, sin = np.cos(angles), np.sin(angles)
    found[:, first] = x[:, first] * cos - x[:, second] * sin
    found[:, second] = x[:, second] * cos + x[:, first] * sin
    return found


class Grouped:
    """A node of GroupQueryAttention, what is fed, and what has to come of it.

    Args:
        lengths: of the sequences, with the new rows.
        rows: new ones.
        capacity: of the caches that are fed.
        added: what is added to scores is fed, of so many sequences and heads.
        norms: queries and keys are divided by roots of their mean squares.
        bits: of codes that caches have; 0 for floats.
        channels: each channel has a scale of its own.
    """

    def __init__(
        self, lengths: list[int], rows: int, capacity: int, heads: int = 4,
        groups: int = 2, dtype: Any = np.float32, rotated: int = SIZE,
        packed: bool = False, sinks: bool = False, places: bool = False,
        added: tuple[int, int] | None = None, norms: bool = False, bits: int = 0,
        channels: bool = False, **form: Any,
    ) -> None:  # fmt: skip
        self.heads, self.groups, self.form = heads, groups, form
        self.rows, self.lengths = rows, lengths
        batch = len(lengths)
        self.present = max(capacity, max(lengths))
        parts = [normal(batch, rows, n * SIZE) for n in (heads, groups, groups)]
        caches = [normal(batch, groups, capacity, SIZE) for _ in range(2)]
        self.angles = RNG.random((POSITIONS, rotated // 2)) * 6
        names = "q k v past_k past_v lengths total cos sin places added sinks".split()
        names += "k_scale v_scale q_norm k_norm".split()
        given: dict[str, Any] = dict(zip(names, [*parts, *caches], strict=False))
        if packed:
            given["q"], given["k"], given["v"] = np.concatenate(parts, -1), None, None
        given["lengths"] = np.array(lengths, np.int32) - np.int32(1)
        given["total"] = np.array(max(lengths), np.int32)
        given["cos"], given["sin"] = (
            (f(self.angles).astype(np.float32) if rotated else None)
            for f in (np.cos, np.sin)
        )
        shape = (batch, rows)
        given["places"] = RNG.integers(0, POSITIONS, shape) if places else None
        given["sinks"] = normal(heads) if sinks else None
        if added is not None:
            given["added"] = normal(*added, rows, max(lengths))
        given |= {n: normal(SIZE) if norms else None for n in ("q_norm", "k_norm")}
        self.feeds = {
            name: value.astype(dtype) if value.dtype == np.float32 else value
            for name, value in given.items()
            if value is not None
        }
        self.bits = bits
        if bits:
            self._quantise(capacity, channels=channels)
            form |= {"kv_cache_bit_width": bits}
            form |= dict.fromkeys(
                ("k_quant_type", "v_quant_type"),
                "PER_CHANNEL" if channels else "PER_TENSOR",
            )
        self.parts = [part.astype(dtype).astype(np.float64) for part in parts]
        self.dtype, self.rotated = np.dtype(dtype), rotated
        inputs = [name if name in self.feeds else "" for name in names]
        while not inputs[-1]:
            inputs.pop()
        self.node = helper.make_node(
            "GroupQueryAttention", inputs, ["y", "new_k", "new_v"],
            domain="com.microsoft", num_heads=heads, kv_num_heads=groups,
            do_rotary=int(rotated > 0), **form,
        )  # fmt: skip

    def _quantise(self, capacity: int, *, channels: bool) -> None:
        """Feed caches of codes, and scales."""
        low, high = -(1 << self.bits - 1), 1 << self.bits - 1
        shape = (1, self.groups, 1, SIZE) if channels else (1,)
        for which in "kv":
            codes = RNG.integers(
                low, high, (len(self.lengths), self.groups, capacity, SIZE)
            )
            scale = (0.5 + RNG.random(shape)) * 3 / high
            self.feeds[f"past_{which}"] = self._packed(codes)
            self.feeds[f"{which}_scale"] = scale.astype(np.float32)

    def _packed(self, codes: Any) -> Any:
        """Codes as caches have them."""
        if self.bits == 8:
            return codes.astype(np.int8)
        codes = codes.astype(np.int64) + 8
        return (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)

    def _decoded(self, which: str, image: int, new: Any, first: int) -> Any:
        """Keys or values that are attended to: those before, and the new ones; and of
        codes these."""
        past = self.feeds[f"past_{which}"][image, :, :first]
        if not self.bits:
            whole = np.concatenate([past.astype(np.float64), new], 1)
            return whole, whole
        if self.bits == 4:
            apart = np.stack([past & 15, past >> 4], -1).astype(np.int64) - 8
            past = apart.reshape(*past.shape[:-1], SIZE)
        scale = self.feeds[f"{which}_scale"].astype(np.float64)
        scale = scale if scale.size == 1 else scale[0]
        high = (1 << self.bits - 1) - 1
        codes = np.clip(np.rint(new / scale), -high - 1, high)
        codes = np.concatenate([past.astype(np.float64), codes], 1)
        return codes * scale, self._packed(codes)

    def model(self) -> onnx.ModelProto:
        make = helper.make_tensor_value_info
        element = helper.np_dtype_to_tensor_dtype
        batch = len(self.lengths)
        cache = [batch, self.groups, self.present, SIZE * (self.bits or 8) // 8]
        outputs = {
            "y": [batch, self.rows, self.heads * SIZE], "new_k": cache, "new_v": cache,
        }  # fmt: skip
        kinds = {"y": self.dtype}
        kinds |= {n: self.feeds[f"past_{n[-1]}"].dtype for n in ("new_k", "new_v")}
        graph = helper.make_graph(
            [self.node],
            "g",
            [make(n, element(x.dtype), x.shape) for n, x in self.feeds.items()],
            [make(n, element(kinds[n]), shape) for n, shape in outputs.items()],
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def expected(self) -> list[list[Any]]:
        """By sequences: the results of the rows that belong to it, and the rows of its
        caches that are in use."""
        return [self._of(image, length) for image, length in enumerate(self.lengths)]

    def _of(self, image: int, length: int) -> list[Any]:
        feeds, rows = self.feeds, self.rows
        first = max(0, length - rows)  # of a prompt that is shorter than others
        count = min(rows, length)
        places = feeds.get("places")
        at = first + np.arange(count) if places is None else places[image, :count]
        q, k, v = (
            part[image, :count].reshape(count, -1, SIZE).transpose(1, 0, 2)
            for part in self.parts
        )
        q, k = (
            self._normed(part, f"{which}_norm") for which, part in (("q", q), ("k", k))
        )
        if self.rotated:
            interleaved = bool(self.form.get("rotary_interleaved"))
            q, k = (
                np.stack([turned(x, self.angles[at], interleaved) for x in part])
                for part in (q, k)
            )
        (k, kept_k), (v, kept_v) = (
            self._decoded(which, image, new, first)
            for which, new in (("k", k), ("v", v))
        )
        heads = [
            self._attended(n, q[n], k, v, first, self._added(image, n)[:count])
            for n in range(self.heads)
        ]
        return [np.concatenate(heads, -1), kept_k, kept_v]

    def _normed(self, x: Any, name: str) -> Any:
        if name not in self.feeds:
            return x
        form = self.form
        epsilon = form.get(f"{name}_epsilon", form.get("qk_norm_epsilon", 1e-6))
        root = np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
        return x / root * self.feeds[name].astype(np.float64)

    def _added(self, image: int, head: int) -> Any:
        """What is added to the scores of a head."""
        added = self.feeds.get("added")
        if added is None:
            return np.zeros((self.rows, max(self.lengths)))
        image, head = image % added.shape[0], head % added.shape[1]
        return added[image, head].astype(np.float64)

    def _attended(
        self, head: int, q: Any, k: Any, v: Any, first: int, added: Any
    ) -> Any:
        form, group = self.form, head * self.groups // self.heads
        scores = q @ k[group].T * (form.get("scale") or SIZE**-0.5)
        cap = form.get("softcap")
        scores = cap * np.tanh(scores / cap) if cap else scores
        scores = scores + added[:, : k.shape[1]]
        own = first + np.arange(len(q))[:, None]
        key = np.arange(k.shape[1])
        if form.get("causal", 1):
            scores = np.where(key <= own, scores, -np.inf)
            window = form.get("local_window_size", -1)
            if window > 0:
                scores = np.where(key > own - window, scores, -np.inf)
        sinks = self.feeds.get("sinks")
        power, extra = np.exp(scores), 0.0
        if sinks is not None or form.get("smooth_softmax"):
            extra = np.exp(float(sinks[head])) if sinks is not None else 1.0
        return power / (power.sum(-1, keepdims=True) + extra) @ v[group]


CASES = {
    "a token": Grouped([7, 7], 1, 6),
    "a token with room": Grouped([7, 3], 1, 20),
    "a prompt of two": Grouped([5, 3], 5, 20),
    "behind others": Grouped([11], 5, 20, groups=1, local_window_size=4),
    "of many keys": Grouped([45], 40, 46, local_window_size=7),
    "pairs": Grouped([7], 1, 9, rotated=8, rotary_interleaved=1),
    "without turns": Grouped([7], 1, 9, rotated=0, groups=4, softcap=2.0, scale=0.5),
    "placed": Grouped([7, 4], 2, 9, places=True, sinks=True),
    "all of it": Grouped([5], 5, 0, causal=0, smooth_softmax=1),
    "something is added": Grouped([7, 3], 1, 20, added=(1, 4), softcap=2.0),
    "halves": Grouped([7, 3], 1, 20, dtype=np.float16, packed=True),
}
