"""Values, bindings and feeds that programs written for ONNX Runtime use."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnxplug
import onnxplug_onnxruntime as ort
from onnxplug.errors import InvalidArgument, OutputMismatch, ValueTypeError

CPU = "CPUExecutionProvider"
RELU = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) '
    "{ y = Relu (x) }"
).SerializeToString()
NARROW = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
]


def value_of(array: Any) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array)


@pytest.mark.parametrize("name", [*NARROW, "float8_e8m0fnu"])
def test_narrow_types_go_out_and_in_by_dlpack(name: str) -> None:
    array = np.array([1, 2, 4, 0.5], getattr(ml_dtypes, name))
    value = value_of(array)
    for source in (value, value.__dlpack__(), value.__dlpack__(max_version=(1, 0))):
        back = onnxplug.OrtValue.from_dlpack(source)
        assert back.numpy().dtype == array.dtype
        assert back.data_ptr() == array.ctypes.data
        np.testing.assert_array_equal(back.numpy(), array)


@pytest.mark.parametrize("name", NARROW)
def test_narrow_types_are_exchanged_with_onnxruntime(name: str) -> None:
    """Which calls them by the same codes of DLPack, whichever of the two is asked."""
    array = np.array([1, 2, 4, 0.5], getattr(ml_dtypes, name))
    number = helper.np_dtype_to_tensor_dtype(array.dtype)
    bits = array.view(f"u{array.itemsize}")
    theirs = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)
    ours = onnxplug.OrtValue.from_dlpack(theirs)
    np.testing.assert_array_equal(ours.numpy(), array)
    assert ours.element_type() == number
    back = onnxruntime.OrtValue.from_dlpack(value_of(array))
    assert (back.element_type(), back.data_ptr()) == (number, array.ctypes.data)


def test_capsules_of_bytes_are_told() -> None:
    """Since booleans are exchanged as such, too."""
    for dtype in (np.uint8, np.int8, np.float32):
        array = np.zeros((2, 0), dtype)
        capsule = ort.OrtValue.ortvalue_from_numpy(array)._ortvalue.to_dlpack()
        assert ort.is_dlpack_uint8_tensor(capsule) is (dtype is np.uint8)
        back = ort.OrtValue.from_dlpack(capsule, False)
        assert (back.numpy().dtype, back.shape()) == (dtype, [2, 0])
    with pytest.raises(ValueTypeError, match="capsule that nobody has used"):
        ort.is_dlpack_uint8_tensor(capsule)


def test_a_capsule_is_used_once() -> None:
    capsule = value_of(np.float32([1, 2])).__dlpack__()
    assert onnxplug.OrtValue.from_dlpack(capsule).numpy().tolist() == [1, 2]
    with pytest.raises(ValueTypeError, match="capsule that nobody has used"):
        onnxplug.OrtValue.from_dlpack(capsule)
    for wrong in ("capsule", 3, None, [1.0]):
        with pytest.raises(TypeError, match="or a DLPack capsule"):
            onnxplug.OrtValue.from_dlpack(wrong)
    with pytest.raises((InvalidArgument, BufferError)):
        value_of(np.array([1], ml_dtypes.int4)).__dlpack__()


def test_arguments_have_the_names_of_onnxruntimes() -> None:
    for runtime in (onnxruntime, onnxplug, ort):
        session = runtime.InferenceSession(RELU, providers=[CPU])
        array, filled = np.float32([-1, 2]), np.zeros(2, np.float32)
        binding = session.io_binding()
        binding.bind_cpu_input(name="x", arr_on_cpu=array)
        value = runtime.OrtValue.ortvalue_from_numpy(filled)
        binding.bind_ortvalue_output(name="y", ortvalue=value)
        session.run_with_iobinding(iobinding=binding, run_options=None)
        assert filled.tolist() == [0, 2]
        value.update_inplace(data=np.float32([3, -4]))
        binding.bind_ortvalue_input(name="x", ortvalue=value)
        session.run_with_iobinding(binding)
        assert binding.copy_outputs_to_cpu()[0].tolist() == [3, 0]
        made = runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            np.uint16([0x3F80]), onnx_element_type=TensorProto.BFLOAT16
        )
        assert made.data_type() == "tensor(bfloat16)"


def test_outputs_of_a_binding_before_a_run_are_those_that_are_bound() -> None:
    session = onnxplug.InferenceSession(RELU)
    binding = session.io_binding()
    assert binding.get_outputs() == []
    value = value_of(np.zeros(2, np.float32))
    binding.bind_ortvalue_output("y", value)
    assert binding.get_outputs() == [value]


def test_void_items_are_taken_as_text() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (string[N] x) => (string[N] y) '
        "{ y = Identity (x) }"
    ).SerializeToString()
    items = np.array([b"must", b"have"], np.void)
    for runtime in (onnxruntime, onnxplug):
        session = runtime.InferenceSession(model, providers=[CPU])
        assert session.run(None, {"x": items})[0].tolist() == ["must", "have"]
    numbers = np.ones(2, ml_dtypes.bfloat16)  # of the same kind of dtype
    with pytest.raises(TypeError, match=r"tensor\(bfloat16\)"):
        onnxplug.InferenceSession(model).run(None, {"x": numbers})


def test_updating_from_what_is_no_array_is_a_type_error() -> None:
    value = value_of(np.zeros(2, np.float32))
    with pytest.raises(ValueTypeError, match="updated with a list"):
        value.update_inplace([1, 2])  # type: ignore[arg-type]
    with pytest.raises(OutputMismatch):
        value.update_inplace(np.zeros(2, np.float64))


# by ONNX Runtime's names


def test_sessions_run_on_vectors_of_values() -> None:
    session = ort.InferenceSession(RELU, providers=[CPU])
    feeds = ort.OrtValueVector()
    feeds.reserve(1)
    feeds.push_back(ort.OrtValue.ortvalue_from_numpy(np.float32([-1, 2])))
    fetches = ort.OrtValueVector()
    device = ort.OrtDevice.make("cpu", 0)
    session.run_with_ortvaluevector(None, ["x"], feeds, ["y"], fetches, [device])
    assert fetches[0].numpy().tolist() == [0, 2]
    assert fetches.element_type_at(0) == TensorProto.FLOAT
    assert fetches.bool_tensor_indices() == []
    arrays = fetches.to_dlpacks(onnxplug.OrtValue.from_dlpack)
    assert arrays[0].data_ptr() == fetches[0].data_ptr()
    fetches.push_back_batch([np.array([True])])
    assert fetches.bool_tensor_indices() == [1]
    with pytest.raises(InvalidArgument, match="as many of each"):
        session.run_with_ortvaluevector(None, ["x"], feeds, ["y"], fetches, [])


def test_values_of_a_run_have_all_methods() -> None:
    session = ort.InferenceSession(RELU, providers=[CPU])
    value = ort.OrtValue.ortvalue_from_numpy(np.float32([-1, 2]))
    (result,) = session.run_with_ort_values(None, {"x": value})
    assert isinstance(result, ort.OrtValue)
    assert result._get_c_value().__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(result._get_c_value()), [0, 2])
    made = session.create_ortvalue_from_shape_and_type([2, 3], np.float16, "cpu")
    assert (made.shape(), made.data_type()) == ([2, 3], "tensor(float16)")
    host = session.get_input_memory_infos()[0]
    other = ort.OrtValue.ortvalue_from_shape_and_type([2], 1, memory_info=host)
    assert (other.device_name(), other.data_type()) == ("cpu", "tensor(float)")


def test_tensors_are_copied_to_others() -> None:
    sources = [np.float32([1, 2]), np.int64([[3]])]
    targets = [np.zeros_like(source) for source in sources]
    ort.copy_tensors([*map(value_of, sources)], [*map(value_of, targets)])
    for source, target in zip(sources, targets, strict=True):
        np.testing.assert_array_equal(source, target)
    with pytest.raises(InvalidArgument, match="as many of each"):
        ort.copy_tensors([value_of(sources[0])], [])
    with pytest.raises(OutputMismatch):
        ort.copy_tensors([value_of(sources[0])], [value_of(targets[1])])


HOST = ("cpu", 0)


def coo(runtime: Any, indices: Any) -> Any:
    device = runtime.OrtDevice.make(*HOST)
    return runtime.SparseTensor.sparse_coo_from_numpy(
        np.int64([3, 3]), np.float32([1, 2, 3]), np.int64(indices), device
    )


def csr(runtime: Any) -> Any:
    device = runtime.OrtDevice.make(*HOST)
    return runtime.SparseTensor.sparse_csr_from_numpy(
        np.int64([3, 3]), np.float32([1, 2, 3]), np.int64([1, 1, 1]),
        np.int64([0, 1, 2, 3]), device,
    )  # fmt: skip


def described(tensor: Any) -> dict[str, Any]:
    return {
        "values": tensor.values().tolist(),
        "shape": tensor.dense_shape(),
        "type": tensor.data_type(),
        "device": tensor.device_name(),
        "format": int(tensor.format()),
        "writeable": tensor.values().flags.writeable,
    }


@pytest.mark.parametrize("indices", [[2, 3, 5], [[0, 2], [1, 0], [1, 2]]])
def test_sparse_tensors_by_coordinates_answer_alike(indices: Any) -> None:
    ours, theirs = coo(ort, indices), coo(onnxruntime, indices)
    assert described(ours) == described(theirs)
    found = [each.as_coo_view().indices().tolist() for each in (ours, theirs)]
    assert found[0] == found[1]
    value = ort.OrtValue.ort_value_from_sparse_tensor(ours)
    assert value.is_sparse_tensor() and value.data_type() == "sparse_tensor(float)"
    assert described(value.as_sparse_tensor()) == described(theirs)
    with pytest.raises(RuntimeError, match="by coordinates"):
        ours.as_csrc_view()


def test_sparse_tensors_by_rows_answer_alike() -> None:
    ours, theirs = csr(ort), csr(onnxruntime)
    assert described(ours) == described(theirs)
    views = [each.as_csrc_view() for each in (ours, theirs)]
    for way in ("inner", "outer"):
        one, other = (getattr(view, way)().tolist() for view in views)
        assert one == other
    dense = np.zeros(9, np.float32)
    dense[ours.coordinates.indices] = ours.values()
    assert dense.reshape(3, 3).tolist() == [[0, 1, 0], [0, 2, 0], [0, 3, 0]]
    with pytest.raises(RuntimeError, match="by rows"):
        ours.as_coo_view()


def test_sparse_tensors_may_be_of_text() -> None:
    device = ort.OrtDevice.make(*HOST)
    texts = np.array(["xyz", "yxz", "zyx"])
    tensor = ort.SparseTensor.sparse_coo_from_numpy(
        [9, 9], texts, np.int64([3, 5, 15]), device
    )
    assert tensor.data_type() == "sparse_tensor(string)"
    assert tensor.values().tolist() == texts.tolist()
    with pytest.raises(RuntimeError, match="host's memory"):
        tensor.to_cuda(ort.OrtDevice.make("cuda", 0))


@pytest.mark.parametrize(
    ("shape", "indices"), [([3, 3], [0, 1, 9]), ([3, 3], [-1, 0, 1]), ([3, 3], [0, 1])]
)
def test_sparse_tensors_that_do_not_fit_are_refused(shape: Any, indices: Any) -> None:
    device = ort.OrtDevice.make(*HOST)
    with pytest.raises(InvalidArgument, match="sparse tensor of shape"):
        ort.SparseTensor.sparse_coo_from_numpy(
            shape, np.float32([1, 2, 3]), np.int64(indices), device
        )


@pytest.mark.parametrize(
    ("shape", "indices"),
    [
        ([2, 4], [[3, 0]]),  # a row that there is not, and a column has its number
        ([2, 4], [[0, -1]]),
        ([1 << 62, 8], [0]),
        ([-4], [0]),
        ("ab", [0]),
    ],
)
def test_coordinates_lie_within_a_shape_that_there_is(shape: Any, indices: Any) -> None:
    for device in (ort.OrtDevice.make(*HOST), None):
        with pytest.raises(InvalidArgument):
            ort.SparseTensor.sparse_coo_from_numpy(
                shape, np.float32([1]), np.int64(indices), device
            )


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (np.int64([5]), np.int64([0, 1, 1])),  # as many elements on, there is one
        (np.int64([-1]), np.int64([0, 1, 1])),
        (np.int64([1]), np.float32([0.5, 1.9, 1])),
        (np.int64([1]), np.int64([[0, 1, 1]])),
        (np.int64([1]), np.int64([])),
    ],
)
def test_rows_have_the_columns_that_there_are(inner: Any, outer: Any) -> None:
    device = ort.OrtDevice.make(*HOST)
    with pytest.raises(InvalidArgument, match=r"a sparse tensor of shape \[2, 4\] "):
        ort.SparseTensor.sparse_csr_from_numpy(
            [2, 4], np.float32([1]), inner, outer, device
        )


def test_sparse_tensors_are_fed_and_come_back() -> None:
    types = [
        helper.make_sparse_tensor_value_info(name, TensorProto.FLOAT, [3, 3])
        for name in "xy"
    ]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", types[:1], types[1:])
    model = helper.make_model(graph, ir_version=10)
    try:
        session = ort.InferenceSession(model, providers=[CPU])
    except onnxplug.errors.OnnxplugError as error:
        assert "sparse" in str(error)  # no operator of ONNX takes or gives any
        return
    (result,) = session.run(None, {"x": coo(ort, [2, 3, 5])})
    assert described(result) == described(coo(ort, [2, 3, 5]))


def map_model() -> onnx.ModelProto:
    key, number = TensorProto.INT64, helper.make_tensor_type_proto
    value_type = helper.make_map_type_proto(key, number(TensorProto.FLOAT, []))
    x = helper.make_value_info("x", value_type)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    node = helper.make_node(
        "DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", int64_vocabulary=[0, 1, 2]
    )
    graph = helper.make_graph([node], "g", [x], [y])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_a_dict_is_the_value_of_an_only_map() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what it imports
        import onnxruntime.backend
    import onnxplug.backend

    given = {0: 25.0, 2: 5.5}
    for backend in (onnxruntime.backend, onnxplug.backend):
        prepared = backend.prepare(map_model())
        assert np.ravel(prepared.run(given)[0]).tolist() == [25, 0, 5.5]
        by_name = onnxplug.InferenceSession(map_model()).run(None, {"x": given})
        assert np.ravel(by_name[0]).tolist() == [25, 0, 5.5]


def test_maps_take_numbers_of_numpy() -> None:
    for runtime in (onnxruntime, ort):
        session = runtime.InferenceSession(map_model().SerializeToString())
        for key, number in ((np.int64, np.float32), (np.int32, np.float64)):
            given = {key(0): number(25), key(2): number(5.5)}
            assert np.ravel(session.run(None, {"x": given})[0]).tolist() == [25, 0, 5.5]
        with pytest.raises(RuntimeError, match="key"):
            session.run(None, {"x": {0: 25.0, "a": 5.5}})


def test_the_backend_runs_a_model_with_options_of_both() -> None:
    from onnxplug import backend

    x = np.float32([-1, 2])
    options = {"logid": "mine", "log_severity_level": 3, "intra_op_num_threads": 1}
    model = onnx.load_from_string(RELU)
    assert backend.run(model, x, **options)[0].tolist() == [0, 2]
    prepared = backend.prepare(model, device=None, intra_op_num_threads=1)
    assert prepared.session.get_session_options().intra_op_num_threads == 1
    assert backend.prepare(prepared) is prepared
    assert backend.prepare(prepared.session).run([x])[0].tolist() == [0, 2]
    assert prepared.run([x], only_execute_path_to_fetches=True)[0].tolist() == [0, 2]
    for call in (backend.prepare, lambda *a, **k: prepared.run([x], **k)):
        with pytest.raises(TypeError, match="no argument or option 'threads'"):
            call(model, threads=3)
