"""The model of ``serving.py`` behind Ray Serve, on ONNX Runtime.

    PYTHON on_ray.py MODEL BATCH PORT

needs ``ray[serve]`` and ``onnxruntime``.  It answers requests of the Open Inference
Protocol as far as ``serving.py`` sends them.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Any

import numpy as np
import onnxruntime
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

TRIES = 5

HEADER_LENGTH = "inference-header-content-length"


@serve.deployment(num_replicas=1, max_ongoing_requests=100)
class Perceptron:
    """Runs the model with one thread."""

    def __init__(self, path: str, batch: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self._output = self._session.get_outputs()[0].name
        self._joins = batch > 1

    async def __call__(self, request: Request) -> Response:
        if request.method == "GET":
            return JSONResponse({})
        body = await request.body()
        length = request.headers.get(HEADER_LENGTH)
        head = json.loads(body if length is None else body[: int(length)])
        (given,) = head["inputs"]
        if length is None:
            x = np.array(given["data"], np.float32).reshape(given["shape"])
        else:
            x = np.frombuffer(body[int(length) :], np.float32).reshape(given["shape"])
        y = await self._joined(x) if self._joins else self._run(x)
        told = {"name": self._output, "datatype": "FP32", "shape": list(y.shape)}
        answer: dict[str, Any] = {"model_name": "perceptron", "outputs": [told]}
        if length is None:
            told["data"] = y.reshape(-1).tolist()
            return JSONResponse(answer)
        told["parameters"] = {"binary_data_size": y.nbytes}
        text = json.dumps(answer).encode()
        headers = {HEADER_LENGTH: str(len(text))}
        return Response(text + y.tobytes(), headers=headers)

    def _run(self, x: Any) -> Any:
        return self._session.run(None, {"x": x})[0]

    @serve.batch(max_batch_size=16, batch_wait_timeout_s=0.001)
    async def _joined(self, rows: list[Any]) -> list[Any]:
        return np.split(self._run(np.concatenate(rows)), len(rows))


def begin() -> None:
    """Start a cluster of this machine alone; Ray gives up after 30 s, which is too soon
    for machines with much to do."""
    for left in reversed(range(TRIES)):
        try:
            ray.init(
                "local", num_cpus=2, include_dashboard=False,
                object_store_memory=100 << 20, logging_level="ERROR",
                log_to_driver=False,
            )  # fmt: skip
        except Exception as error:
            if "timed out during startup" not in str(error) or not left:
                raise
            ray.shutdown()
        else:
            return


def main() -> None:
    path, batch, port = sys.argv[1:]
    begin()
    serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
    serve.run(Perceptron.bind(path, int(batch)))
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
