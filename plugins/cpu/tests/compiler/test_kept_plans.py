"""Plans that a process keeps, and others use: the same bits, nothing planned, and
nothing believed that is damaged or of something else."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
import onnxplug.errors
from onnxplug import ep
from onnxplug_cpu.compiler import kept_plans
from onnxplug_cpu.compiler.kept_partition import KeptPartition
from onnxplug_cpu.compiler.partition import ProgramPartition
from onnxplug_cpu.compiler.runtime.jit import Library

from .lowered import noted_partitions

Array = np.ndarray[Any, Any]

_seeds = itertools.count()


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plans are kept in this file."""
    monkeypatch.setenv(kept_plans.KEEP, "1")
    yield


def network(
    batch: int | str = 2, *, weights: Array | None = None, shift: float | None = None
) -> onnx.ModelProto:
    """A convolution, pools, a product and element-wise operators.

    Nothing of a network without *shift* is kept by anybody else.
    """
    random = np.random.default_rng(0)
    shift = random.random() + next(_seeds) if shift is None else shift
    drawn = random.standard_normal((96, 96, 3, 3), np.float32) / 30
    weights = drawn if weights is None else weights
    matrix = random.standard_normal((96, 40), np.float32) / 10
    constants = {
        "w": weights,
        "m": matrix,
        "shift": np.array([shift], np.float32),
        "axes": np.array([2, 3]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("ReduceMean", ["r", "axes"], ["p"], keepdims=0),
        helper.make_node("MatMul", ["p", "m"], ["d"]),
        helper.make_node("Add", ["d", "shift"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"]),
    ]
    return model_of(nodes, constants, [batch, 96, 9, 9], [batch, 40])


def model_of(
    nodes: Sequence[Any],
    constants: dict[str, Array],
    inputs: Sequence[int | str],
    outputs: Sequence[int | str],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "kept",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, inputs)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, outputs)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


class Session:
    """A session of one partition.

    Attributes:
        partition: what runs it.
    """

    def __init__(
        self, model: onnx.ModelProto | Path, threads: int = 1, **options: str
    ) -> None:
        given = onnxplug.SessionOptions()
        given.intra_op_num_threads = threads
        source: Any = model
        if isinstance(model, onnx.ModelProto):
            source = model.SerializeToString()
        with noted_partitions() as partitions:
            self.session = onnxplug.InferenceSession(
                source, given, providers=[("CPUExecutionProvider", options)]
            )
        (self.partition,) = partitions

    @property
    def is_kept(self) -> bool:
        """Whether nothing of it was planned so far."""
        report = self.partition.report
        assert report is not None
        is_kept = "plans kept" in report.counts
        assert not is_kept or isinstance(self.partition, KeptPartition)
        return is_kept

    def run(self, x: Array) -> Array:
        """The only result."""
        (y,) = self.session.run(None, {"x": x})
        assert isinstance(y, np.ndarray)
        return y


def planned(model: onnx.ModelProto, **options: str) -> Session:
    """One that is planned anew, whatever is kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(kept_plans.KEEP, "0")
        session = Session(model, **options)
    assert not session.is_kept
    return session


def images(batch: int = 2) -> Array:
    return np.random.default_rng(1).standard_normal((batch, 96, 9, 9), np.float32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("winograd", ["off", "2x2"])
def test_a_kept_plan_gives_the_same_bits(
    threads: int, winograd: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(), path)
    # a file just written may be written to again without a sign of it
    first = Session(aged(path), threads, winograd=winograd)
    again = Session(path, threads, winograd=winograd)
    assert isinstance(first.partition, ProgramPartition)
    assert again.is_kept
    np.testing.assert_array_equal(first.run(images()), again.run(images()))
    # on bound arrays, in runs with a context, and taken down, which takes commands
    bound = np.empty((2, 40), np.float32)
    binding = again.session.io_binding()
    binding.bind_cpu_input("x", images())
    binding.bind_output("y", "cpu", 0, np.float32, bound.shape, bound.ctypes.data)
    again.session.run_with_iobinding(binding)
    np.testing.assert_array_equal(bound, first.run(images()))
    options = onnxplug.RunOptions()
    (y,) = again.session.run(None, {"x": images()}, options)
    np.testing.assert_array_equal(y, bound)
    assert again.is_kept
    report = again.session.explain()
    assert {node.tier for node in report.nodes} == {"compiled"}
    assert report.partitions[0].counts["plans kept"] == 1


def aged(path: Path) -> Path:
    """A file that was not changed for so long that its times tell its states apart."""
    import time

    time.sleep(0.12)
    return path


def test_other_shapes_than_those_kept_are_planned() -> None:
    model = network("n")
    first = Session(model)
    results = [first.run(images(n)) for n in (1, 3)]
    again = Session(model)
    np.testing.assert_array_equal(again.run(images(3)), results[1])
    np.testing.assert_array_equal(again.run(images(1)), results[0])
    assert again.is_kept
    expected = planned(model).run(images(5))
    np.testing.assert_array_equal(again.run(images(5)), expected)
    assert not again.is_kept
    np.testing.assert_array_equal(again.run(images(1)), results[0])
    assert Session(model).session.explain().partitions[0].tiers == {"compiled": 6}


def test_no_process_keeps_a_plan_for_each_of_endless_shapes() -> None:
    model = network("n")
    many = kept_plans.MOST_KEPT + 2
    first = Session(model)
    for n in range(1, many + 1):
        first.run(images(n))
    again = Session(model)
    for n in range(1, kept_plans.MOST_KEPT + 1):
        again.run(images(n))
    assert again.is_kept
    again.run(images(many))
    assert not again.is_kept


def test_weights_may_be_others_and_what_planning_looks_at_may_not() -> None:
    random = np.random.default_rng(2)
    weights = random.standard_normal((96, 96, 3, 3), np.float32) / 30
    # planning products by tiles looks at how many bits weights have
    chosen = {"winograd": "off", "fp32_matmul": "fma"}
    made = network(shift=0.25)
    Session(made, **chosen)
    other = network(weights=weights, shift=0.25)
    found = Session(other, **chosen)
    assert found.is_kept
    expected = planned(other, **chosen)
    np.testing.assert_array_equal(found.run(images()), expected.run(images()))
    assert not Session(network(shift=0.5), **chosen).is_kept
    assert not Session(made, 2, winograd="off").is_kept
    assert not Session(network(3, shift=0.25), winograd="off").is_kept
    changed = network(shift=0.25)
    changed.graph.node[0].attribute[0].ints[:] = [1, 0, 1, 0]
    assert not Session(changed, winograd="off").is_kept


def test_weights_that_are_looked_at_are_those_that_were(tmp_path: Path) -> None:
    """Transforms make NaN of weights that are not finite, which packing sees."""
    weights = np.random.default_rng(3).standard_normal((96, 96, 3, 3), np.float32) / 30
    paths = [tmp_path / "finite.onnx", tmp_path / "infinite.onnx"]
    onnx.save(network(weights=weights, shift=0.125), paths[0])
    weights[5, 6, 1, 2] = np.inf
    onnx.save(network(weights=weights, shift=0.125), paths[1])
    Session(aged(paths[0]))
    assert Session(paths[0]).is_kept
    found, direct = Session(paths[1]), Session(paths[1], winograd="off")
    assert not found.is_kept
    np.testing.assert_allclose(
        found.run(images()), direct.run(images()), 1e-4, equal_nan=True
    )


def test_what_is_damaged_is_planned_again() -> None:
    folder = Library.host().cache.folder
    assert folder is not None
    before = set(folder.iterdir())
    made = network()
    first = Session(made, winograd="off")
    entries = [path for path in set(folder.iterdir()) - before if path.is_file()]
    kept = [path for path in entries if b"_RowsCopy" not in path.read_bytes()]
    assert Session(made, winograd="off").is_kept
    contents = {path: path.read_bytes() for path in kept}
    for path, content in contents.items():
        for damaged in (content[: len(content) // 2], content[:-1] + b"\xff", b""):
            path.write_bytes(damaged)
            again = Session(made, winograd="off")
            np.testing.assert_array_equal(again.run(images()), first.run(images()))
        path.write_bytes(content)
    assert Session(made, winograd="off").is_kept


def test_what_another_kernel_was_compiled_for_is_planned_again(monkeypatch) -> None:
    made = network()
    first = Session(made, winograd="off")
    monkeypatch.setattr(Library, "kept_addresses", lambda library, keys: None)
    again = Session(made, winograd="off")
    assert isinstance(again.partition, ProgramPartition)
    np.testing.assert_array_equal(again.run(images()), first.run(images()))


def test_a_kept_program_that_finds_an_error_has_it_told_by_who_plans() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "i"], ["y"]),
    ]
    table = np.arange(7, dtype=np.float32) + next(_seeds)
    made = model_of(nodes, {"table": table}, [3], [3])
    told = []
    for is_kept in (False, True):
        session = Session(made)
        assert session.is_kept is is_kept
        places = [0, 6, 2]
        for _ in range(2):
            y = session.run(np.array(places, np.float32))
            assert y.tolist() == table[places].tolist()
        assert session.is_kept is is_kept
        for _ in range(2):
            with pytest.raises(ep.NodeError, match="Gather") as failed:
                session.run(np.array([0, 7, 2], np.float32))
            told.append(str(failed.value))
        assert not session.is_kept
        y = session.run(np.array(places, np.float32))
        assert y.tolist() == table[places].tolist()
    assert len(set(told)) == 1


def test_what_is_on_arrays_is_called_between_kept_programs() -> None:
    shift = float(next(_seeds))
    nodes = [
        helper.make_node("Add", ["x", "s"], ["a"]),
        helper.make_node("Det", ["a"], ["d"]),
        helper.make_node("Mul", ["d", "s"], ["m"]),
        helper.make_node("Sub", ["m", "s"], ["y"]),
    ]
    constants = {"s": np.array([shift], np.float32)}
    made = model_of(nodes, constants, ["n", 3, 3], ["n"])
    x = np.random.default_rng(4).standard_normal((4, 3, 3), np.float32)
    first = Session(made)
    expected = first.run(x)
    again = Session(made)
    np.testing.assert_array_equal(again.run(x), expected)
    assert again.is_kept
    tiers = [
        [(node.tier, node.note) for node in each.session.explain().nodes]
        for each in (first, again)
    ]
    assert tiers[0] == tiers[1]
    assert [tier for tier, _ in tiers[1]] == ["compiled", "array", *["compiled"] * 2]


def test_texts_are_looked_up_beside_kept_programs() -> None:
    shift = next(_seeds) / 64
    labels = ["none", "some", "all"]
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["x"],
            ["y", "scores"],
            domain="ai.onnx.ml",
            classlabels_strings=labels,
            coefficients=[1.0, -1, 0, -1, 1, 0, 0, 0, 1],
            intercepts=[0.0, 0, shift],
        )
    ]
    made = model_of(nodes, {}, ["n", 3], ["n"])
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    x = np.array([[9, 0, 0], [0, 9, 0], [0, 0, 9]], np.float32)
    for is_kept in (False, True):
        session = Session(made)
        assert session.is_kept is is_kept
        assert session.run(x).tolist() == [
            "none",
            "some",
            "all" if shift < 9 else "none",
        ]
        assert session.is_kept is is_kept


def test_a_profile_has_the_commands_of_a_plan_that_was_kept(tmp_path: Path) -> None:
    made = network()
    Session(made)
    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxplug.InferenceSession(made.SerializeToString(), options)
    session.run(None, {"x": images()})
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    assert any("Conv" in each["name"] for each in events if each["cat"] == "Node")


def test_the_variable_turns_it_off(monkeypatch) -> None:
    made = network()
    monkeypatch.setenv(kept_plans.KEEP, "0")
    Session(made)
    monkeypatch.setenv(kept_plans.KEEP, "1")
    assert not Session(made).is_kept
    monkeypatch.setenv(kept_plans.KEEP, "0")
    assert not Session(made).is_kept
    monkeypatch.setenv(kept_plans.KEEP, "often")
    with pytest.raises(
        onnxplug.errors.EpError, match=r"KEEP_PLANS is 'often'; .* 1 or 0"
    ):
        Session(made)


_PROCESS = """
import sys
import numpy as np
import onnxplug
session = onnxplug.InferenceSession(sys.argv[1])
(y,) = session.run(None, {"x": np.ones((2, 96, 9, 9), np.float32)})
print(y.tobytes().hex())
print("onnxplug_compiler.schedule.planner" in sys.modules, "onnx" in sys.modules)
"""


def test_a_second_process_imports_nothing_that_plans(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(), path)
    words = [sys.executable, "-c", _PROCESS, str(aged(path))]
    first, second = (
        subprocess.run(words, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first.splitlines()[0] == second.splitlines()[0]
    assert first.splitlines()[1] == "True False"
    assert second.splitlines()[1] == "False False"
