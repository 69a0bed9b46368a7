"""LSTM layers by oneDNN, which keep their weights as it reads them.

``torch.lstm`` computes by oneDNN on processors, too.  It lays out the weights anew in
each call, as it has no place to keep them: of one step of 512 that is most of the time.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any, Final

_LSTM: Final = 2
"""torch's number of the kind of layer."""

_REORDER: Final = "_reorder_mkldnn_rnn_layer_weight"


def computes(torch: Any, x: Any) -> bool:
    """Whether oneDNN computes layers of *x*, and this torch gives its way to them."""
    return bool(
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.numel()
        and platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and hasattr(torch, "mkldnn_rnn_layer")
        and hasattr(torch.ops.mkldnn, _REORDER)
    )


class LstmLayers:
    """One layer, or one of each direction, whose weights are constants.

    Args:
        x: what it is called with first, of shape [steps, batch, features]: for others
            results are the same, and may take as long as by ``torch.lstm``.
        weights: of each direction those of the input and the state, and their biases if
            there are any, in torch's order of gates.
        count: of directions.
    """

    def __init__(self, torch: Any, x: Any, weights: Sequence[Any], count: int) -> None:
        self._layer = torch.mkldnn_rnn_layer
        self._torch = torch
        each = len(weights) // count
        self._hidden = int(weights[1].shape[1])
        self._biased = each > 2
        none = [torch.zeros(0)] * 2
        reorder = getattr(torch.ops.mkldnn, _REORDER)
        self._weights = []
        for direction in range(count):
            w, r, *biases = weights[direction * each : (direction + 1) * each]
            kept = reorder(
                w, r, self._hidden, bool(direction), self._biased, False, list(x.shape)
            )
            self._weights.append((*kept, *(biases or none)))

    def __call__(self, x: Any, states: Sequence[Any]) -> tuple[Any, Any, Any]:
        """What ``torch.lstm`` gives for *x* and both *states*.

        Raises:
            ValueError: there is no step.
        """
        if not x.numel():
            return self._of_nothing(x, states)
        found = [
            self._layer(
                x,
                *weights,
                states[0][direction],
                states[1][direction],
                bool(direction),
                [],
                _LSTM,
                self._hidden,
                1,
                self._biased,
                False,
                False,
                False,
            )[:3]
            for direction, weights in enumerate(self._weights)
        ]
        if len(found) == 1:
            y, h, c = found[0]
            return y, h.view_as(states[0]), c.view_as(states[1])
        ys, hs, cs = zip(*found, strict=True)
        torch = self._torch
        shape = states[0].shape
        return (
            torch.cat(ys, 2),
            torch.cat(hs).view(shape),
            torch.cat(cs).view(shape),
        )

    def _of_nothing(self, x: Any, states: Sequence[Any]) -> tuple[Any, Any, Any]:
        steps, batch = x.shape[:2]
        if not steps:
            raise ValueError("there are no steps; expected one or more")
        y = x.new_zeros((steps, batch, len(self._weights) * self._hidden))
        return y, *(state.clone() for state in states)
