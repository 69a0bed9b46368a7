"""Serves ONNX models by the Open Inference Protocol, over HTTP and gRPC."""

from typing import Final

from onnxplug_serve.errors import RequestError
from onnxplug_serve.server import Server
from onnxplug_serve.settings import Batching, Limits, Settings

__version__: Final = "0.1.0"

__all__ = ["Batching", "Limits", "RequestError", "Server", "Settings"]
