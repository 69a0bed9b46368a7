"""Attention whose memory is one matrix for each head, as the operator describes it.

Source: ONNX operator LinearAttention-27; S. Yang, J. Kautz, A. Hatamizadeh, "Gated
Delta Networks", 2024 (https://arxiv.org/abs/2412.06464).
"""

from __future__ import annotations

from typing import Any, Protocol

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class LinearAttention(Record):
    """At each time the state decays, learns the outer product of key and value, and is
    read by queries.

    Attributes:
        query: [batch, heads, queries of a head, time, key size].
        key: [batch, heads, time, key size].
        value: [batch, heads, time, value size].
        decay: as *key*, float32: what the rows of the state are multiplied with.
        rate: [batch, heads, time]: how much of what the state does not give for the key
            it learns; ``None``: it learns the value.
        past: [batch, heads, key size, value size]; ``None``: zeros.
        out: [batch, heads, queries of a head, time, value size].
        state: as *past*, after all times.
        scale: a factor of *out*.
    """

    query: View
    key: View
    value: View
    decay: View | None
    rate: View | None
    past: View | None
    out: View
    state: View
    scale: float


class LinearAttentions(Protocol):
    """Attention that goes from time to time."""

    def record_linear_attention(
        self, recorder: Recorder[Any], work: LinearAttention, label: str
    ) -> None:
        """All times of *work*; in float32, rounded where it is written."""
