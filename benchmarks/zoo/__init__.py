"""Networks for pictures and sound, built with PyTorch and written by its exporters.

``ZOO[name]`` says how one is built; weights are random, of a fixed seed.
"""

from __future__ import annotations

from collections.abc import Mapping

from .classifiers import EfficientNet, MobileNetV2, ResNet
from .export import Exported, Network, export, exported
from .library import Detr, convnext, segformer, swin, wav2vec2, whisper_encoder
from .maps import UNet, Yolo

IMAGE = {"image": (1, 3, 224, 224)}
LARGER = {"image": (1, 3, 320, 320)}

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

__all__ = ["ZOO", "Exported", "Network", "export", "exported"]
