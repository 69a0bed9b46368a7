"""Networks built with PyTorch and written by its exporters.

``ZOO[name]`` says how one is built; weights are random, of a fixed seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

from models.exported import Decoder, export_decoder

from .classifiers import EfficientNet, MobileNetV2, ResNet, ShuffleNet
from .export import (
    Exported,
    Feeds,
    Network,
    built,
    converted,
    drawn_feeds,
    export,
    exported,
)
from .layers import StackedLstm
from .library import Detr, bert, convnext, segformer, swin, wav2vec2, whisper_encoder
from .maps import UNet, Yolo

Inputs: TypeAlias = Mapping[str, tuple[int, ...]]

IMAGE = {"image": (1, 3, 224, 224)}
LARGER = {"image": (1, 3, 320, 320)}


def cache_of(past: int, layers: int = 12, heads: int = 12, size: int = 64) -> Inputs:
    """The shapes of a :class:`~models.exported.Decoder`'s inputs: one word, and keys
    and values of the *past*."""
    kept = [f"{n}.{kind}" for n in range(layers) for kind in ("key", "value")]
    shape = 1, heads, past, size
    return {"input_ids": (1, 1)} | {f"past_key_values.{each}": shape for each in kept}


ZOO: Mapping[str, Network] = {
    "resnet50": Network(ResNet, IMAGE),
    "resnet50-torchscript": Network(ResNet, IMAGE, "torchscript"),
    "mobilenetv2": Network(MobileNetV2, IMAGE),
    "efficientnet-b0": Network(EfficientNet, IMAGE),
    "convnext-t": Network(convnext, IMAGE),
    "unet": Network(UNet, IMAGE),
    "yolo": Network(Yolo, LARGER),
    "swin-t": Network(swin, IMAGE),
    "segformer-b0": Network(segformer, IMAGE),
    "detr": Network(Detr, LARGER),
    "whisper-encoder": Network(whisper_encoder, {"mel": (1, 80, 3000)}),
    "wav2vec2": Network(wav2vec2, {"samples": (1, 16000)}),
}
"""One picture of 224², or of 320² for detectors; half a minute of sound as whisper
has it, and a second for wav2vec2."""

IN_GROUPS: Mapping[str, Network] = {
    "resnext50": Network(partial(ResNet, groups=32, inner=128), IMAGE),
    "shufflenet": Network(ShuffleNet, IMAGE),
}
"""Networks of convolutions in groups of some channels."""

SEQUENCES: Mapping[str, Network] = {
    "bert-base": Network(bert, {"input_ids": (1, 128)}, words=30522),
    "gpt2-decode": Network(
        partial(Decoder, words=50257),
        cache_of(100),
        words=50257,
        write=export_decoder,
        grows=True,
    ),
    "lstm": Network(StackedLstm, {"steps": (1, 64, 512)}),
}
"""Networks for words, and for what comes step by step."""

__all__ = [
    "IN_GROUPS",
    "SEQUENCES",
    "ZOO",
    "Exported",
    "Feeds",
    "Network",
    "built",
    "cache_of",
    "converted",
    "drawn_feeds",
    "export",
    "exported",
]
