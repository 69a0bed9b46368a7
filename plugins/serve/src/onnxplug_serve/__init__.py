"""Serves ONNX models by the Open Inference Protocol, over HTTP and gRPC."""

from onnxplug_serve.errors import RequestError
from onnxplug_serve.server import Server
from onnxplug_serve.settings import Batching, Limits, Settings

__all__ = ["Batching", "Limits", "RequestError", "Server", "Settings"]
