"""Writes an architecture as an ONNX file, by either of PyTorch's exporters."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from .architecture import Architecture, Exporter


def export(
    architecture: Architecture, exporter: Exporter, path: Path, opset: int | None = None
) -> None:
    """Export *architecture* to *path*, with the axes left open that it names.

    Without *opset* the exporter chooses it.
    """
    given = architecture.draw(architecture.sizes[0])
    axes = {name: spec.dynamic() for name, spec in architecture.inputs.items()}
    model, args, names = architecture.model(), tuple(given.values()), list(given)
    with warnings.catch_warnings():
        # of what it traces, of itself and of its future: its own affair, all of it
        warnings.simplefilter("ignore")
        if exporter == "torchscript":
            torch.onnx.export(
                model,
                args,
                path,
                input_names=names,
                opset_version=opset,
                dynamic_axes=axes,
                dynamo=False,
            )
        else:
            torch.onnx.export(
                model,
                args,
                path,
                input_names=names,
                opset_version=opset,
                dynamic_shapes=tuple(axes.values()),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
