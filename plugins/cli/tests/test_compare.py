"""``onnxplug compare``, on EPs that are wrong where it is planted."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import ep
from onnxplug.tolerances import Tolerance, tolerance_for
from onnxplug_cli.comparison import compare
from onnxplug_cli.comparison.differences import differences
from onnxplug_testing import ToyFactory
from onnxplug_testing.toy import ToyExecutionProvider

LAYERS = 300


class Planted(ToyFactory):
    """The toy EP, wrong at nodes of one name or operator, in graphs of one kind."""

    name = "PlantedExecutionProvider"

    def __init__(
        self,
        node: str,
        wrong: Callable[[Any], Any],
        when: Callable[[ep.Graph], bool] = lambda graph: True,
    ) -> None:
        self.node, self.wrong, self.when = node, wrong, when

    def create(self, devices: Any, options: Any, session: Any) -> Any:
        factory = self

        class Provider(ToyExecutionProvider):
            def find_kernel(self, graph: ep.Graph, node: ep.Node) -> Any:
                kernel = super().find_kernel(graph, node)
                if isinstance(kernel, ep.Reason):
                    return kernel
                if factory.node not in (node.name, node.op_type):
                    return kernel
                if not factory.when(graph):
                    return kernel
                return lambda *arrays: factory.wrong(kernel(*arrays))

        return Provider()


def add_one_first(array: Any) -> Any:
    array = array.copy()
    array.flat[0] += 1
    return array


def model_of(
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, name) for name, a in (weights or {}).items()],
    )
    return helper.make_model(
        graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]
    )


def residual_network() -> onnx.ModelProto:
    """1200 nodes in two branches of blocks, each of which adds to its own input."""
    weights = {
        "left": np.full(8, 0.01, np.float32),
        "right": np.full(8, 0.02, np.float32),
        "shift": np.linspace(-0.1, 0.1, 8, dtype=np.float32),
    }
    nodes = []
    last = {"left": "x", "right": "x"}
    for layer in range(LAYERS // 2):
        for branch, before in last.items():
            lead = f"{branch}{layer}"
            steps = [
                ("Mul", [before, branch], "scaled"),
                ("Add", ["scaled", "shift"], "shifted"),
                ("Relu", ["shifted"], "positive"),
                ("Sub", [before, "positive"], "out"),
            ]
            for op, names, made in steps:
                inputs = [
                    f"{lead}.{n}" if n in ("scaled", "shifted", "positive") else n
                    for n in names
                ]
                result = f"{lead}.{made}"
                nodes.append(helper.make_node(op, inputs, [result], name=result))
            last[branch] = f"{lead}.out"
    nodes.append(helper.make_node("Add", list(last.values()), ["y"], name="join"))
    return model_of(nodes, weights)


@pytest.fixture
def network(tmp_path: Path) -> str:
    path = tmp_path / "network.onnx"
    onnx.save(residual_network(), path)
    return str(path)


@pytest.mark.parametrize("name", ["left0.scaled", "right77.shifted", "join"])
def test_a_wrong_node_of_more_than_a_thousand_is_found(
    cli, register, toy, network, tmp_path: Path, name: str
) -> None:
    planted = register(Planted(name, add_one_first))
    folder = tmp_path / "wrong"
    outcome = cli(
        "compare", network, "--ep", planted, "--ep", toy, "--bisect",
        "--save", folder, "--json",
    )  # fmt: skip
    assert outcome.code == 1
    found = outcome.json["divergence"]
    (node,) = found["nodes"]
    assert node.endswith(f"'{name}'")
    assert found["eps"] == [planted, toy]
    assert found["cause"] == "itself"
    assert found["notes"] == []
    (output,) = found["outputs"]
    assert (output["beyond"], output["place"]) == (1, [0, 0])
    assert output["largest_absolute"] == pytest.approx(1, abs=1e-6)
    # one of the outputs, four of 7 frontiers, one to be sure
    assert outcome.json["runs"] <= 6

    inputs = np.load(folder / "inputs.npz")
    part = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(part, full_check=True)
    assert [each.name for each in part.graph.node] == [name]
    (expected,) = ReferenceEvaluator(part).run(None, dict(inputs))
    assert expected.shape == (4, 8)
    argv = (folder / "README.md").read_text().splitlines()[-1].split()
    assert argv[:4] == ["onnxplug", "compare", "model.onnx", "inputs.npz"]
    argv[2:4] = [folder / "model.onnx", folder / "inputs.npz"]
    again = cli(*argv[1:], "--json")
    assert again.code == 1
    assert again.json["outputs"][0]["beyond"] == 1


def test_eps_that_agree_give_no_finding(cli, toy, network) -> None:
    outcome = cli("compare", network, "--ep", toy, "--bisect", "--json")
    assert outcome.code == 0
    assert outcome.json["agrees"] is True
    assert outcome.json["divergence"] is None
    assert outcome.json["runs"] == 1


def test_the_difference_of_a_fusion_is_found_as_the_nodes_that_are_fused(
    cli, register, toy, network
) -> None:
    inside = {"right77.scaled", "right77.shifted"}

    def fused(graph: ep.Graph) -> bool:
        return inside.isdisjoint(graph.outputs)

    planted = register(Planted("right77.shifted", add_one_first, fused))
    outcome = cli(
        "compare", network, "--ep", planted, "--ep", toy, "--bisect", "--json"
    )
    found = outcome.json["divergence"]
    assert [words.split("'")[1] for words in found["nodes"]] == [
        "right77.scaled",
        "right77.shifted",
        "right77.positive",
    ]
    assert found["cause"] == "itself"
    (note,) = found["notes"]
    assert "vanishes when a value between these nodes is looked at" in note
    assert outcome.json["runs"] <= 24


def test_a_difference_of_one_run_only_is_not_looked_for_further(
    cli, register, toy, network
) -> None:
    times = iter([add_one_first])
    planted = register(Planted("join", lambda array: next(times, np.copy)(array)))
    argv = ("compare", network, "--ep", planted, "--ep", toy, "--bisect")
    outcome = cli(*argv)
    assert outcome.code == 1
    assert "not found: in another run nothing differed" in outcome.out
    times = iter([add_one_first])
    found = cli(*argv, "--json").json
    assert (found["divergence"], found["runs"]) == (None, 3)


def test_what_is_wrong_only_among_others_is_told_from_what_is_wrong_itself(
    register, toy
) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"], name="before"),
        helper.make_node("Add", ["positive", "x"], ["y"], name="sum"),
    ]
    register(Planted("sum", add_one_first, lambda graph: len(graph.nodes) > 1))
    found = compare(
        model_of(nodes),
        [Planted.name],
        {"x": np.ones((4, 8), np.float32)},
        reference=[toy],
        bisect=True,
    ).divergence
    assert found is not None
    assert found.nodes == ("Add 'sum'",)
    assert found.cause == "among others"


def test_small_differences_that_are_amplified_are_told_from_wrong_nodes(
    register, toy
) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"], name="slightly wrong"),
        helper.make_node("Sub", ["positive", "one"], ["rest"], name="cancels"),
        helper.make_node("Mul", ["rest", "million"], ["y"], name="amplifies"),
    ]
    weights = {"one": np.float32(1), "million": np.float32(1e6)}
    register(Planted("slightly wrong", lambda array: array + np.float32(1e-6)))
    found = compare(
        model_of(nodes, weights),
        [Planted.name],
        {"x": np.ones((4, 8), np.float32)},
        reference=[toy],
        bisect=True,
    ).divergence
    assert found is not None
    assert found.nodes == ("Mul 'amplifies'",)
    assert found.cause == "amplified"


def body(op: str, inputs: Sequence[str], name: str) -> onnx.GraphProto:
    """``positive`` of outside, and one operator on it."""
    made = helper.make_tensor_value_info(f"{name}.out", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Relu", ["x"], [f"{name}.positive"], name=f"{name}.relu"),
        helper.make_node(op, [f"{name}.positive", *inputs], [made.name], name=name),
    ]
    return helper.make_graph(nodes, name, [], [made])


def choice() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"], name="before"),
        helper.make_node("ReduceMax", ["positive"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["any"], to=TensorProto.BOOL),
        helper.make_node(
            "If", ["any"], ["chosen"], name="choice",
            then_branch=body("Add", ["positive"], "sum"),
            else_branch=body("Sub", ["positive"], "rest"),
        ),
        helper.make_node("Relu", ["chosen"], ["y"], name="after"),
    ]  # fmt: skip
    return model_of(nodes)


def repetition() -> onnx.ModelProto:
    """Squares and adds one, four times: 1, 2, 5, 26, 677."""
    state = [
        helper.make_tensor_value_info("number", TensorProto.INT64, []),
        helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
        helper.make_tensor_value_info("before", TensorProto.FLOAT, None),
    ]
    nodes = [
        helper.make_node("Identity", ["goes"], ["goes_on"]),
        helper.make_node("Mul", ["before", "before"], ["squared"], name="square"),
        helper.make_node("Add", ["squared", "one"], ["after"], name="sum"),
    ]
    made = [
        helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("after", TensorProto.FLOAT, None),
    ]
    loop = helper.make_graph(nodes, "body", state, made)
    node = helper.make_node("Loop", ["times", "", "x"], ["y"], name="loop", body=loop)
    weights = {"times": np.int64(4), "one": np.float32(1)}
    return model_of([node], weights)


def call() -> onnx.ModelProto:
    model = model_of(
        [
            helper.make_node("Relu", ["x"], ["positive"], name="before"),
            helper.make_node("Twice", ["positive"], ["y"], domain="own", name="call"),
        ]
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    function = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [
            helper.make_node("Relu", ["a"], ["positive"], name="first"),
            helper.make_node("Add", ["a", "positive"], ["b"], name="sum"),
        ],
        opsets[:1],
    )
    model.functions.append(function)
    model.opset_import.append(opsets[1])
    return model


def add_one_above_ten(array: Any) -> Any:
    return np.where(array > 10, array + 1, array)


@pytest.mark.parametrize(
    "model, node, what, inner",
    [
        (choice, "If 'choice'", "then_branch", "Add 'sum'"),
        (repetition, "Loop 'loop'", "body, iteration 2", "Add 'sum'"),
        (call, "own.Twice 'call'", "function", "Add"),
    ],
)
def test_the_node_in_a_body_is_found(
    cli, register, toy, tmp_path: Path, model, node: str, what: str, inner: str
) -> None:
    onnx.save(model(), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", np.ones((4, 8), np.float32))
    wrong = add_one_above_ten if model is repetition else add_one_first
    planted = register(Planted("Add", wrong))
    argv = (
        "compare", tmp_path / "model.onnx", tmp_path / "x.npy",
        "--ep", planted, "--ep", toy, "--bisect",
    )  # fmt: skip
    outcome = cli(*argv, "--json", "--save", tmp_path / "wrong")
    assert outcome.code == 1
    found = outcome.json["divergence"]
    assert found["nodes"] == [node]
    assert found["inside"]["what"] == what
    assert found["inside"]["nodes"][0].startswith(inner)
    assert found["notes"] == found["inside"]["notes"] == []
    part = onnx.load(tmp_path / "wrong" / "model.onnx")
    assert [each.op_type for each in part.graph.node] == ["Add"]
    assert f", in its {what}." in " ".join(cli(*argv).out.split())


def test_bodies_that_are_not_searched_are_named(
    cli, register, toy, tmp_path: Path
) -> None:
    row = helper.make_tensor_value_info("row", TensorProto.FLOAT, [8])
    made = helper.make_tensor_value_info("made", TensorProto.FLOAT, [8])
    step = helper.make_node("Add", ["row", "row"], ["made"], name="sum")
    scan = helper.make_graph([step], "body", [row], [made])
    node = helper.make_node(
        "Scan", ["x"], ["y"], name="scan", body=scan, num_scan_inputs=1
    )
    onnx.save(model_of([node]), tmp_path / "model.onnx")
    planted = register(Planted("sum", add_one_first))
    outcome = cli(
        "compare", tmp_path / "model.onnx", "--ep", planted, "--ep", toy, "--bisect"
    )
    assert outcome.code == 1
    assert "They part at Scan 'scan'" in outcome.out
    said = " ".join(outcome.out.split())
    assert "what is in Scan 'scan' was not searched: values in its bodies" in said


LIBRARY = """
import numpy as np
from onnxplug import ep
from onnxplug_testing import ToyFactory
from onnxplug_testing.toy import ToyExecutionProvider

