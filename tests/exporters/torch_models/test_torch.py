"""Models as PyTorch exports them, against PyTorch's own outputs.

Every architecture is exported by both exporters, unless its table says why not, with
the axes left open along which it may grow; then run at the sizes it was exported with
and at others.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
import pytest

pytest.importorskip("torch", reason="make test-exporters installs it")
pytest.importorskip("transformers", reason="make test-exporters installs it")

import torch
from torch import Tensor

import onnxplug
from onnxplug.errors import ModelWarning

from . import control_flow, convolutional, speech, structured, text, vision
from .architecture import EXPORTERS, Architecture, Exporter
from .export import export
from .known_sizes import known_sizes

ARCHITECTURES: Final = {
    architecture.name: architecture
    for architecture in chain(
        convolutional.ARCHITECTURES,
        vision.ARCHITECTURES,
        text.ARCHITECTURES,
        speech.ARCHITECTURES,
        structured.ARCHITECTURES,
        control_flow.ARCHITECTURES,
    )
}

# Roundings of float32 were seen to add up to 3e-6 of an output's largest value.  What
# is only nearly right shows: GELU by its approximation, say, is 1e-4 off.
TOLERANCE: Final = 2e-5


def assert_agrees(
    path: Path, architecture: Architecture, tolerance: float = TOLERANCE
) -> None:
    """That *path* runs at all sizes, compiled and on arrays, and gives torch's outputs.

    Those are computed in float32.  Shapes and dtypes are the same; floats differ by no
    more than *tolerance* of an output's largest value, all else not at all.
    """
    exact = replace(architecture, dtype=torch.float32)
    model = exact.model()
    for compiles in (True, False):
        cpu = "CPUExecutionProvider", {"compile": compiles}
        session = onnxplug.InferenceSession(path, providers=[cpu])
        for sizes in architecture.sizes:
            drawn = architecture.draw(sizes)
            found = session.run(None, {name: array(x) for name, x in drawn.items()})
            for about, ours, theirs in zip(
                session.get_outputs(),
                found,
                outputs(model, exact.draw(sizes)),
                strict=True,
            ):
                case = f"{about.name} at {dict(sizes)}, compile={compiles}"
                floats = theirs.is_floating_point()
                dtype = architecture.dtype if floats else theirs.dtype
                assert ours.dtype == array(theirs.to(dtype)).dtype, case
                assert ours.shape == theirs.shape, case
                scale = float(theirs.abs().max()) if floats and theirs.numel() else 0
                np.testing.assert_allclose(
                    ours.astype(np.float64) if floats else ours,
                    theirs,
                    rtol=0,
                    atol=tolerance * scale,
                    err_msg=case,
                )


def outputs(model: torch.nn.Module, drawn: Mapping[str, Tensor]) -> Sequence[Tensor]:
    """What torch computes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of its own functions
        computed = model(*drawn.values())
    return (computed,) if isinstance(computed, Tensor) else computed


def array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The same elements for numpy, which torch thinks has no bfloat16."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


@pytest.mark.parametrize(
    ("name", "exporter"),
    [
        (name, exporter)
        for name, architecture in ARCHITECTURES.items()
        for exporter in EXPORTERS
        if exporter not in architecture.without
    ],
)
def test_an_exported_model_agrees_with_torch(
    name: str, exporter: Exporter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    architecture, path = ARCHITECTURES[name], tmp_path / "model.onnx"
    export(architecture, exporter, path)
    with expected_warning(architecture.misdeclared.get(exporter)):
        assert_agrees(path, architecture)
        known, total = known_sizes(path)
    assert not [log for log in caplog.records if log.name.startswith("onnxplug")]
    # if it gets better, the table is to say so
    assert (known < 0.98 * total) == (exporter in architecture.sizes_of_runs)


def expected_warning(pattern: str | None) -> AbstractContextManager[Any]:
    """Every warning of ours fails a test, but for one that is right and must be."""
    if pattern is None:
        return nullcontext()
    return pytest.warns(ModelWarning, match=pattern)


@pytest.mark.parametrize(
    ("name", "exporter", "opset"),
    [
        ("densenet", "torchscript", 7),
        ("crnn", "torchscript", 9),
        ("attention_seq2seq", "torchscript", 9),
        ("style_transfer", "torchscript", 10),
        ("unet", "torchscript", 11),
        ("centernet", "torchscript", 11),
        ("deep_and_cross", "torchscript", 11),
        ("mixture_of_experts", "torchscript", 12),
        ("bert", "torchscript", 14),
        ("llama", "dynamo", 23),  # writes Attention and RotaryEmbedding
    ],
)
def test_a_model_of_another_opset_agrees_with_torch(
    name: str, exporter: Exporter, opset: int, tmp_path: Path
) -> None:
    architecture, path = ARCHITECTURES[name], tmp_path / "model.onnx"
    export(architecture, exporter, path, opset)
    (standard,) = (
        imported.version
        for imported in onnx.load(path).opset_import
        if not imported.domain
    )
    assert standard == opset
    assert_agrees(path, architecture)


@pytest.mark.parametrize(
    ("name", "exporter", "dtype"),
    [
        ("unet", "torchscript", torch.float16),
        ("crnn", "torchscript", torch.float16),
        ("convnext", "dynamo", torch.float16),
        ("efficientnet", "torchscript", torch.bfloat16),
        ("tcn", "dynamo", torch.bfloat16),
    ],
)
def test_a_model_of_half_precision_is_as_near_as_torch(
    name: str, exporter: Exporter, dtype: torch.dtype, tmp_path: Path
) -> None:
    architecture = replace(ARCHITECTURES[name], dtype=dtype)
    path = tmp_path / "model.onnx"
    export(architecture, exporter, path)
    # torch's own outputs of these models differ by 1.3 of it from those in float32
    assert_agrees(path, architecture, tolerance=2 * torch.finfo(dtype).eps)
