"""Models for text: of the library ``transformers`` in small configurations, and others.

Those that write text take the keys and values of what was before and give those of what
is after, as one step of generating does.
"""

from __future__ import annotations

from typing import Final

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from .architecture import SLOW, Architecture, Input, integers, mask, normal


class Encoder(nn.Module):
    """An encoder of transformers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask).last_hidden_state


def bert() -> nn.Module:
    """Both directions at once (Devlin et al., 2019)."""
    config = transformers.BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=32,
    )
    return Encoder(transformers.BertModel(config))


def roberta() -> nn.Module:
    """Positions counted over what is not padding (Liu et al., 2019)."""
    config = transformers.RobertaConfig(
        vocab_size=99,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
    )
    return Encoder(transformers.RobertaModel(config))


def deberta() -> nn.Module:
    """Attention to content and to relative position (He et al., 2021)."""
    config = transformers.DebertaV2Config(
        vocab_size=99,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
        relative_attention=True,
        position_buckets=4,
        pos_att_type=["c2p", "p2c"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
    )
    return Encoder(transformers.DebertaV2Model(config))


class Decoder(nn.Module):
    """One step of a language model: what follows, and the cache for the next step."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, ...]:
        """*keys* and *values*: layer × batch × head × past × size of a head."""
        past = transformers.DynamicCache(list(zip(keys, values, strict=True)))
        step = self.model(
            input_ids=input_ids, attention_mask=attention_mask, past_key_values=past
        )
        layers = step.past_key_values.layers
        keys = torch.stack([layer.keys for layer in layers])
        return step.logits, keys, torch.stack([layer.values for layer in layers])


def gpt2() -> nn.Module:
    """Each word after those before it (Radford et al., 2019)."""
    config = transformers.GPT2Config(
        vocab_size=99,
        n_embd=32,
        n_layer=1,
        n_head=4,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=1,
    )
    return Decoder(transformers.GPT2LMHeadModel(config))


def llama() -> nn.Module:
    """Rotary positions, RMSNorm, and fewer keys than queries (Touvron et al., 2023)."""
    config = transformers.LlamaConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=32,
    )
    return Decoder(transformers.LlamaForCausalLM(config))


class T5(nn.Module):
    """From text to text, with biases for relative positions (Raffel et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.T5Config(
            vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4
        )
        self.model = transformers.T5ForConditionalGeneration(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor
    ) -> tuple[Tensor, ...]:
        both = self.model(input_ids, attention_mask, decoder_input_ids, use_cache=False)
        return both.logits, both.encoder_last_hidden_state


class MixtureOfExperts(nn.Module):
    """Each word through its two best of four networks (Shazeer et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(99, 16)
        self.gate = nn.Linear(16, 4)
        self.inner = nn.Parameter(torch.empty(4, 16, 24))
        self.outer = nn.Parameter(torch.empty(4, 24, 16))

    def forward(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(input_ids)
        best, chosen = self.gate(x).topk(2, sorted=True)
        weights = torch.zeros_like(x[..., :4]).scatter(-1, chosen, best.softmax(-1))
        inner = F.gelu(torch.einsum("btd,edf->btef", x, self.inner), approximate="tanh")
        y = torch.einsum("btef,efd,bte->btd", inner, self.outer, weights)
        return x + y, chosen


class AttentionSeq2Seq(nn.Module):
    """Recurrent encoder, and a decoder that looks back (Bahdanau et al., 2015).

    The decoder writes five words, each the likeliest after the one before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 12)
        self.encoder = nn.GRU(12, 8, batch_first=True, bidirectional=True)
        self.look = nn.Linear(28, 1)
        self.cell = nn.GRUCell(28, 12)
        self.next = nn.Linear(12, 20)

    def forward(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        seen, _ = self.encoder(self.words(input_ids))
        state = torch.tanh(seen.mean(1)[:, :12])
        word, logits = input_ids[:, 0], []
        for _ in range(5):
            wide = state.unsqueeze(1).expand(-1, seen.shape[1], -1)
            look = self.look(torch.cat((seen, wide), -1)).softmax(1)
            context = (look * seen).sum(1)
            state = self.cell(torch.cat((self.words(word), context), -1), state)
            logits.append(self.next(state))
            word = logits[-1].argmax(-1)
        return torch.stack(logits, 1), word


class TextCnn(nn.Module):
    """Convolutions over words, and the largest of each (Kim, 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(99, 12, padding_idx=0)
        self.widths = nn.ModuleList(nn.Conv1d(12, 6, width) for width in (2, 3, 4))
        self.classes = nn.Linear(18, 5)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.words(input_ids).transpose(1, 2)
        found = [F.relu(width(x)).amax(-1) for width in self.widths]
        return self.classes(torch.cat(found, 1))


TOKENS: Final = {
    "input_ids": integers(99, "batch", "tokens"),
    "attention_mask": mask("batch", "tokens"),
}
SIZES: Final = {"batch": 2, "tokens": 7}, {"batch": 3, "tokens": 12}


def step(heads: int) -> dict[str, Input]:
    """The inputs of a :class:`Decoder` whose cache has *heads* heads of 8."""
    cache = normal(1, "batch", heads, "past", 8)
    return {
        "input_ids": integers(99, "batch", "tokens"),
        "attention_mask": mask("batch", "total"),
        "keys": cache,
        "values": cache,
    }


STEPS: Final = (
    {"batch": 2, "tokens": 3, "past": 4, "total": 7},
    {"batch": 1, "tokens": 1, "past": 9, "total": 10},
    {"batch": 3, "tokens": 5, "past": 0, "total": 5},
)

ARCHITECTURES: Final = (
    Architecture("bert", bert, TOKENS, SIZES),
    Architecture("roberta", roberta, TOKENS, SIZES, without=SLOW),
    Architecture("deberta", deberta, TOKENS, SIZES),
    Architecture("gpt2", gpt2, step(heads=4), STEPS),
    Architecture("llama", llama, step(heads=2), STEPS),
    Architecture(
        "t5",
        T5,
        TOKENS | {"decoder_input_ids": integers(99, "batch", "written")},
        [{**sizes, "written": 4 + i} for i, sizes in enumerate(SIZES)],
        without=SLOW,
    ),
    Architecture(
        "mixture_of_experts",
        MixtureOfExperts,
        {"input_ids": TOKENS["input_ids"]},
        SIZES,
    ),
    Architecture(
        "attention_seq2seq",
        AttentionSeq2Seq,
        {"input_ids": integers(20, "batch", "tokens")},
        SIZES,
        without=SLOW,
    ),
    Architecture("text_cnn", TextCnn, {"input_ids": TOKENS["input_ids"]}, SIZES),
)