class Provider(ToyExecutionProvider):
    def find_kernel(self, graph, node):
        kernel = super().find_kernel(graph, node)
        if node.op_type != "Add":
            return kernel
        return lambda a, b: kernel(a, b) + np.float32(a.shape[0] == 3)

class Factory(ToyFactory):
    name = "WrongForThreeRows"
    def create(self, devices, options, session):
        return Provider()

@ep.hookimpl
def onnxplug_ep_factories(host):
    return [Factory()]
"""


def test_what_is_saved_has_the_command_that_compares_again(
    cli, register, toy, save_model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("three.py").write_text(LIBRARY)
    model = save_model(["Add", "Relu"], {"a": ["N", 2], "b": ["N", 2]})
    argv = (
        "compare", model, "--library", "three.py", "--ep", "WrongForThreeRows",
        "--ep", toy, "--rtol", "1e-4", "--bisect", "--save", "wrong",
    )  # fmt: skip
    assert cli(*argv).code == 0, "of one row"
    assert not Path("wrong").exists()
    outcome = cli(*argv, "--dim", "N=3")
    assert outcome.code == 1
    assert "They part at Add 'node0'" in outcome.out
    assert "Written to wrong." in outcome.out
    monkeypatch.chdir("wrong")
    command = shlex.split(Path("README.md").read_text().splitlines()[-1])
    assert command[0] == "onnxplug"
    again = cli(*command[1:], "--json")
    assert again.code == 1
    assert again.json["outputs"][0]["tolerance"]["relative"] == 1e-4
    assert again.json["outputs"][0]["largest_absolute"] == pytest.approx(1, abs=1e-6)


def test_a_node_whose_weights_are_not_beside_the_model_is_found_and_not_run_alone(
    register, toy, tmp_path: Path
) -> None:
    node = helper.make_node("Add", ["x", "shift"], ["y"], name="sum")
    path = tmp_path / "model.onnx"
    onnx.save(
        model_of([node], {"shift": np.ones(8, np.float32)}),
        path,
        save_as_external_data=True,
        location="weights",
        size_threshold=0,
    )
    register(Planted("sum", add_one_first))
    options = onnxplug.SessionOptions()
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(tmp_path)
    )
    found = compare(
        path.read_bytes(),
        [Planted.name],
        {"x": np.ones((4, 8), np.float32)},
        reference=[toy],
        sess_options=options,
        bisect=True,
    ).divergence
    assert found is not None
    assert found.nodes == ("Add 'sum'",)
    assert (found.cause, found.reproduction) == ("unknown", None)
    (note,) = found.notes
    assert "the data of 'shift' is in another file" in note


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--ep", "a", "--ep", "b", "--ep", "c"], "--ep is said 3 times"),
        (["--ep", "cpu", "--save", "somewhere"], "say --bisect, too"),
        (["--ep", "cpu", "--rtol", "nan"], "'nan' is not a number from 0"),
    ],
)
def test_what_does_not_fit_is_refused(cli, save_model, argv, words: str) -> None:
    outcome = cli("compare", save_model(), *argv)
    assert outcome.code == 2
    assert words in outcome.err


def test_a_folder_with_something_in_it_is_not_written_to(
    cli, register, toy, save_model, tmp_path: Path
) -> None:
    planted = register(Planted("node0", add_one_first))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    outcome = cli(
        "compare", save_model(), "--ep", planted, "--ep", toy, "--bisect",
        "--save", tmp_path / "full",
    )  # fmt: skip
    assert outcome.code == 1
    assert "is no empty folder" in outcome.err
    assert [each.name for each in (tmp_path / "full").iterdir()] == ["mine"]


# Differences...


def difference(found: Any, expected: Any, **tolerance: float):
    def tolerance_of(dtype: str) -> Tolerance:
        return tolerance_for(dtype, **tolerance)

    (only,) = differences("v", found, expected, tolerance_of)
    return only


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
)
def test_ulps_are_steps_between_representable_numbers(dtype: Any) -> None:
    one = np.ones(2, dtype)
    unsigned = f"u{one.dtype.itemsize}"
    above = (one.view(unsigned) + 3).view(dtype)
    assert difference(above, one).largest_ulps == 3
    # from the least number below zero to the least above: through zero, which is one
    least = np.array([1], unsigned).view(dtype)
    assert difference(-least, least).largest_ulps == 2
    assert difference(-0 * one, 0 * one).largest_ulps == 0


def test_nan_and_infinity_agree_with_themselves_only() -> None:
    inf, nan = np.inf, np.nan
    expected = np.array([nan, inf, -inf, nan, 1, inf, 1], np.float32)
    found = np.array([nan, inf, -inf, 1, nan, -inf, inf], np.float32)
    seen = difference(found, expected)
    assert (seen.beyond, seen.unequal, seen.nan, seen.infinite) == (4, 4, 2, 2)
    assert seen.largest_absolute == 0
    assert difference(expected, expected).agrees


def test_numbers_of_a_difference_are_those_of_float64() -> None:
    expected = np.array([1, -2, 0, 1000], np.float32)
    found = np.array([1.5, -2, 0.25, 1000.5], np.float32)
    seen = difference(found, expected)
    assert (seen.beyond, seen.unequal, seen.elements) == (2, 3, 4)
    assert (seen.largest_absolute, seen.largest_relative) == (0.5, 0.5)
    assert (seen.place, seen.found, seen.expected) == ((0,), "1.5", "1.0")
    assert difference(found, expected, absolute=0.5).agrees


def test_integers_and_text_have_to_be_equal() -> None:
    large = np.array([2**63 - 1, 5], np.int64)
    assert difference(large - 1, large).beyond == 2
    assert difference(large - 1, large, absolute=1).agrees
    text = np.array(["a", "b"], object)
    assert difference(text[::-1], text).beyond == 2
    assert difference(text, text).agrees


def test_other_types_shapes_and_structures_are_no_agreement() -> None:
    a = np.ones(2, np.float32)
    assert difference(a.astype(np.float16), a).unlike == "float16[2] against float32[2]"
    assert difference(a[:1], a).unlike == "float32[1] against float32[2]"
    assert difference([a], a).unlike == "a sequence against a tensor"
    assert difference([a], [a, a]).unlike == "1 parts against 2"
    assert difference(None, a).unlike == "nothing against a tensor"
    assert difference({"k": a}, {"k": 2 * a}).name == "v['k']"
    empty = np.ones((0, 3), np.float32)
    assert difference(empty, empty).agrees
