"""Networks of many operators at once: views, fusion and the order of nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import onnxplug
from onnxplug_testing.random_conv_nets import ConvNet


@pytest.mark.parametrize("seed", range(12))
def test_networks_of_convolutions(
    alone: Callable[..., onnxplug.InferenceSession], seed: int
) -> None:
    net = ConvNet(seed)
    model = net.model.SerializeToString()
    wanted = onnxplug.InferenceSession(model, providers=["cpu"]).run(None, net.feeds)
    found = alone(model).run(None, net.feeds)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)
