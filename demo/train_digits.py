"""Train the demo's digit classifier, and write ``digits.onnx`` and ``seven.png``.

Everything is plain numpy: a small convolutional network, its gradients, Adam.  One
seed and one thread make the two files the same, bit for bit, each time on one machine.

    pip install scikit-learn pillow onnx
    python demo/train_digits.py
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

Array = np.ndarray
Parameters = dict[str, Array]

ORIGIN: Final = (
    "Trained on the test set of 'Optical Recognition of Handwritten Digits' by "
    "E. Alpaydin and C. Kaynak, UCI Machine Learning Repository (1998), "
    "https://doi.org/10.24432/C50P49, licence CC BY 4.0, as distributed with "
    "scikit-learn.  The weights are part of onnxplug, licence Apache-2.0."
)
SEED: Final = 7
HELD_OUT: Final = 360  # of 1797 digits
EPOCHS: Final = 30
BATCH: Final = 32
RATE: Final = 2e-3
PICTURED: Final = 221  # which of the digits held out: a seven of plain shape
PICTURE_SIZE: Final = 160  # pixels


class Split(NamedTuple):
    """Pictures [N,1,8,8] from 0 (paper) to 1 (ink), and the digits they show."""

    images: Array
    digits: Array


class Activations(NamedTuple):
    """What the gradients need of the way forward."""

    images: Array
    first: Array
    pooled: Array
    second: Array
    logits: Array


def load_splits() -> tuple[Split, Split]:
    """The digits to train on, and those held out: the same ones each time."""
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    order = np.random.default_rng(SEED).permutation(len(images))
    train, held_out = order[HELD_OUT:], order[:HELD_OUT]
    return (
        Split(images[train], digits.target[train]),
        Split(images[held_out], digits.target[held_out]),
    )


# The network...


def initial_parameters(rng: np.random.Generator) -> Parameters:
    """He initialisation: the variance of each layer's output is that of its input."""

    def weights(*shape: int) -> Array:
        fan_in = np.prod(shape[1:])
        return rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32)

    return {
        "conv1.weight": weights(16, 1, 3, 3),
        "conv1.bias": np.zeros(16, np.float32),
        "conv2.weight": weights(32, 16, 3, 3),
        "conv2.bias": np.zeros(32, np.float32),
        "dense.weight": weights(10, 32 * 4 * 4),
        "dense.bias": np.zeros(10, np.float32),
    }


def windows(images: Array) -> Array:
    """The 3×3 surroundings of each pixel: [N, H, W, C*9]."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    around = sliding_window_view(padded, (3, 3), axis=(2, 3))  # N C H W 3 3
    n, channels, height, width = images.shape
    return around.transpose(0, 2, 3, 1, 4, 5).reshape(n, height, width, channels * 9)


def convolve(images: Array, weight: Array) -> Array:
    """A 3×3 convolution that keeps height and width."""
    result = windows(images) @ weight.reshape(len(weight), -1).T
    return result.transpose(0, 3, 1, 2)


def quadrants(images: Array) -> Array:
    """The four pixels under each 2×2 pooling window: [N, C, H/2, W/2, 4]."""
    n, channels, height, width = images.shape
    blocks = images.reshape(n, channels, height // 2, 2, width // 2, 2)
    return blocks.transpose(0, 1, 2, 4, 3, 5).reshape(
        n, channels, height // 2, width // 2, 4
    )


def forward(parameters: Parameters, images: Array) -> Activations:
    """convolution → ReLU → max-pool → convolution → ReLU → dense."""
    bias1, bias2 = (parameters[f"conv{i}.bias"][:, None, None] for i in (1, 2))
    first = np.maximum(convolve(images, parameters["conv1.weight"]) + bias1, 0)
    pooled = quadrants(first).max(axis=-1)
    second = np.maximum(convolve(pooled, parameters["conv2.weight"]) + bias2, 0)
    flat = second.reshape(len(second), -1)
    logits = flat @ parameters["dense.weight"].T + parameters["dense.bias"]
    return Activations(images, first, pooled, second, logits)


def softmax(logits: Array) -> Array:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def gradients(parameters: Parameters, seen: Activations, digits: Array) -> Parameters:
    """Derivatives of the mean cross-entropy, from the last layer to the first."""
    slope = softmax(seen.logits)
    slope[np.arange(len(digits)), digits] -= 1
    slope /= len(digits)
    flat = seen.second.reshape(len(digits), -1)
    found = {"dense.weight": slope.T @ flat, "dense.bias": slope.sum(0)}

    slope = (slope @ parameters["dense.weight"]).reshape(seen.second.shape)
    slope = slope * (seen.second > 0)
    found |= convolution_gradients("conv2", slope, seen.pooled)

    # back through a convolution: convolve with the kernels turned by 180 degrees
    turned = parameters["conv2.weight"][:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    slope = convolve(slope, turned)
    # back through the pooling: to the first of the largest of each four
    winners = quadrants(seen.first).argmax(axis=-1)[..., None] == np.arange(4)
    n, channels, height, width = seen.first.shape
    spread = (winners * slope[..., None]).reshape(
        n, channels, height // 2, width // 2, 2, 2
    )
    slope = spread.transpose(0, 1, 2, 4, 3, 5).reshape(seen.first.shape)
    slope = slope * (seen.first > 0)
    return found | convolution_gradients("conv1", slope, seen.images)


def convolution_gradients(layer: str, slope: Array, images: Array) -> Parameters:
    channels, seen = slope.shape[1], images.shape[1]
    by_pixel = slope.transpose(1, 0, 2, 3).reshape(channels, -1)
    around = windows(images).reshape(-1, seen * 9)
    return {
        f"{layer}.weight": (by_pixel @ around).reshape(channels, seen, 3, 3),
        f"{layer}.bias": by_pixel.sum(axis=1),
    }


# Training...


def batches(data: Split, rng: np.random.Generator) -> Iterator[Split]:
    """All digits once, in random order, moved by up to one pixel, a little blurred.

    Pictures that were made smaller to be classified are blurred, too.
    """
    order = rng.permutation(len(data.images))
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        padded = np.pad(data.images[chosen], ((0, 0), (0, 0), (1, 1), (1, 1)))
        down, right = rng.integers(0, 3, 2)
        moved = padded[:, :, down : down + 8, right : right + 8]
        blur = np.float32(rng.uniform(0, 0.5))
        yield Split(blurred(moved, blur), data.digits[chosen])


def blurred(images: Array, amount: np.float32) -> Array:
    """Each pixel mixed with the mean of its four neighbours."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    vertical = padded[:, :, :-2, 1:-1] + padded[:, :, 2:, 1:-1]
    horizontal = padded[:, :, 1:-1, :-2] + padded[:, :, 1:-1, 2:]
    return (1 - amount) * images + amount / 4 * (vertical + horizontal)


