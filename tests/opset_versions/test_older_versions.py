"""Every version of every operator means what it meant.

The suite's cases are written for the newest versions. Those that an older version also
takes are run in it, beside ``onnx.reference`` and ONNX Runtime in the same version;
examples are computed by NumPy for the others, and where the meaning changed.
"""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import checker, defs, helper, numpy_helper, shape_inference
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator

import onnxplug

from .examples import EXAMPLES, Example

ENOUGH: Final = 3
"""So many cases of an operator are run in each of its versions."""

BROADCASTS: Final = "broadcasts without being told to"
LATER_AXIS: Final = "knows the axis of version 13 only"
IGNORES_PLACES: Final = "ignores where a given output shape puts the elements"
OTHER_SIZE: Final = "has another size where a scaled size is no whole number"

REFERENCE_NOT_ASKED: Final = {
    "AveragePool-1": "counts what is padded",
    "BatchNormalization-9": "computes version 14, with the statistics of the batch",
    "OneHot-9": "knows the negative indices of version 11 only",
    "Selu-1": "knows the constants of version 6 only",
    **dict.fromkeys(("Hardmax-1", "Hardmax-11"), LATER_AXIS),
    **dict.fromkeys(("LogSoftmax-1", "LogSoftmax-11"), LATER_AXIS),
    **dict.fromkeys(("Softmax-1", "Softmax-11"), LATER_AXIS),
    **dict.fromkeys(("Add-1", "Sub-1", "Mul-1", "Div-1", "Pow-1"), BROADCASTS),
    **dict.fromkeys(("Add-6", "Sub-6", "Mul-6", "Div-6"), BROADCASTS),
    **dict.fromkeys(("And-1", "Or-1", "Xor-1"), BROADCASTS),
    **dict.fromkeys(("Equal-1", "Greater-1", "Less-1"), BROADCASTS),
    **dict.fromkeys(("PRelu-1", "PRelu-6"), BROADCASTS),
    **{f"If-{version}": "unpacks a sequence" for version in (16, 19, 21, 23, 24)},
    **{f"LpPool-{version}": "takes seconds" for version in (2, 11, 18)},
}
"""What ``onnx.reference`` is not asked, most of it since it takes no other version."""

RUNTIME_DIFFERS: Final = {
    "DFT-17": "takes the axis to be that of version 20",
    **dict.fromkeys(("MaxUnpool-9", "MaxUnpool-11"), IGNORES_PLACES),
    **dict.fromkeys(("Resize-13", "Resize-18"), OTHER_SIZE),
}
"""What ONNX Runtime computes otherwise than the version says."""

DRAWN: Final = frozenset({"Bernoulli-15"})
"""What is random; tests of the suite and of the kernels look at it."""

Key = tuple[str, str]


def label(domain: str, op_type: str, version: int) -> str:
    return f"{domain}.{op_type}-{version}".lstrip(".")


def older_versions() -> Iterator[defs.OpSchema]:
    schemas = [
        each
        for each in defs.get_all_schemas_with_history()
        if each.domain in ("", "ai.onnx.ml")
    ]
    newest: dict[Key, int] = defaultdict(int)
    for schema in schemas:
        key = schema.domain, schema.name
        newest[key] = max(newest[key], schema.since_version)
    for schema in schemas:
        later = newest[schema.domain, schema.name] > schema.since_version
        if later and not schema.deprecated:
            yield schema


