"""Models for sound: of the library ``transformers``, small, and others."""

from __future__ import annotations

from typing import Final

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from .architecture import Architecture, integers, mask, normal


class Whisper(nn.Module):
    """From a spectrogram to words (Radford et al., 2022)."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.WhisperConfig(
            vocab_size=60,
            num_mel_bins=8,
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            max_source_positions=20,
            max_target_positions=16,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
        self.model = transformers.WhisperForConditionalGeneration(config)

    def forward(self, input_features: Tensor, words: Tensor, present: Tensor) -> Tensor:
        return self.model(
            input_features,
            decoder_input_ids=words,
            decoder_attention_mask=present,
            use_cache=False,
        ).logits


class Wav2Vec2(nn.Module):
    """From samples to letters: convolutions, then attention (Baevski et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.Wav2Vec2Config(
            vocab_size=12,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=24,
            conv_dim=(8, 8),
            conv_stride=(4, 2),
            conv_kernel=(8, 3),
            num_feat_extract_layers=2,
            num_conv_pos_embeddings=4,
            num_conv_pos_embedding_groups=2,
        )
        self.model = transformers.Wav2Vec2ForCTC(config)

    def forward(self, input_values: Tensor) -> Tensor:
        return self.model(input_values).logits


class Spectrogram(nn.Module):
    """Samples to the logarithm of mel bands, as the front end of a recogniser."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.bands = nn.Parameter(torch.empty(6, 17))

    def forward(self, samples: Tensor) -> Tensor:
        spectrum = torch.stft(
            samples,
            32,
            hop_length=8,
            window=self.window,
            center=False,
            return_complex=False,
        )
        power = spectrum.square().sum(-1)
        mel = torch.log10(torch.clamp(self.bands.square() @ power, min=1e-6))
        floor = mel.amax((1, 2), keepdim=True) - 8
        return torch.maximum(mel, floor) / 4 + 1


class Crnn(nn.Module):
    """Convolutions over a spectrogram, then LSTMs (Shi et al., 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.PReLU(),
            nn.MaxPool2d((2, 1)),
            nn.BatchNorm2d(4),
        )
        self.lstm = nn.LSTM(16, 10, 2, batch_first=True, bidirectional=True)
        self.letters = nn.Linear(20, 7)

    def forward(
        self, spectrogram: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        features = self.features(spectrogram.unsqueeze(1)).flatten(1, 2)
        y, (hidden, cell) = self.lstm(features.transpose(1, 2), (hidden, cell))
        return self.letters(y).log_softmax(-1), hidden, cell


class Tcn(nn.Module):
    """Causal convolutions, each over twice the time (van den Oord et al., 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(4, 8, 1)
        self.gated = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(3))
        self.leave = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(3))
        self.values = nn.Conv1d(8, 5, 1)

    def forward(self, samples: Tensor) -> Tensor:
        x = self.enter(samples)
        skips = torch.zeros_like(x)
        for gated, leave in zip(self.gated, self.leave, strict=True):
            both = gated(F.pad(x, (gated.dilation[0], 0)))
            value, gate = both.chunk(2, 1)
            y = leave(torch.tanh(value) * torch.sigmoid(gate))
            x, skips = x + y, skips + y
        return self.values(F.relu(skips))


class SelfAttention(nn.Module):
    """Attention of two heads; for MultiheadAttention TorchScript fixes the length."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(16, 48)
        self.leave = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.enter(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(heads[0], heads[1], heads[2])
        return self.leave(y.transpose(1, 2).flatten(2))


class Conformer(nn.Module):
    """Attention and convolution in turn (Gulati et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.subsample = nn.Conv1d(8, 16, 3, 2, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(5))
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
            for _ in range(2)
        )
        self.attention = SelfAttention()
        self.point = nn.Conv1d(16, 32, 1)
        self.convolution = nn.Sequential(
            nn.Conv1d(16, 16, 5, padding=2, groups=16),
            nn.BatchNorm1d(16),
            nn.SiLU(),
            nn.Conv1d(16, 16, 1),
        )

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = self.subsample(spectrogram).transpose(1, 2)
        x = x + self.feeds[0](self.norms[0](x)) / 2
        x = x + self.attention(self.norms[1](x))
        y = F.glu(self.point(self.norms[2](x).transpose(1, 2)), 1)
        x = x + self.convolution(y).transpose(1, 2)
        x = x + self.feeds[1](self.norms[3](x)) / 2
        return self.norms[4](x)


class HifiGan(nn.Module):
    """Back from a spectrogram to samples (Kong et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.utils.parametrizations.weight_norm(
            nn.Conv1d(8, 8, 7, padding=3)
        )
        self.up = nn.ConvTranspose1d(8, 4, 8, 4, padding=2)
        self.residual = nn.ModuleList(
            nn.Conv1d(4, 4, 3, padding=d, dilation=d) for d in (1, 3)
        )
        self.leave = nn.Conv1d(4, 1, 7, padding=3)

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = self.up(F.leaky_relu(self.enter(spectrogram), 0.1))
        for layer in self.residual:
            x = x + layer(F.leaky_relu(x, 0.1))
        return torch.tanh(self.leave(F.leaky_relu(x))).squeeze(1)


SPECTROGRAM: Final = {"spectrogram": normal("batch", 8, "time")}
SAMPLES: Final = normal("batch", "time")
SIZES: Final = {"batch": 2, "time": 96}, {"batch": 3, "time": 130}
# PyTorch traces each step of a recurrence, even where ONNX has one node for all
FEW_STEPS: Final = {"batch": 2, "time": 4}, {"batch": 3, "time": 25}

ARCHITECTURES: Final = (
    Architecture(
        "whisper",
        Whisper,
        {
            "input_features": normal("batch", 8, 40),
            "words": integers(60, "batch", "tokens"),
            "present": mask("batch", "tokens"),
        },
        ({"batch": 2, "tokens": 3}, {"batch": 1, "tokens": 6}),
    ),
    Architecture("wav2vec2", Wav2Vec2, {"input_values": SAMPLES}, SIZES),
    Architecture("spectrogram", Spectrogram, {"samples": SAMPLES}, SIZES),
    Architecture(
        "crnn",
        Crnn,
        SPECTROGRAM
        | {"hidden": normal(4, "batch", 10), "cell": normal(4, "batch", 10)},
        FEW_STEPS,
        misdeclared={"dynamo": r"output 'log_softmax' .* declares \['batch', 4, 7\]"},
    ),
    Architecture("tcn", Tcn, {"samples": normal("batch", 4, "time")}, SIZES),
    Architecture("conformer", Conformer, SPECTROGRAM, SIZES),
    Architecture("hifigan", HifiGan, SPECTROGRAM, SIZES),
)
