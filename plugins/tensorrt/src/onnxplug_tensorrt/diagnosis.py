"""What ``onnxplug doctor`` says of TensorRT, and of what is missing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from onnxplug import ep
from onnxplug_tensorrt.installation import (
    cuda_major,
    find_tensorrt,
    import_tensorrt,
    install,
    problem,
)


def findings(load: Callable[[], Any] = import_tensorrt) -> Iterator[ep.Finding]:
    """TensorRT, and whether it fits CUDA; loads it, and makes no context on a GPU."""
    wrong = problem()
    if wrong:
        yield ep.Finding(
            level=ep.Level.ERROR, message=wrong.reason, remedy=wrong.remedy
        )
        return
    found = find_tensorrt()
    try:
        tensorrt = load()
    # a broken installation raises what it likes; it is what is asked for here
    except Exception as error:  # noqa: BLE001
        ep.raise_interruption(error)
        yield ep.Finding(level=ep.Level.ERROR, message=str(error), remedy=install())
        return
    cuda = f", for CUDA {found.major}" if found and found.major else ""
    parser = tensorrt.get_nv_onnx_parser_version()
    yield ep.Finding(
        level=ep.Level.OK,
        message=f"TensorRT {tensorrt.__version__}{cuda}, with parser {parser}",
    )
    if not cuda_major():
        yield ep.Finding(
            level=ep.Level.ERROR,
            message="the CUDA EP, in whose memory TensorRT works, has no CuPy",
            remedy=install(),
        )
