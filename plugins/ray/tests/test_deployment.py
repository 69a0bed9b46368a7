"""A deployment of Ray Serve, asked over HTTP and by handles."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import ray
from ray import serve

import onnxplug_ray
from onnxplug_serve import Batching, Limits, Settings


@pytest.fixture(scope="module")
def port(nodes):
    """Where Ray Serve listens, on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": number})
    yield number
    serve.shutdown()


@pytest.fixture(scope="module")
def deployed(port, nodes, tmp_path_factory):
    """A handle of a deployment on the node ``second``, with batches of 16."""
    import onnx

    text = "scale (float[N, 4] x) => (float[N, 4] y) { y = Mul (x, s) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{text}')
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array(2, np.float32), "s")
    )
    application = onnxplug_ray.deployment(
        {"scale": onnxplug_ray.share(model, name="deployed")},
        Settings(
            batching=Batching(size=16, delay=0.05), limits=Limits(request_bytes=1 << 16)
        ),
        ray_actor_options={"num_cpus": 1, "resources": {"second": 1}},
        health_check_period_s=1,
    )
    return serve.run(application)


def ask(port: int, path: str, body=None):
    """The JSON of an answer, and its headers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data)
    with urllib.request.urlopen(request, timeout=30) as answer:
        content = answer.read()
        is_json = answer.headers["content-type"] == "application/json"
        return (json.loads(content) if is_json else content.decode()), answer.headers


def row(value: float):
    return {
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [value] * 4}
        ]
    }


def test_it_answers_by_the_protocol_and_says_where(deployed, port) -> None:
    found, headers = ask(port, "/v2/models/scale/infer", row(3))
    assert found["outputs"][0]["data"] == [6.0] * 4
    assert headers["onnxplug-eps"] == "CPUExecutionProvider"
    second = next(
        node for node in ray.nodes() if node["Alive"] and "second" in node["Resources"]
    )
    assert second["NodeID"][:8] in headers["onnxplug-node"]
    found, _ = ask(port, "/v2/models/scale")
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    found, _ = ask(port, "/v2/health/ready")
    assert found == {"ready": True}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v2/models/none/infer", row(1), 404),
        ("/v2/models/scale/infer", {"inputs": []}, 400),
        ("/v2/models/scale/infer", row(1.5e-30) | {"pad": "x" * (1 << 17)}, 413),
        ("/elsewhere", None, 404),
    ],
)
def test_it_refuses_as_the_server_does(deployed, port, path, body, status) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(port, path, body)
    assert caught.value.code == status
    assert json.load(caught.value)["error"]


def test_requests_are_joined_and_counted(deployed, port) -> None:
    answers = [
        deployed.infer.remote("scale", {"x": np.full((1, 4), n, np.float32)})
        for n in range(32)
    ]
    for n, answer in enumerate(answers):
        np.testing.assert_array_equal(answer.result(timeout_s=60)["y"], [[2.0 * n] * 4])
    text, _ = ask(port, "/metrics")
    values = dict(
        line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")
    )
    labels = '{model="scale",version="1"}'
    runs = float(values[f"onnxplug_run_requests_count{labels}"])
    requests = float(values[f"onnxplug_run_requests_sum{labels}"])
    assert requests >= 32
    assert runs < requests


def test_a_replica_that_cannot_load_says_why(port, tmp_path) -> None:
    application = onnxplug_ray.deployment(
        {"none": tmp_path / "none.onnx"}, name="none", max_constructor_retry_count=1
    )
    with pytest.raises(RuntimeError):
        serve.run(application, name="none", route_prefix="/none")
    status = serve.status().applications["none"]
    assert "on node 127.0.0.1" in str(status)
    assert "none.onnx" in str(status)
    serve.delete("none")


def test_a_node_without_the_ep_says_so(port, scale) -> None:
    application = onnxplug_ray.deployment(
        {"scale": scale},
        Settings(providers=["cuda"]),
        name="cuda",
        max_constructor_retry_count=1,
    )
    with pytest.raises(RuntimeError):
        serve.run(application, name="cuda", route_prefix="/cuda")
    status = str(serve.status().applications["cuda"])
    assert "has not the EP CUDAExecutionProvider" in status
    serve.delete("cuda")


def test_a_node_exports_the_metrics_among_rays(deployed, port) -> None:
    ask(port, "/v2/models/scale/infer", row(3))
    ports = {node["MetricsExportPort"] for node in ray.nodes() if node["Alive"]}
    wanted = 'ray_onnxplug_run_requests_count{.*model="scale".*} ([0-9.]+)'
    end = time.monotonic() + 60
    while time.monotonic() < end:
        texts = [exported(each) for each in ports]
        found = [re.search(wanted, text) for text in texts]
        if any(each and float(each[1]) >= 1 for each in found):
            return
        time.sleep(1)
    pytest.fail("no node exports onnxplug_run_requests_count")


def exported(port: int) -> str:
    """What a node tells Prometheus."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as text:
        return text.read().decode()
