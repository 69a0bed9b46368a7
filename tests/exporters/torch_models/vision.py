"""Models for pictures of the library ``transformers``, in small configurations."""

from __future__ import annotations

from typing import Final

import transformers
from torch import Tensor, nn

from .architecture import SLOW, Architecture, integers, mask, normal


class Logits(nn.Module):
    """A picture's scores, by a model of *kind*."""

    def __init__(self, kind: type[nn.Module], config: object) -> None:
        super().__init__()
        self.model = kind(config)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.model(pixel_values).logits


def vit() -> nn.Module:
    """A picture as a sequence of patches (Dosovitskiy et al., 2021)."""
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=32,
        patch_size=8,
        num_labels=5,
    )
    return Logits(transformers.ViTForImageClassification, config)


def swin() -> nn.Module:
    """Attention in windows that shift (Liu et al., 2021)."""
    config = transformers.SwinConfig(
        image_size=32,
        patch_size=2,
        embed_dim=8,
        depths=[2, 1],
        num_heads=[2, 4],
        window_size=4,
        num_labels=5,
        # torch.export has no proof that what its own attention gives can be reshaped
        attn_implementation="eager",
    )
    return Logits(transformers.SwinForImageClassification, config)


def convnext() -> nn.Module:
    """Convolutions by channel and norms over channels (Liu et al., 2022)."""
    config = transformers.ConvNextConfig(
        hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=5
    )
    return Logits(transformers.ConvNextForImageClassification, config)


def segformer() -> nn.Module:
    """Segmentation by attention over fewer keys (Xie et al., 2021)."""
    config = transformers.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=12,
        num_labels=3,
    )
    return Logits(transformers.SegformerForSemanticSegmentation, config)


def efficientnet() -> nn.Module:
    """EfficientNet (Tan and Le, 2019), padded as TensorFlow does.

    The library takes the mean of a picture by a pool whose window is as wide as there
    are channels.
    """
    config = transformers.EfficientNetConfig(
        image_size=32,
        width_coefficient=0.25,
        depth_coefficient=0.25,
        hidden_dim=320,
        num_labels=5,
    )
    return Logits(transformers.EfficientNetForImageClassification, config)


class Detr(nn.Module):
    """Detection by queries over a convolutional network's map (Carion et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        backbone = transformers.ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[1, 1],
            out_features=["stage2"],
        )
        config = transformers.DetrConfig(
            backbone_config=backbone,
            use_timm_backbone=False,
            use_pretrained_backbone=False,
            backbone=None,
            d_model=16,
            num_queries=5,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            num_labels=3,
        )
        self.model = transformers.DetrForObjectDetection(config)

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor) -> tuple[Tensor, ...]:
        found = self.model(pixel_values, pixel_mask)
        return found.logits, found.pred_boxes


class Clip(nn.Module):
    """How well texts describe pictures (Radford et al., 2021)."""

    def __init__(self) -> None:
        super().__init__()
        small = {
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
        }
        text = {
            "vocab_size": 50,
            "max_position_embeddings": 24,
            "eos_token_id": 49,
            "bos_token_id": 48,
        }
        config = transformers.CLIPConfig(
            text_config=small | text,
            vision_config=small | {"image_size": 16, "patch_size": 4},
            projection_dim=12,
        )
        self.model = transformers.CLIPModel(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, pixel_values: Tensor
    ) -> tuple[Tensor, ...]:
        both = self.model(input_ids, pixel_values, attention_mask)
        return both.logits_per_image, both.text_embeds, both.image_embeds


SQUARE: Final = {"pixel_values": normal("batch", 3, 32, 32)}
ANY: Final = {"pixel_values": normal("batch", 3, "height", "width")}
BATCHES: Final = {"batch": 2}, {"batch": 3}
SIZES: Final = (
    {"batch": 2, "height": 32, "width": 48},
    {"batch": 1, "height": 64, "width": 40},
)

ARCHITECTURES: Final = (
    Architecture("vit", vit, SQUARE, BATCHES),
    Architecture("swin", swin, SQUARE, BATCHES),
    Architecture("convnext", convnext, ANY, SIZES),
    Architecture("efficientnet_same", efficientnet, SQUARE, BATCHES),
    Architecture("segformer", segformer, ANY, SIZES, without=SLOW),
    Architecture(
        "detr",
        Detr,
        ANY | {"pixel_mask": mask("batch", "height", "width")},
        SIZES,
        without=SLOW,
    ),
    Architecture(
        "clip",
        Clip,
        {
            "input_ids": integers(50, "texts", "tokens"),
            "attention_mask": mask("texts", "tokens"),
            "pixel_values": normal("pictures", 3, 16, 16),
        },
        (
            {"texts": 3, "tokens": 6, "pictures": 2},
            {"texts": 2, "tokens": 9, "pictures": 4},
        ),
    ),
)