def train(data: Split) -> Parameters:
    """Adam with its usual constants, and a rate that falls to zero as a cosine."""
    rng = np.random.default_rng(SEED)
    parameters = initial_parameters(rng)
    mean = {name: np.zeros_like(value) for name, value in parameters.items()}
    square = {name: np.zeros_like(value) for name, value in parameters.items()}
    steps = EPOCHS * -(-len(data.images) // BATCH)
    step = 0
    for _ in range(EPOCHS):
        for batch in batches(data, rng):
            step += 1
            rate = RATE * (1 + np.cos(np.pi * step / steps)) / 2
            seen = forward(parameters, batch.images)
            for name, slope in gradients(parameters, seen, batch.digits).items():
                mean[name] += 0.1 * (slope - mean[name])
                square[name] += 0.001 * (slope**2 - square[name])
                unbiased = square[name] / (1 - 0.999**step)
                change = mean[name] / (1 - 0.9**step) / (np.sqrt(unbiased) + 1e-8)
                parameters[name] -= np.float32(rate) * change.astype(np.float32)
    return parameters


def accuracy(parameters: Parameters, data: Split) -> float:
    """The share of *data* that is classified rightly."""
    guesses = forward(parameters, data.images).logits.argmax(axis=1)
    return float((guesses == data.digits).mean())


# Files...


def to_model(parameters: Parameters) -> onnx.ModelProto:
    """The network as an ONNX model; see ``demo/README.md`` for its interface."""
    nodes = [
        helper.make_node(
            "Conv",
            ["image", "conv1.weight", "conv1.bias"],
            ["conv1"],
            name="conv1",
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
        ),
        helper.make_node("Relu", ["conv1"], ["relu1"], name="relu1"),
        helper.make_node(
            "MaxPool",
            ["relu1"],
            ["pool"],
            name="pool",
            kernel_shape=[2, 2],
            strides=[2, 2],
        ),
        helper.make_node(
            "Conv",
            ["pool", "conv2.weight", "conv2.bias"],
            ["conv2"],
            name="conv2",
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
        ),
        helper.make_node("Relu", ["conv2"], ["relu2"], name="relu2"),
        helper.make_node("Flatten", ["relu2"], ["flat"], name="flatten"),
        helper.make_node(
            "Gemm",
            ["flat", "dense.weight", "dense.bias"],
            ["logits"],
            name="dense",
            transB=1,
        ),
        helper.make_node("Softmax", ["logits"], ["probabilities"], name="softmax"),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])
    image.doc_string = "Pictures of one digit each, from 0 (paper) to 1 (ink)."
    probabilities = helper.make_tensor_value_info(
        "probabilities", TensorProto.FLOAT, ["N", 10]
    )
    graph = helper.make_graph(
        nodes,
        "digits",
        [image],
        [probabilities],
        [numpy_helper.from_array(value, name) for name, value in parameters.items()],
    )
    model = helper.make_model(
        graph,
        ir_version=10,
        opset_imports=[helper.make_opsetid("", 21)],
        producer_name="onnxplug-demo",
        doc_string=f"Classifies handwritten digits.  {ORIGIN}",
    )
    helper.set_model_props(
        model,
        {
            "labels": json.dumps([str(digit) for digit in range(10)]),
            "input_scale": str(1 / 255),  # pixels are 0 to 255
            "input_invert": "true",  # ink is dark in pictures, 1 in the model
        },
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def to_picture(image: Array) -> Image.Image:
    """One digit as a picture of ordinary size: dark ink on white paper."""
    pixels = np.rint(255 * (1 - image[0])).astype(np.uint8)
    size = (PICTURE_SIZE, PICTURE_SIZE)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().folder

    data, held_out = load_splits()
    with threadpool_limits(1):  # the order of additions depends on the thread count
        parameters = train(data)
    print(f"trained on {len(data.images)} digits")
    print(
        f"accuracy on {len(held_out.images)} held-out digits: "
        f"{accuracy(parameters, held_out):.2%}"
    )

    model = to_model(parameters)
    (folder / "digits.onnx").write_bytes(model.SerializeToString(deterministic=True))
    to_picture(held_out.images[PICTURED]).save(folder / "seven.png", optimize=True)
    print(f"wrote {folder / 'digits.onnx'} and {folder / 'seven.png'}")


if __name__ == "__main__":
    main()
