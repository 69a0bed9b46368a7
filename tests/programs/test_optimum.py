"""Optimum's classes on ONNX Runtime, of small models with random weights."""

from __future__ import annotations

from .conftest import SameOnBoth

EXPORT = """
import tempfile
import torch
from optimum.exporters.onnx import onnx_export_from_model
from optimum.onnxruntime import (
    AutoOptimizationConfig, AutoQuantizationConfig, ORTModelForCausalLM,
    ORTModelForSequenceClassification, ORTOptimizer, ORTQuantizer,
)
from transformers import (
    BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel,
    LlamaConfig, LlamaForCausalLM,
)

torch.set_num_threads(1)
torch.manual_seed(0)
ids = torch.randint(2, 90, (2, 7))
mask = torch.ones_like(ids)
mask[1, :3] = 0
small = dict(vocab_size=100, bos_token_id=1, eos_token_id=99, pad_token_id=0)
bert = BertForSequenceClassification(BertConfig(
    hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
    **small,
)).eval()
gpt_2 = GPT2LMHeadModel(GPT2Config(
    n_embd=32, n_layer=2, n_head=2, n_positions=64, **small
)).eval()
llama = LlamaForCausalLM(LlamaConfig(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, **small,
)).eval()

def exported(model, task):
    folder = tempfile.mkdtemp(dir=".")
    onnx_export_from_model(model, folder, task=task, opset=18)
    return folder
"""
AS_THEY_ARE = """
given = dict(input_ids=ids, attention_mask=mask, token_type_ids=torch.zeros_like(ids))
folder = exported(bert, "text-classification")
found = ORTModelForSequenceClassification.from_pretrained(folder)(**given).logits
torch.testing.assert_close(found, bert(**given).logits, atol=1e-4, rtol=1e-4)
results["logits"] = found.numpy()
for model in (gpt_2, llama):
    folder = exported(model, "text-generation-with-past")
    for bound in (False, True):
        ours = ORTModelForCausalLM.from_pretrained(folder, use_io_binding=bound)
        for beams in (1, 3):
            given = dict(attention_mask=mask, max_new_tokens=12, num_beams=beams)
            found = ours.generate(ids, do_sample=False, **given)
            expected = model.generate(ids, do_sample=False, **given)
            assert torch.equal(found, expected), (bound, beams)
            results[f"{type(model)} {bound} {beams}"] = found.numpy()
"""
REWRITTEN = """
folder = exported(gpt_2, "text-generation-with-past")
ORTQuantizer.from_pretrained(folder).quantize(
    AutoQuantizationConfig.avx2(is_static=False), save_dir=folder + "/quantized"
)
ORTOptimizer.from_pretrained(ORTModelForCausalLM.from_pretrained(folder)).optimize(
    AutoOptimizationConfig.O2(), save_dir=folder + "/optimized"
)
for name in ("quantized", "optimized"):
    ours = ORTModelForCausalLM.from_pretrained(
        f"{folder}/{name}", file_name=f"model_{name}.onnx"
    )
    results[name] = ours(ids, attention_mask=mask).logits.numpy()
    found = ours.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False)
    results[f"tokens, {name}"] = found.numpy()
"""


def test_models_classify_and_generate_the_same(same_on_both: SameOnBoth) -> None:
    """With a cache, greedily and by beams, with and without IOBinding; as PyTorch."""
    results = same_on_both("optimum", EXPORT + AS_THEY_ARE, {"logits": 1e-5})
    tokens = [result for name, result in results.items() if name != "logits"]
    assert [each.shape for each in tokens] == [(2, 19)] * 8


def test_models_in_8_bits_or_with_fused_operators_generate_the_same(
    same_on_both: SameOnBoth,
) -> None:
    """Optimum's quantizer and optimizer write them, which run on the runtime, too."""
    tolerances = {"quantized": 1e-4, "optimized": 1e-4}
    results = same_on_both("optimum", EXPORT + REWRITTEN, tolerances)
    assert results["tokens, quantized"].shape == (2, 19)
    assert abs(results["quantized"] - results["optimized"]).max() > 1e-3
