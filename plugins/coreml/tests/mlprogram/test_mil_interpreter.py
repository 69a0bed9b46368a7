"""The interpreter against PyTorch, on what coremltools makes of PyTorch's modules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mil_interpreter import Interpreter, SpecificationError

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


def convert(
    module: Any, examples: list[Any], path: Path, **options: Any
) -> Interpreter:
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
    model = ct.convert(traced, convert_to="mlprogram", skip_model_load=True, **options)
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


class Block(nn.Module):
    """A block of a transformer, before whose layers is a normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Any, mask: Any) -> Any:
        q, k, v = (
            each.reshape(2, 5, self.heads, -1).transpose(1, 2)
            for each in self.project(self.first(x)).chunk(3, -1)
        )
        found = functional.scaled_dot_product_attention(q, k, v, mask)
        x = x + self.out(found.transpose(1, 2).reshape(2, 5, -1))
        return x + self.mlp(self.second(x))


def of(function: Callable[..., Any], *examples: Any) -> tuple[Any, list[Any]]:
    return Function(function), list(examples)


def resized(**how: Any) -> tuple[Any, list[Any]]:
    return of(lambda x: functional.interpolate(x, **how), X4)


def sampled(**how: Any) -> tuple[Any, list[Any]]:
    grid = 1.4 * pictures(2, 5, 6, 2)
    return of(lambda x, at: functional.grid_sample(x, at, **how), X4, grid)


def elementwise(x: Any) -> Any:
    y = x.abs() + 0.3
    parts = [
        torch.exp(x), torch.log(y), torch.sqrt(y), torch.rsqrt(y), torch.erf(x),
        torch.sin(x), torch.cos(x), torch.tan(x / 2), torch.tanh(x), torch.atan(x),
        torch.asin(torch.tanh(x)), torch.acos(torch.tanh(x)), torch.sinh(x),
        torch.cosh(x), torch.atanh(torch.tanh(x)), torch.floor(x), torch.ceil(x),
        torch.round(2 * x), torch.sign(x), torch.square(x), x.clamp(-0.5, 0.7),
        y**x, torch.maximum(x, y), torch.minimum(x, y), x / y, x - y, torch.exp2(x),
        torch.where(torch.logical_or((x > 0) & ~(y < 0.5), x == y), x, y),
        torch.floor_divide(x, y), torch.remainder(x, y),
    ]  # fmt: skip
    return torch.stack(parts)


def activated(x: Any) -> Any:
    parts = [
        functional.relu(x), functional.relu6(4 * x), functional.elu(x, 0.7),
        functional.gelu(x), functional.gelu(x, approximate="tanh"),
        functional.leaky_relu(x, 0.2), torch.sigmoid(x), functional.hardsigmoid(3 * x),
        functional.silu(x), functional.softplus(x), functional.softsign(x),
        functional.threshold(x, 0.1, 0.0), functional.softmax(x, 1),
        functional.prelu(x, torch.tensor([0.1, 0.2, 0.3, 0.4])),
        functional.hardswish(x), functional.log_softmax(x, -1),
    ]  # fmt: skip
    return torch.stack(parts)


def reduced(x: Any) -> tuple[Any, ...]:
    return (
        x.sum(1), x.mean((2, 3), keepdim=True), x.amax(-1), x.amin((0, 2)),
        x.argmax(1).int(), x.argmin(-1, keepdim=True).int(), torch.logsumexp(x, 1),
        x.norm(p=2, dim=1), x.norm(p=1, dim=-1), x.cumsum(2),
    )  # fmt: skip


def moved(x: Any) -> tuple[Any, ...]:
    return (
        x.permute(0, 2, 3, 1), x.reshape(2, -1, 5), x[:, 1:3, ::2, -4:-1], x[1],
        torch.cat([x, 2 * x], 1), torch.stack([x, 2 * x], 2), x.unsqueeze(1),
        x.flip((1, 3)), x.tile(1, 2, 1, 3), x.split((1, 3), 1)[1], x.chunk(2, -1)[0],
        functional.pad(x, (1, 2, 3, 0), value=0.5),
        functional.pad(x, (1, 2, 3, 0), mode="reflect"),
        functional.pad(x, (1, 2, 3, 0), mode="replicate"),
        functional.pixel_shuffle(x, 2), functional.pixel_unshuffle(x[:, :, :8], 2),
        x[:, :1].expand(2, 3, 9, 10), x[..., :1].squeeze(-1), torch.tril(x),
        torch.triu(x, 2),
    )  # fmt: skip


def picked(x: Any, rows: Any, along: Any) -> tuple[Any, ...]:
    chosen = torch.zeros_like(x)
    return (
        x[:, rows], torch.gather(x, 1, along.long()),
        torch.index_select(x, 2, rows), functional.embedding(rows, x[0]),
        torch.scatter(chosen, 1, along.long(), x[:, :2]),
        torch.scatter_add(x, 1, along.long(), x[:, :2]),
        torch.topk(x, 3, 2)[0], torch.topk(x, 3, 2)[1].int(),
        torch.sort(x, 1)[0], torch.argsort(x, 2).int(),
        functional.one_hot(rows.long(), 5).int(),
    )  # fmt: skip


