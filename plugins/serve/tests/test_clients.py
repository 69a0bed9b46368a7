"""The public clients run against the server as they are."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

MODULES = {"http": tritonclient.http, "grpc": tritonclient.grpc}

pytestmark = pytest.mark.parametrize("protocol", ["http", "grpc"])


def _input(protocol: str, name: str, datatype: str, array: Any, **more: Any) -> Any:
    made = MODULES[protocol].InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, **more)
    return made


def test_health_and_metadata(served, protocol: str) -> None:
    client = served.client(protocol)
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("layer") and client.is_model_ready("layer", "1")
    assert not client.is_model_ready("nothing")
    assert not client.is_model_ready("layer", "2")
    more = {} if protocol == "http" else {"as_json": True}
    server = client.get_server_metadata(**more)
    assert server["name"] == "onnxplug"
    assert "binary_tensor_data" in server["extensions"]
    model = client.get_model_metadata("layer", **more)
    assert model["platform"] == "onnx_onnxv1" and model["versions"] == ["1"]
    (given,) = model["inputs"]
    assert (given["name"], given["datatype"]) == ("x", "FP32")
    assert [int(size) for size in given["shape"]] == [-1, 4]


@pytest.mark.parametrize("binary", [True, False])
def test_results_are_right(served, folder, protocol: str, binary: bool) -> None:
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    more = {"binary_data": binary} if protocol == "http" else {}
    output = MODULES[protocol].InferRequestedOutput("y", **more)
    client = served.client(protocol)
    found = client.infer(
        "layer",
        [_input(protocol, "x", "FP32", x, **more)],
        outputs=[output],
        request_id="42",
    )
    weights = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    expected = np.tanh(x.astype(np.float64) @ weights)
    np.testing.assert_allclose(found.as_numpy("y"), expected, rtol=1e-5, atol=1e-6)
    told = found.get_response()
    assert (told["id"] if protocol == "http" else told.id) == "42"


TYPES = {
    "bool": ("BOOL", np.bool_),
    "uint8": ("UINT8", np.uint8),
    "uint16": ("UINT16", np.uint16),
    "uint32": ("UINT32", np.uint32),
    "uint64": ("UINT64", np.uint64),
    "int8": ("INT8", np.int8),
    "int16": ("INT16", np.int16),
    "int32": ("INT32", np.int32),
    "int64": ("INT64", np.int64),
    "float16": ("FP16", np.float16),
    "float": ("FP32", np.float32),
    "double": ("FP64", np.float64),
}


def _extremes(dtype: Any) -> Any:
    if dtype is np.bool_:
        return np.array([[False, True]])
    if np.dtype(dtype).kind == "f":
        limits = np.finfo(dtype)
        return np.array([[limits.max, -limits.tiny], [1.5, -0.0]], dtype)
    limits = np.iinfo(dtype)
    return np.array([[limits.min, limits.max], [1, 0]], dtype)


@pytest.mark.parametrize("binary", [True, False])
def test_every_datatype_travels(served, protocol: str, binary: bool) -> None:
    if protocol == "grpc" and not binary:
        pytest.skip("Triton's client for gRPC sends raw contents only")
    inputs, expected = [], {}
    for name, (datatype, dtype) in TYPES.items():
        array = _extremes(dtype)[:1]
        more = {}
        if protocol == "http" and datatype != "FP16":
            more["binary_data"] = binary
        inputs.append(_input(protocol, f"{name}_in", datatype, array, **more))
        expected[f"{name}_out"] = array
    values = np.array([[1.5, -2.25]], ml_dtypes.bfloat16)
    inputs.append(_input(protocol, "bfloat16_in", "BF16", values))
    more = {} if protocol == "grpc" else {"binary_data": binary}
    outputs = [
        MODULES[protocol].InferRequestedOutput(name, **more)
        for name in (*expected, "bfloat16_out")
    ]
    if protocol == "http" and not binary:
        # the client cannot read these from JSON, nor write the first
        outputs = [each for each in outputs if each.name() != "bfloat16_out"]
    found = served.client(protocol).infer("every", inputs, outputs=outputs)
    for name, array in expected.items():
        given = found.as_numpy(name)
        assert given.dtype == array.dtype, name
        np.testing.assert_array_equal(given, array, name)
    if binary:
        given = found.as_numpy("bfloat16_out")
        np.testing.assert_array_equal(given, values)


@pytest.mark.parametrize("binary", [True, False])
def test_texts_travel(served, protocol: str, binary: bool) -> None:
    more = {"binary_data": binary} if protocol == "http" else {}
    first = np.array(["", "ü", "a\n"], object)
    second = np.array(["x", "", "字"], object)
    found = served.client(protocol).infer(
        "text",
        [
            _input(protocol, "a", "BYTES", first, **more),
            _input(protocol, "b", "BYTES", second, **more),
        ],
        outputs=[MODULES[protocol].InferRequestedOutput("c", **more)],
    )
    texts = [
        each.decode() if isinstance(each, bytes) else each
        for each in found.as_numpy("c")
    ]
    assert texts == ["x", "ü", "a\n字"]


def test_nothing_travels_in_tensors_of_no_elements(served, protocol: str) -> None:
    x = np.empty((0, 4), np.float32)
    found = served.client(protocol).infer("layer", [_input(protocol, "x", "FP32", x)])
    assert found.as_numpy("y").shape == (0, 3)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_bodies(served, protocol: str, algorithm: str) -> None:
    x = np.ones((500, 4), np.float32)
    more = (
        {
            "request_compression_algorithm": algorithm,
            "response_compression_algorithm": algorithm,
        }
        if protocol == "http"
        else {"compression_algorithm": algorithm}
    )
    found = served.client(protocol).infer(
        "layer", [_input(protocol, "x", "FP32", x)], **more
    )
    assert found.as_numpy("y").shape == (500, 3)


def test_what_is_wrong_is_said(served, protocol: str) -> None:
    client = served.client(protocol)
    x = _input(protocol, "x", "FP32", np.ones((1, 4), np.float32))
    wide = _input(protocol, "x", "FP32", np.ones((1, 5), np.float32))
    whole = _input(protocol, "x", "INT32", np.ones((1, 4), np.int32))
    other = _input(protocol, "z", "FP32", np.ones((1, 4), np.float32))
    for model, inputs, words in (
        ("nothing", [x], "there is no model 'nothing'"),
        ("layer", [], "input 'x' is missing"),
        ("layer", [x, other], "no input 'z'"),
        ("layer", [x, x], "twice"),
        ("layer", [wide], "x"),
        ("layer", [whole], "x"),
    ):
        with pytest.raises(InferenceServerException) as found:
            client.infer(model, inputs)
        assert words in str(found.value)
        status = str(found.value.status())
        expected = ("404", "NOT_FOUND") if model == "nothing" else ("400", "INVALID")
        assert any(each in status for each in expected), status
    with pytest.raises(InferenceServerException, match="no version '7'"):
        client.infer("layer", [x], model_version="7")


def test_a_run_that_takes_too_long_is_cancelled(served, protocol: str) -> None:
    x = _input(protocol, "x", "FP32", np.ones(1, np.float32))
    client = served.client(protocol)
    with pytest.raises(InferenceServerException, match=r"longer than|waited"):
        client.infer("endless", [x], timeout=200_000)  # µs
    # nothing of it is left to be waited for
    with pytest.raises(InferenceServerException, match="longer than"):
        client.infer("endless", [x], timeout=200_000)


def test_models_are_unloaded_and_loaded(served, protocol: str) -> None:
    client = served.client(protocol)
    client.unload_model("mean")
    assert not client.is_model_ready("mean")
    client.load_model("mean")
    assert client.is_model_ready("mean")
    with pytest.raises(InferenceServerException, match="not taken from the network"):
        client.load_model("mean", config="{}")
    with pytest.raises(InferenceServerException, match=r"no model|not answered"):
        client.load_model("../../etc/passwd")


def test_metrics_count(served, protocol: str) -> None:
    x = _input(protocol, "x", "FP32", np.ones((1, 4), np.float32))
    series = (
        f'onnxplug_requests_total{{model="layer",protocol="{protocol}",status="200"}}'
    )

    def count() -> float:
        with urllib.request.urlopen(f"http://{served.http}/metrics") as answer:
            text = answer.read().decode()
        lines = [line for line in text.splitlines() if line.startswith(series)]
        return float(lines[0].split()[-1]) if lines else 0.0

    before = count()
    served.client(protocol).infer("layer", [x])
    assert count() == before + 1


def test_the_index_lists_models(served, protocol: str) -> None:
    found = served.client(protocol).get_model_repository_index()
    if protocol == "grpc":
        names = {each.name for each in found.models}
    else:
        names = {each["name"] for each in found}
        with urllib.request.urlopen(
            urllib.request.Request(
                f"http://{served.http}/v2/repository/index",
                json.dumps({"ready": True}).encode(),
            )
        ) as answer:
            assert {each["state"] for each in json.load(answer)} == {"READY"}
    assert {"scale", "layer", "mean", "every", "text", "endless"} <= names
