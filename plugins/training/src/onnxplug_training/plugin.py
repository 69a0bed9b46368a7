"""The hook by which onnxplug finds the operators."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug import ep
from onnxplug_training.names import DOMAIN


@ep.hookimpl
def onnxplug_domains(host: ep.Host) -> Sequence[ep.Domain]:
    """The domain of the training operators."""
    from onnxplug_training import optimizers

    return [
        ep.Domain(
            name=DOMAIN,
            spi_version=(1, 0),
            operators=[
                ep.Operator(
                    op_type="Gradient", rewrite=_differentiate, infer_types=_as_inputs
                ),
                *(
                    ep.Operator(
                        op_type=name,
                        kernel=optimizers.KERNELS.function_of,
                        infer_types=optimizers.types,
                    )
                    for name in ("Adagrad", "Adam", "Momentum")
                ),
            ],
        )
    ]


def _differentiate(editor: ep.GraphEditor) -> Sequence[str]:
    from onnxplug_training.gradient import differentiate

    return differentiate(editor)


def _as_inputs(
    graph: ep.Graph, node: ep.Node, inputs: Sequence[ep.ValueType | None]
) -> Sequence[ep.ValueType | None]:
    """The derivative by a tensor is of its type; those of ``xs`` come first."""
    return inputs[: len(node.outputs)]