def convolutional() -> Any:
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.SiLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 1), nn.Flatten(), nn.Linear(120, 5), nn.Softmax(-1),
    )  # fmt: skip


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
    "max_pool": (nn.MaxPool2d(3, 2, padding=1), [X4]),
    "max_pool_ceil": (nn.MaxPool2d((2, 3), 2, padding=1, ceil_mode=True), [X4]),
    "max_pool_1d": (nn.MaxPool1d(4, 3), [X3]),
    "avg_pool": (nn.AvgPool2d(3, 2, padding=1), [X4]),
    "avg_pool_excluding": (
        nn.AvgPool2d(3, 2, padding=1, count_include_pad=False),
        [X4],
    ),
    "avg_pool_ceil": (nn.AvgPool2d(3, 2, padding=1, ceil_mode=True), [X4]),
    "avg_pool_3d": (nn.AvgPool3d(2, 1, padding=1), [X5]),
    "adaptive_pool": (nn.AdaptiveAvgPool2d(1), [X4]),
    "batch_norm": (nn.BatchNorm2d(4), [X4]),
    "instance_norm": (nn.InstanceNorm2d(4, affine=True), [X4]),
    "group_norm": (nn.GroupNorm(2, 4), [X4]),
    "layer_norm": (nn.LayerNorm((9, 10)), [X4]),
    "resize_nearest": resized(scale_factor=2.0, mode="nearest"),
    "resize_nearest_size": resized(size=(13, 7), mode="nearest"),
    "resize_bilinear": resized(scale_factor=2.0, mode="bilinear"),
    "resize_bilinear_size": resized(size=(5, 23), mode="bilinear"),
    "resize_aligned": resized(size=(17, 6), mode="bilinear", align_corners=True),
    "sample": sampled(align_corners=False),
    "sample_nearest": sampled(mode="nearest", align_corners=True),
    "sample_border": sampled(padding_mode="border", align_corners=False),
    "sample_reflection": sampled(padding_mode="reflection", align_corners=True),
    "elementwise": of(elementwise, pictures(3, 7)),
    "activated": of(activated, X4),
    "reduced": of(reduced, X4),
    "moved": of(moved, X4),
    "picked": of(picked, pictures(2, 4, 6), whole(4, 5), whole(4, 2, 2, 6)),
    "matmul": of(lambda x, y: x @ y.transpose(-1, -2), X4, pictures(4, 3, 10)),
    "linear": (nn.Linear(10, 3), [X4]),
    "attention": of(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
        *(pictures(2, 3, 5, 8), pictures(2, 3, 7, 8), pictures(2, 3, 7, 4)),
    ),
    "block": (Block(16, 4), [pictures(2, 5, 16), whole(2, 2, 1, 5, 5) * 0.5]),
    "convolutional": (convolutional(), [X4]),
}


@pytest.mark.parametrize("name", MODULES)
def test_it_computes_what_torch_does(name: str, tmp_path: Path) -> None:
    module, examples = MODULES[name]
    interpreter = convert(module, examples, tmp_path / "model.mlpackage")
    assert interpreter.operations
    compare(module, examples, interpreter, 2e-5)


def test_it_rounds_where_the_specification_says_so(tmp_path: Path) -> None:
    module = convolutional()
    half = convert(
        module,
        [X4],
        tmp_path / "half.mlpackage",
        compute_precision=ct.precision.FLOAT16,
        minimum_deployment_target=ct.target.iOS15,  # where inputs stay float32
    )
    assert half.operations[0] == half.operations[-1] == "cast"
    compare(module, [X4], half, 5e-3)


def test_it_holds_feeds_against_ranges_of_shapes(tmp_path: Path) -> None:
    module = nn.Conv2d(4, 3, 3)
    batch = ct.RangeDim(1, 5, default=2)
    interpreter = convert(
        module,
        [X4],
        tmp_path / "model.mlpackage",
        inputs=[ct.TensorType("x0", (batch, 4, 9, 10), np.float32)],
    )
    compare(module, [pictures(5, 4, 9, 10)], interpreter, 1e-5)
    with pytest.raises(SpecificationError, match="'x0' is float32"):
        interpreter({"x0": np.zeros((6, 4, 9, 10), np.float32)})
    with pytest.raises(SpecificationError, match="'x0' is float64"):
        interpreter({"x0": np.zeros((5, 4, 9, 10), np.float64)})


def test_it_refuses_what_is_declared_otherwise(tmp_path: Path) -> None:
    interpreter = convert(nn.ReLU(), [X4], tmp_path / "model.mlpackage")
    (output,) = interpreter.package.block.operations[-1].outputs
    output.type.tensorType.dimensions[1].constant.size = 3
    with pytest.raises(SpecificationError, match=r"\(2, 4, 9, 10\), not"):
        interpreter({"x0": X4.numpy()})
