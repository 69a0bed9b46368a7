"""Networks of the library ``transformers``, by their configurations alone.

Sizes are those of the smallest published ones, unless said otherwise; arguments are
the library's.
"""

from __future__ import annotations

from typing import Any

import transformers
from torch import Tensor, nn
from transformers.models.whisper.modeling_whisper import WhisperEncoder


class Field(nn.Module):
    """One of what *model* gives."""

    def __init__(self, model: nn.Module, field: str) -> None:
        super().__init__()
        self.model = model
        self.field = field

    def forward(self, given: Tensor) -> Tensor:
        return getattr(self.model(given), self.field)


def convnext(**sizes: Any) -> nn.Module:
    """ConvNeXt-T (Liu et al., 2022)."""
    config = transformers.ConvNextConfig(**{"num_labels": 1000, **sizes})
    return Field(transformers.ConvNextForImageClassification(config), "logits")


def swin(**sizes: Any) -> nn.Module:
    """Swin-T (Liu et al., 2021)."""
    config = transformers.SwinConfig(
        **{"num_labels": 1000, "attn_implementation": "eager", **sizes}
    )
    return Field(transformers.SwinForImageClassification(config), "logits")


def segformer(**sizes: Any) -> nn.Module:
    """SegFormer-B0 (Xie et al., 2021)."""
    config = transformers.SegformerConfig(**{"num_labels": 150, **sizes})
    return Field(transformers.SegformerForSemanticSegmentation(config), "logits")


class Detr(nn.Module):
    """DETR over a ResNet-50 (Carion et al., 2020): classes and boxes."""

    def __init__(self, backbone: dict[str, Any] | None = None, **sizes: Any) -> None:
        super().__init__()
        config = transformers.DetrConfig(
            backbone_config=transformers.ResNetConfig(
                **{"out_features": ["stage4"], **(backbone or {})}
            ),
            use_timm_backbone=False,
            use_pretrained_backbone=False,
            backbone=None,
            **sizes,
        )
        self.model = transformers.DetrForObjectDetection(config)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        found = self.model(pixel_values)
        return found.logits, found.pred_boxes


def whisper_encoder(**sizes: Any) -> nn.Module:
    """The encoder of Whisper tiny (Radford et al., 2022)."""
    tiny = {
        "d_model": 384,
        "encoder_layers": 4,
        "encoder_attention_heads": 6,
        "encoder_ffn_dim": 1536,
    }
    config = transformers.WhisperConfig(**{**tiny, **sizes})
    return Field(WhisperEncoder(config), "last_hidden_state")


def bert(**sizes: Any) -> nn.Module:
    """BERT-base (Devlin et al., 2019)."""
    return Field(
        transformers.BertModel(transformers.BertConfig(**sizes)), "last_hidden_state"
    )


def wav2vec2(**sizes: Any) -> nn.Module:
    """wav2vec 2.0's convolutions (Baevski et al., 2020), and four of its layers."""
    config = transformers.Wav2Vec2Config(**{"num_hidden_layers": 4, **sizes})
    return Field(transformers.Wav2Vec2ForCTC(config), "logits")
