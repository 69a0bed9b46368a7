"""The interpreter against PyTorch, on what coremltools itself makes of PyTorch's modules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mil_interpreter import Interpreter

torch = pytest.importorskip("torch")
ct = pytest.importorskip("coremltools")

nn, functional = torch.nn, torch.nn.functional

pytestmark = [
    # torch's tracing, and coremltools' converter with a torch newer than it knows
    pytest.mark.filterwarnings("ignore"),
]


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def convert(module: Any, examples: list[Any], path: Path, **options: Any) -> Interpreter:
    """What coremltools makes of *module*."""
    traced = torch.jit.trace(module.eval(), examples)
    options.setdefault("compute_precision", ct.precision.FLOAT32)
    options.setdefault("minimum_deployment_target", ct.target.iOS18)
    options.setdefault(
        "inputs",
        [
            ct.TensorType(
                f"x{at}",
                each.shape,
                np.int32 if each.dtype == torch.int32 else np.float32,
            )
            for at, each in enumerate(examples)
        ],
    )
    model = ct.convert(
        traced, convert_to="mlprogram", skip_model_load=True, **options
    )
    model.save(str(path))
    return Interpreter(path)


def compare(
    module: Any, examples: list[Any], interpreter: Interpreter, tolerance: float
) -> None:
    with torch.no_grad():
        expected = module.eval()(*examples)
    expected = expected if isinstance(expected, tuple) else (expected,)
    feeds = {
        name: example.numpy().astype(feature.dtype)
        for (name, feature), example in zip(
            interpreter.package.inputs.items(), examples, strict=True
        )
    }
    found = interpreter(feeds)
    for name, wanted in zip(interpreter.package.outputs, expected, strict=True):
        np.testing.assert_allclose(
            found[name], wanted.numpy(), tolerance, tolerance, err_msg=name
        )


def pictures(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


def whole(high: int, *shape: int) -> Any:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, high, shape, generator=generator, dtype=torch.int32)


X3, X4, X5 = pictures(2, 4, 9), pictures(2, 4, 9, 10), pictures(1, 4, 5, 6, 7)

MODULES: dict[str, tuple[Any, list[Any]]] = {
    "conv_1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1), [X3]),
    "conv_2d": (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0)), [X4]),
    "conv_2d_dilated_groups": (nn.Conv2d(4, 8, 3, dilation=2, groups=2), [X4]),
    "conv_2d_depthwise": (nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), [X4]),
    "conv_2d_same": (nn.Conv2d(4, 4, (2, 4), padding="same"), [X4]),
    "conv_3d": (nn.Conv3d(4, 3, (1, 3, 2), padding=(0, 1, 1)), [X5]),
    "conv_transpose_1d": (nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1), [X3]),
    "conv_transpose_2d": (
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2),
        [X4],
    ),
}
