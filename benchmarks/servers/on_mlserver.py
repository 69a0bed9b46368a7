"""The model of ``serving.py`` behind MLServer, as a custom runtime on ONNX Runtime.

    PYTHON on_mlserver.py MODEL BATCH WORKERS PORT GRPC_PORT

needs ``mlserver`` and ``onnxruntime``.  WORKERS: processes that it runs the model in;
0: its own.
"""

from __future__ import annotations

import asyncio
import sys

import onnxruntime
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.settings import ModelParameters
from mlserver.types import InferenceRequest, InferenceResponse


class Perceptron(MLModel):
    """Runs the model that its settings name, with one thread."""

    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            self.settings.parameters.uri, options, providers=["CPUExecutionProvider"]
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        (given,) = payload.inputs
        x = NumpyCodec.decode_input(given)
        (y,) = self._session.run(None, {"x": x})
        output = NumpyCodec.encode_output(self._session.get_outputs()[0].name, y)
        return InferenceResponse(model_name=self.name, outputs=[output])


async def main() -> None:
    path, batch, workers, port, grpc_port = sys.argv[1:]
    settings = Settings(
        host="127.0.0.1",
        http_port=int(port),
        grpc_port=int(grpc_port),
        metrics_endpoint=None,
        parallel_workers=int(workers),
        debug=False,
        logging_settings={"version": 1, "root": {"level": "ERROR"}},
    )
    size = int(batch)
    model = ModelSettings(
        name="perceptron",
        implementation=Perceptron,
        parameters=ModelParameters(uri=path),
        # it joins nothing without a time, in s, for which it waits
        max_batch_size=size if size > 1 else 0,
        max_batch_time=0.001 if size > 1 else 0.0,
    )
    await MLServer(settings).start([model])


if __name__ == "__main__":
    asyncio.run(main())
