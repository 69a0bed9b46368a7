"""Loading: against onnx's own reading, and against hand-made models."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxplug.errors import InvalidModel, ModelNotFound, UnsupportedModel
from onnxplug.graph import Graph, Model
from onnxplug.graph.load import load_model, parse_function

Compare = Callable[[Model, onnx.ModelProto], None]

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
IDENTITY = helper.make_node("Identity", ["x"], ["y"], name="only")


def model_of(
    nodes: Any = (IDENTITY,),
    inputs: Any = (X,),
    outputs: Any = (Y,),
    initializers: Any = (),
    **fields: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "main", list(inputs), list(outputs), list(initializers)
    )
    return helper.make_model(graph, **fields)


def graph_of(*args: Any, **fields: Any) -> Graph:
    return load_model(model_of(*args, **fields)).graph


# onnx's own models


def test_stored_models_equal_onnx_s_own_reading(
    stored_models: dict[str, onnx.ModelProto], assert_same: Compare
) -> None:
    assert len(stored_models) > 100
    for proto in stored_models.values():
        assert_same(load_model(proto), proto)


@pytest.mark.slow
def test_node_models_equal_onnx_s_own_reading(
    node_models: dict[str, onnx.ModelProto], assert_same: Compare
) -> None:
    assert len(node_models) > 1500
    for proto in node_models.values():
        assert_same(load_model(proto), proto)


def test_every_function_of_onnx_s_schemas_is_read() -> None:
    import onnx.defs

    count = 0
    for schema in onnx.defs.get_all_schemas_with_history():
        for version in schema.function_opset_versions:
            data = schema.get_function_with_opset_version(version)
            function = parse_function(data)
            proto = onnx.FunctionProto.FromString(data)
            assert len(function.body.nodes) == len(proto.node)
            assert function.body.outputs == list(proto.output)
            count += 1
    assert count > 30


# sources


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(model_of(), path)
    return path


def sources(path: Path) -> Iterator[Any]:
    data = path.read_bytes()
    yield from (path, str(path), data, bytearray(data), memoryview(data))
    yield from (np.frombuffer(data, np.uint8), io.BytesIO(data), onnx.load(path))
    yield memoryview(np.repeat(np.frombuffer(data, np.uint8), 2))[::2]


def test_every_kind_of_source_is_read(path: Path) -> None:
    for source in sources(path):
        model = load_model(source)
        assert [node.op_type for node in model.graph.nodes] == ["Identity"]
        is_path = isinstance(source, str | os.PathLike)
        assert model.path == (str(path) if is_path else None)


def test_an_open_file_is_read_and_left_open(path: Path) -> None:
    with open(path, "rb") as file:
        assert load_model(file).graph.name == "main"
        assert not file.closed


def test_changing_a_buffer_afterwards_does_not_change_the_model() -> None:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "w")
    data = bytearray(model_of(initializers=[tensor]).SerializeToString())
    graph = load_model(data).graph
    data[:] = bytes(len(data))
    assert graph.constant("w").tolist() == [1, 1, 1, 1]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"gone\.onnx") as raised:
        load_model(tmp_path / "gone.onnx")
    assert isinstance(raised.value, FileNotFoundError)


def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="is a folder"):
        load_model(tmp_path)


@pytest.mark.parametrize("source", [42, None, ["a"], io.StringIO("text"), object()])
def test_other_sources_are_refused(source: Any) -> None:
    with pytest.raises(InvalidModel, match="expected a path, bytes"):
        load_model(source)


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(InvalidModel, match="cannot read"):
        load_model("a\0b")


def test_a_proto_that_cannot_be_serialized_says_what_to_do() -> None:
    class Huge:
        def SerializeToString(self) -> bytes:
            raise ValueError("exceeds maximum protobuf size of 2GB")

    with pytest.raises(InvalidModel, match="2GB; save it with its weights as external"):
        load_model(Huge())


@pytest.mark.parametrize(
    "data", [b"", b"\x08\x0a", b"# a script\nimport x\n", b"PK\3\4"]
)
def test_what_is_no_model_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidModel, match="cannot load a model from bytes"):
        load_model(data)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"")
    with pytest.raises(InvalidModel, match=r"m\.onnx.*found 0 graphs in its 0 bytes"):
        load_model(path)


# the model's own fields


def test_metadata_is_kept() -> None:
    proto = model_of(
        producer_name="me",
        producer_version="1.2",
        domain="org.example",
        model_version=7,
        doc_string="about",
        ir_version=9,
    )
    helper.set_model_props(proto, {"a": "1", "b": ""})
    model = load_model(proto)
    assert (model.producer_name, model.producer_version) == ("me", "1.2")
    assert (model.domain, model.model_version) == ("org.example", 7)
    assert (model.doc_string, model.ir_version) == ("about", 9)
    assert model.metadata == {"a": "1", "b": ""}


def test_the_two_names_of_onnx_s_domain_are_one() -> None:
    node = helper.make_node("Identity", ["x"], ["y"], domain="ai.onnx")
    imports = [helper.make_opsetid("ai.onnx", 15), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = graph_of([node], opset_imports=imports)
    assert graph.opset_imports == {"": 15, "ai.onnx.ml": 3}
    assert graph.nodes[0].domain == ""


def test_of_several_versions_of_a_domain_the_highest_counts() -> None:
    imports = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx", 13)]
    assert graph_of(opset_imports=imports).opset_imports == {"": 15}


@pytest.mark.parametrize("ir_version", [1, 2])
def test_before_ir_version_3_operators_have_version_1(ir_version: int) -> None:
    proto = model_of(ir_version=ir_version)
    del proto.opset_import[:]
    assert load_model(proto).graph.opset_imports == {"": 1}


def test_since_ir_version_3_a_model_imports_its_operators() -> None:
    proto = model_of(ir_version=3)
    del proto.opset_import[:]
    with pytest.raises(InvalidModel, match="IR version 3 and imports no operator set"):
        load_model(proto)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ir_version": 15}, "IR version 15, .* up to 14"),
        ({"opset_imports": [helper.make_opsetid("", 29)]}, "opset 29 .* up to 28"),
        (
            {"opset_imports": [helper.make_opsetid("ai.onnx.ml", 6)]},
            "opset 6 of domain 'ai.onnx.ml', .* up to 5",
        ),
    ],
)
def test_newer_models_say_what_was_found_and_what_is_read(
    fields: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UnsupportedModel, match=expected):
        graph_of(**fields)


def test_the_newest_model_is_read() -> None:
    imports = [helper.make_opsetid("", 28), helper.make_opsetid("ai.onnx.ml", 5)]
    assert graph_of(ir_version=14, opset_imports=imports).opset() == 28


def test_a_model_without_ir_version_is_refused() -> None:
    with pytest.raises(InvalidModel, match="IR version"):
        graph_of(ir_version=0)


def test_an_opset_without_version_is_refused() -> None:
    with pytest.raises(InvalidModel, match="version 0; versions start at 1"):
        graph_of(opset_imports=[helper.make_opsetid("", 0)])


def test_two_graphs_are_refused() -> None:
    data = model_of().SerializeToString()
    with pytest.raises(InvalidModel, match="found 2 graphs"):
        load_model(data + data)


# initializers


def test_initializers_that_are_inputs_are_defaults() -> None:
    tensor = numpy_helper.from_array(np.ones((2, 3), np.float32), "x")
    graph = graph_of(initializers=[tensor], ir_version=4)
    assert graph.inputs == []
    assert not graph.constants
    assert graph.defaults["x"].array.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert graph.value("x").shape == (2, "n")
    assert not graph.value("x").is_constant


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 1), (2,), ()])
def test_defaults_have_the_shape_that_is_declared(shape: tuple[int, ...]) -> None:
    tensor = numpy_helper.from_array(np.ones(shape, np.float32), "x")
    with pytest.raises(
        InvalidModel, match=r"'x'.*\[2, 'n'\].*give both the same shape"
    ):
        graph_of(initializers=[tensor], ir_version=4)


def test_sparse_initializers_of_inputs_are_dense_defaults() -> None:
    proto = model_of()
    values = numpy_helper.from_array(np.ones(1, np.float32), "x")
    indices = numpy_helper.from_array(np.array([4]))
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, indices, [2, 3])
    )
    sparse = helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [2, 3])
    proto.graph.input[0].type.CopyFrom(sparse)
    graph = load_model(proto).graph
    assert graph.defaults["x"].array.tolist() == [[0, 0, 0], [0, 1, 0]]
    assert graph.value("x").shape == (2, 3)


def test_before_ir_version_4_they_are_constants() -> None:
    tensor = numpy_helper.from_array(np.ones((2, 3), np.float32), "x")
    graph = graph_of(initializers=[tensor], ir_version=3)
    assert graph.inputs == []
    assert not graph.defaults
    assert graph.value("x").is_constant
    assert graph.value("x").shape == (2, 3)


# weight: of imports, of time, of memory


def in_fresh_python(code: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_loading_imports_neither_onnx_nor_protobuf_nor_ml_dtypes(path: Path) -> None:
    code = """
        import sys
        from onnxplug.graph.load import load_model
        load_model(sys.argv[1])
        print([m for m in ("onnx", "google.protobuf", "ml_dtypes") if m in sys.modules])
    """
    assert in_fresh_python(code, str(path)).strip() == "[]"


def test_weights_are_mapped_not_read(tmp_path: Path) -> None:
    """200 MB of weights load at once, and take memory only when they are used."""
    size = 200_000_000
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size // 4])
    tensor.raw_data = bytes(size)
    path = tmp_path / "large.onnx"
    path.write_bytes(model_of(initializers=[tensor]).SerializeToString())
    code = """
        import sys, time
        from onnxplug.graph.load import load_model

        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        before = resident()
        start = time.process_time()
        model = load_model(sys.argv[1])
        taken = time.process_time() - start
        print(taken, resident() - before)
        assert model.graph.constants["w"].nbytes == 200_000_000
    """
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    taken, grown = map(float, in_fresh_python(code, str(path)).split())
    assert taken < 0.1
    assert grown < 8_000_000


def test_a_large_graph_loads_quickly() -> None:
    nodes = [
        helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"/layer.{i}/Relu")
        for i in range(5000)
    ]
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("v5000", TensorProto.FLOAT, [1])
    data = model_of(nodes, [x], [y]).SerializeToString()
    start = time.process_time()
    load_model(data)
    assert time.process_time() - start < 1.0  # a tenth of it on an idle machine