def suite_cases() -> dict[Key, list[Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own generators overflow
        loaded = load_model_tests(kind="node")
    cases = defaultdict(list)
    for case in loaded:
        if case.model is not None and len(case.model.graph.node) == 1:
            (node,) = case.model.graph.node
            if not case.model.functions:
                cases[node.domain, node.op_type].append(case)
    return cases


CASES: Final = suite_cases()
OLDER: Final = sorted(
    older_versions(), key=lambda each: (each.domain, each.name, each.since_version)
)
LABELS: Final = [label(each.domain, each.name, each.since_version) for each in OLDER]
COVERED: Final = {
    label(each.domain, each.op_type, version)
    for each in EXAMPLES
    for version in each.versions
} | {"Optional-15"}


def in_version(model: onnx.ModelProto, domain: str, version: int) -> onnx.ModelProto:
    """The same model that imports another version; not all models are valid in it."""
    other = copy.deepcopy(model)
    versions = {"": 20, domain: version}
    del other.opset_import[:]
    other.opset_import.extend(helper.make_opsetid(*each) for each in versions.items())
    other.ir_version = 10
    return other


def is_valid(model: onnx.ModelProto) -> bool:
    try:
        checker.check_model(model)
        shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except (checker.ValidationError, shape_inference.InferenceError):
        return False
    return True


def feeds_of(case: Any) -> dict[str, Any]:
    names = [each.name for each in case.model.graph.input]
    return {
        name: numpy_helper.to_array(value)
        if isinstance(value, onnx.TensorProto)
        else value
        for name, value in zip(names, case.data_sets[0][0], strict=True)
    }


def by_reference(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any] | None:
    """What ``onnx.reference`` gives; None if it cannot run this."""
    try:
        return list(ReferenceEvaluator(model).run(None, feeds))
    except Exception:  # noqa: BLE001 (whatever it raises)
        return None


def by_onnx_runtime(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any] | None:
    """What ONNX Runtime gives; None if it cannot run this."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, feeds))
    except Exception:  # noqa: BLE001 (whatever it raises)
        return None


def by_onnxplug(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    session = onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif expected is None or isinstance(expected, dict):
        assert found == expected
    else:
        expected = np.asarray(expected)
        assert found.shape == expected.shape
        if expected.dtype.kind in "OUS":
            assert found.astype(str).tolist() == expected.astype(str).tolist()
            return
        assert found.dtype == expected.dtype
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        one, other = found.astype(wide), expected.astype(wide)
        precise = expected.dtype.itemsize >= 4
        np.testing.assert_allclose(
            one, other, rtol=1e-5 if precise else 1e-2, atol=1e-5
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("schema", OLDER, ids=LABELS)
def test_version(schema: defs.OpSchema) -> None:
    name = label(schema.domain, schema.name, schema.since_version)
    compared = 0
    tried = 0
    for case in CASES.get((schema.domain, schema.name), ()):
        model = in_version(case.model, schema.domain, schema.since_version)
        if name in DRAWN or tried == ENOUGH or not is_valid(model):
            continue
        feeds = feeds_of(case)
        oracles = []
        if name not in REFERENCE_NOT_ASKED:
            oracles.append(by_reference(model, feeds))
        if name not in RUNTIME_DIFFERS:
            oracles.append(by_onnx_runtime(model, feeds))
        oracles = [each for each in oracles if each is not None]
        if oracles:
            tried += 1
            found = by_onnxplug(model, feeds)
            for expected in oracles:
                assert_same(found, expected)
                compared += 1
    assert compared or name in COVERED or name in DRAWN, "nothing tells what is right"


def model_of(example: Example, version: int) -> onnx.ModelProto:
    names = ["" if x is None else f"input_{i}" for i, x in enumerate(example.inputs)]
    results = [f"output_{i}" for i in range(len(example.expected))]
    node = helper.make_node(example.op_type, names, results, domain=example.domain)
    for name, value in example.attributes.items():
        if isinstance(value, np.ndarray):
            value = numpy_helper.from_array(value)
        node.attribute.append(helper.make_attribute(name, value))

    def information(name: str, value: Any) -> onnx.ValueInfoProto:
        value = np.asarray(value)
        kind = (
            onnx.TensorProto.STRING
            if value.dtype == object
            else helper.np_dtype_to_tensor_dtype(value.dtype)
        )
        return helper.make_tensor_value_info(name, kind, value.shape)

    graph = helper.make_graph(
        [node],
        example.op_type,
        [
            information(name, value)
            for name, value in zip(names, example.inputs, strict=True)
            if name
        ],
        [
            information(name, value)
            for name, value in zip(results, example.expected, strict=True)
        ],
    )
    return in_version(helper.make_model(graph), example.domain, version)


@pytest.mark.parametrize(
    ("example", "version"),
    [
        pytest.param(
            each, version, id=f"{label(each.domain, each.op_type, version)}-{number}"
        )
        for number, each in enumerate(EXAMPLES)
        for version in each.versions
    ],
)
def test_example(example: Example, version: int) -> None:
    model = model_of(example, version)
    checker.check_model(model)
    schema = defs.get_schema(example.op_type, version, example.domain)
    assert schema.since_version == version
    feeds = {
        f"input_{i}": value
        for i, value in enumerate(example.inputs)
        if value is not None
    }
    assert_same(by_onnxplug(model, feeds), list(example.expected))


def test_optional() -> None:
    tensor = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2])
    given = helper.make_value_info("x", tensor)
    made = helper.make_value_info("y", helper.make_optional_type_proto(tensor))
    node = helper.make_node("Optional", ["x"], ["y"])
    graph = helper.make_graph([node], "optional", [given], [made])
    model = in_version(helper.make_model(graph), "", 15)
    x = np.array([1, 2], dtype=np.float32)
    assert_same(by_onnxplug(model, {"x": x}), [x])
