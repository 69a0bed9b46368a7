"""ONNX Runtime's operators on images with their channels in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug.ep import Domain, GraphEditor, Operator
from onnxplug_microsoft import types
from onnxplug_microsoft.names import NCHWC


def _rewrite(editor: GraphEditor) -> Sequence[str]:
    from onnxplug_microsoft.blocks import rewrite

    return rewrite(editor)


BLOCKS: Final = Domain(
    name=NCHWC,
    spi_version=(1, 0),
    operators=tuple(
        Operator(op_type=op_type, rewrite=_rewrite, infer_types=rule)
        for op_type, rule in (
            ("AveragePool", "AveragePool"),
            ("Conv", "Conv"),
            ("GlobalAveragePool", "GlobalAveragePool"),
            ("GlobalMaxPool", "GlobalMaxPool"),
            ("MaxPool", "MaxPool"),
            ("ReorderInput", types.reorder_input),
            ("ReorderOutput", types.reorder_output),
            ("Upsample", types.upsample),
        )
    ),
)
