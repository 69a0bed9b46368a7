"""Sessions that have packed weights together, and those that must not."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.weights import SharedWeights
from onnxplug_compiler.ir.buffers import Address, Constant, Packed, Temporary
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel
from onnxplug_cpu.compiler.commands.words import Code, Command, Words
from onnxplug_cpu.compiler.machine.isa import Isa
from onnxplug_cpu.compiler.runtime.packed_layout import layout_name
from onnxplug_cpu.compiler.runtime.program import Program

from . import tiled

Array = np.ndarray[Any, Any]

RANDOM = np.random.default_rng(41)
DEPTH, COLUMNS = 160, 200
W = RANDOM.standard_normal((DEPTH, COLUMNS)).astype(np.float32)
X = RANDOM.standard_normal((40, DEPTH)).astype(np.float32)


def model(
    nodes: list[onnx.NodeProto] | None = None,
    weights: dict[str, Array | onnx.TensorProto] | None = None,
    depth: int = DEPTH,
) -> onnx.ModelProto:
    """By default ``y = x @ w``."""
    weights = {"w": W} if weights is None else weights
    graph = helper.make_graph(
        nodes or [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(each, name)
            if isinstance(each, np.ndarray)
            else each
            for name, each in weights.items()
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def saved(path: Path, made: onnx.ModelProto, external: bool = False) -> Path:
    """The file of a model, old enough to be known by its time."""
    named = {"save_as_external_data": True, "location": f"{path.stem}.bin"}
    onnx.save(made, path, **(named if external else {}))  # type: ignore[arg-type]
    time.sleep(0.11)
    return path


def session(source: Any, threads: int = 1, **given: Any) -> onnxplug.InferenceSession:
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    providers = [("CPUExecutionProvider", given)]
    return onnxplug.InferenceSession(source, options, providers=providers)


def run(runner: onnxplug.InferenceSession, x: Array = X) -> Array:
    return np.asarray(runner.run(None, {"x": x})[0])


def check(runner: onnxplug.InferenceSession, w: Array = W, x: Array = X) -> None:
    np.testing.assert_allclose(run(runner, x), x.astype(np.float64) @ w, 1e-4, 1e-4)


@pytest.fixture
def made() -> Iterator[list[weakref.ref[Any]]]:
    """What was packed for all sessions, in order."""
    made: list[weakref.ref[Any]] = []
    get = SharedWeights.get

    def watched(
        self: SharedWeights, source: Any, layout: str, make: Callable[[], Any]
    ) -> Any:
        def noted() -> Any:
            value = make()
            if layout.startswith("onnxplug-cpu"):
                made.append(weakref.ref(value))
            return value

        return get(self, source, layout, noted)

    with mock.patch.object(SharedWeights, "get", watched):
        yield made


def given_up(made: list[weakref.ref[Any]]) -> bool:
    gc.collect()
    return all(reference() is None for reference in made)


@pytest.fixture(params=["file", "external data", "read", "bytes"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Makes sessions of one model."""
    external = request.param == "external data"
    path = saved(tmp_path / "m.onnx", model(), external)
    data = path.read_bytes()

    def new(threads: int = 1, **given: Any) -> onnxplug.InferenceSession:
        return session(data if request.param == "bytes" else path, threads, **given)

    return new


def test_sessions_of_one_model_pack_once(
    make: Callable[..., Any], made: list[weakref.ref[Any]]
) -> None:
    first, second = make(), make()
    check(first)
    check(second)
    check(make(threads=2))
    assert len(made) == 1
    # what one leaves stays with the other, and goes with it
    del first
    gc.collect()
    assert made[0]() is not None
    check(second)
    check(second, x=X[:3])
    del second
    assert given_up(made)
    # few rows may have wanted another layout
    before = len(made)
    check(make())
    assert len(made) == before + 1
    assert given_up(made)


def test_packed_weights_cannot_be_written_to(
    make: Callable[..., Any], made: list[weakref.ref[Any]]
) -> None:
    runner = make()
    check(runner)
    packed = made[0]()
    assert packed is not None and not packed.flags.writeable


def test_two_sessions_at_once_pack_once(
    make: Callable[..., Any], made: list[weakref.ref[Any]]
) -> None:
    together = threading.Barrier(4)
    kept: list[Any] = []
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            together.wait(30)
            kept.append(make(threads=1 + number % 2))
            check(kept[-1])
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert len(made) == 1
    kept.clear()
    assert given_up(made)


def test_a_session_that_was_closed_leaves_the_others_right(
    make: Callable[..., Any], made: list[weakref.ref[Any]]
) -> None:
    with make() as first:
        check(first)
        second = make()
        check(second)
    check(second)
    assert len(made) == 1
    second.close()
    second.close()
    assert given_up(made)  # although the sessions are there
    assert {first.explain().nodes[0].ep, second.explain().nodes[0].ep} == {
        "CPUExecutionProvider"
    }


def test_originals_are_given_up_one_after_the_other(tmp_path: Path) -> None:
    """Without waiting for a collection of garbage: copies of them are large."""
    size, count = 600, 4  # more than 1 MiB each
    names = [f"w{number}" for number in range(count)]
    w = np.eye(size, dtype=np.float32)
    values = ["x", *(f"v{number}" for number in range(count - 1)), "y"]
    nodes = [
        helper.make_node("MatMul", [values[n], name], [values[n + 1]])
        for n, name in enumerate(names)
    ]
    proto = model(nodes, {name: w + n for n, name in enumerate(names)}, depth=size)
    alive: list[int] = []
    copies: list[weakref.ref[Any]] = []
    get = SharedWeights.get

    def watched(
        self: SharedWeights, source: Any, layout: str, make: Callable[[], Any]
    ) -> Any:
        value = get(self, source, layout, make)
        if layout.startswith("onnxplug array"):
            copies.append(weakref.ref(value))
            alive.append(sum(reference() is not None for reference in copies))
        return value

    for turn in range(4):  # until the weights are not where arrays may begin
        proto.producer_name = "p" * turn
        data = proto.SerializeToString()
        gc.collect()
        gc.disable()
        try:
            with mock.patch.object(SharedWeights, "get", watched):
                runner = session(data)
                run(runner, np.ones((2, size), np.float32))
            left = sum(reference() is not None for reference in copies)
        finally:
            gc.enable()
        assert left == 0
    assert len(copies) >= count
    assert max(alive) == 1


# what must not be mixed up


def test_ways_to_compute_have_forms_of_their_own(
    make: Callable[..., Any], made: list[weakref.ref[Any]]
) -> None:
    with tiled.host():
        split = [make(threads) for threads in (1, 2, 3)]
        by_fma = [make(threads, fp32_matmul="fma") for threads in (1, 2)]
        for runner in (*split, *by_fma):
            check(runner)
        assert len(made) == 2
        # of few rows no product is split
        check(split[0], x=X[:2])
        assert len(made) == 2
    assert {reference().nbytes for reference in made if reference() is not None} == {
        64 + 6 * 160 * 224,
        4 * 160 * 208,
    }


@pytest.mark.skipif(os.name != "posix", reason="Windows keeps mapped files")
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("size", ["small", "large"])
def test_a_file_that_changed_is_another_model(
    tmp_path: Path, in_place: bool, size: str
) -> None:
    """While a session of the one before is open; small files are not mapped."""
    depth = DEPTH if size == "small" else 2000
    x = RANDOM.standard_normal((4, depth)).astype(np.float32)
    path = tmp_path / "m.onnx"
    kept = []
    for turn in range(6):
        w = RANDOM.standard_normal((depth, COLUMNS)).astype(np.float32)
        if in_place and size == "small":
            onnx.save(model(weights={"w": w}, depth=depth), path)
        else:
            onnx.save(model(weights={"w": w}, depth=depth), tmp_path / "new")
            os.replace(tmp_path / "new", path)
        os.utime(path, ns=(10**18 + 1, 10**18 + 1))
        if turn % 2:
            time.sleep(0.11)
        kept.append((session(path), w))
        for runner, its in kept:
            check(runner, its, x)


def test_replaced_initializers_are_not_those_of_the_file(
    tmp_path: Path, made: list[weakref.ref[Any]]
) -> None:
    path = saved(tmp_path / "m.onnx", model())
    kept = [(session(path), W)]
    for factor in (2, 3, 2):
        options = onnxplug.SessionOptions()
        options.intra_op_num_threads = 1
        other = W * np.float32(factor)
        options.add_initializer("w", onnxplug.OrtValue.ortvalue_from_numpy(other))
        kept.append((onnxplug.InferenceSession(path, options), other))
    for runner, w in kept:
        check(runner, w)
    assert len(made) == 3  # two have the same


def stored(name: str, data: int, shape: tuple[int, ...], offset: int) -> Any:
    tensor = TensorProto(name=name, data_type=data, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", str(offset))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def test_one_file_is_read_in_many_ways(
    tmp_path: Path, made: list[weakref.ref[Any]]
) -> None:
    """The same bytes in other shapes, types and orders, while all of them are there."""
    content = RANDOM.standard_normal(40_000).astype(np.float32)
    content.tofile(tmp_path / "w.bin")
    time.sleep(0.11)
    kept: list[tuple[onnxplug.InferenceSession, Array, Array]] = []
    for count in range(2):
        for rows, columns, offset, transposed in (
            (160, 200, 0, False),
            (160, 200, 0, True),
            (200, 160, 0, False),
            (200, 160, 0, True),
            (160, 200, 400, False),
            (80, 400, 0, False),
            (80, 400, 0, True),
            (320, 100, 0, False),
            (160, 100, 0, False),
        ):
            w = content[offset // 4 :][: rows * columns].reshape(rows, columns)
            right = w.T if transposed else w
            node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=int(transposed))
            if not transposed:
                node = helper.make_node("MatMul", ["x", "w"], ["y"])
            proto = model(
                [node],
                {"w": stored("w", TensorProto.FLOAT, (rows, columns), offset)},
                depth=len(right),
            )
            path = tmp_path / f"{len(kept)}.onnx"
            onnx.save(proto, path)
            x = RANDOM.standard_normal((7, len(right))).astype(np.float32)
            kept.append((session(path), right, x))
        for runner, w, x in kept:
            check(runner, w, x)
        if not count:
            once = len(made)
    assert len(made) == once == 9


def test_the_same_bytes_as_another_type(tmp_path: Path) -> None:
    content = RANDOM.standard_normal(160 * 200).astype(np.float32)
    content.tofile(tmp_path / "w.bin")
    time.sleep(0.11)
    nodes = [
        helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
        helper.make_node("MatMul", ["d", "w"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
    ]
    wide = stored("w", TensorProto.DOUBLE, (160, 100), 0)
    narrow = stored("w", TensorProto.FLOAT, (160, 200), 0)
    onnx.save(model(nodes, {"w": wide}), tmp_path / "wide.onnx")
    onnx.save(model(weights={"w": narrow}), tmp_path / "narrow.onnx")
    kept = [session(tmp_path / f"{name}.onnx") for name in ("wide", "narrow")]
    for runner, w in zip(kept, (content.view(np.float64), content), strict=True):
        check(runner, w.reshape(160, -1))


# weights that are computed


def quantised(
    scale: float = 1.0, zero: int = 3, axis: int = 1, depth: int = DEPTH
) -> tuple[onnx.ModelProto, Array]:
    integers = np.random.default_rng(8).integers(-9, 9, (depth, depth), np.int8)
    scales = np.linspace(0.5, 2, depth, dtype=np.float32) * np.float32(scale)
    zeros = np.full(depth, zero, np.int8)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    column = scales if axis else scales[:, None]
    expected = (integers.astype(np.float64) - zero) * column
    return model(nodes, {"q": integers, "s": scales, "z": zeros}), expected


def test_quantised_weights_are_packed_once(
    tmp_path: Path, made: list[weakref.ref[Any]]
) -> None:
    kept = []
    for number, given in enumerate(
        ({}, {"scale": 2.0}, {"zero": 1}, {"axis": 0}, {"axis": 0, "zero": 2})
    ):
        proto, w = quantised(**given)  # type: ignore[arg-type]
        path = saved(tmp_path / f"{number}.onnx", proto)
        kept += [(session(path), w), (session(path), w)]
    for runner, w in kept:
        check(runner, w)
    assert len(made) == 5
    runner = w = None  # type: ignore[assignment]
    kept.clear()
    assert given_up(made)


def test_one_file_of_integers_is_made_floats_in_many_ways(tmp_path: Path) -> None:
    """Only what is in the model, not in the file, tells them apart."""
    integers = np.random.default_rng(8).integers(-9, 9, (DEPTH, DEPTH), np.int8)
    integers.tofile(tmp_path / "w.bin")
    time.sleep(0.11)
    kept = []
    for axis in (0, 1):
        for scale in (1.0, 2.0):
            for zero in (0, 1):
                proto, w = quantised(scale, zero, axis)
                tensor = stored("q", TensorProto.INT8, (DEPTH, DEPTH), 0)
                (index,) = (
                    number
                    for number, each in enumerate(proto.graph.initializer)
                    if each.name == "q"
                )
                proto.graph.initializer[index].CopyFrom(tensor)
                path = tmp_path / f"{axis}{scale}{zero}.onnx"
                onnx.save(proto, path)
                kept.append((session(path), w))
    for runner, w in kept:
        check(runner, w)


def test_four_bit_weights_are_read_where_they_lie(made: list[weakref.ref[Any]]) -> None:
    rng = np.random.default_rng(3)
    packed = rng.integers(0, 256, (COLUMNS, DEPTH // 32, 16), np.uint8)
    scales = rng.random(COLUMNS * DEPTH // 32).astype(np.float32)
    levels = np.stack([packed & 15, packed >> 4], -1).reshape(COLUMNS, -1, 32)
    w = (levels.astype(np.float64) - 8) * scales.reshape(COLUMNS, -1, 1)
    node = helper.make_node(
        "MatMulNBits",
        ["x", "q", "s"],
        ["y"],
        domain="com.microsoft",
        K=DEPTH,
        N=COLUMNS,
        bits=4,
        block_size=32,
    )
    data = model([node], {"q": packed, "s": scales}).SerializeToString()
    kept = [session(data), session(data)]
    for runner in kept:
        check(runner, w.reshape(COLUMNS, DEPTH).T)
    assert not made


# names of layouts

ISA = Isa("generic", "", "", "", 16, 16)


class Pack(Generator):
    names: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return self.names


class Other(Generator):
    pass


def pack(*words: Any, more: tuple[str, ...] = (), chunks: int = 1) -> Command:
    names = (*(f"word{n}" for n in range(len(words) - len(more))), *more)
    return Command(Kernel(Pack(names)), words, chunks, "", 0, 0, ())


def test_whatever_a_command_is_given_is_in_the_name() -> None:
    source, target = Constant(100, lambda: np.zeros(25, np.float32)), Packed(100)
    other = Kernel(Other())

    def name(*commands: Command, target: Packed = target, isa: Isa = ISA) -> Any:
        return layout_name(commands, source, target, isa)

    words = (Address(source), Address(target), 5)
    names = [
        name(pack(*words)),
        name(pack(*words, 5)),
        name(pack(Address(source, 4), *words[1:])),
        name(pack(words[0], Address(target, 4), 5)),
        name(pack(words[1], words[0], 5)),
        name(pack(*words[:2], 6)),
        name(pack(*words[:2], Code(other))),
        name(pack(*words[:2], Words((5, Code(other))))),
        name(pack(*words[:2], Words((6, Code(other))))),
        name(pack(*words, Address(Temporary(8)))),
        name(pack(*words), pack(*words)),
        name(pack(*words), isa=ISA._replace(name="avx2")),
    ]
    assert None not in names and len({*names}) == len(names)
    larger = Packed(200)
    assert name(pack(words[0], Address(larger), 5), target=larger) not in names
    # the same again, for other buffers; and divided otherwise
    same = Constant(100, lambda: np.zeros(25, np.float32))
    again = (Address(same), *words[1:])
    assert layout_name([pack(*again)], same, target, ISA) == names[0]
    assert name(pack(*words, chunks=7)) == names[0]
    parts = [name(pack(*words, n, more=("parts",))) for n in (1, 2)]
    assert parts[0] == parts[1]
    # of another constant nothing is known
    assert name(pack(*words, Address(same))) is None


# memory

PROGRAM = """
import gc, sys
import llvmlite.binding  # whose own memory is not asked about, whoever compiles first
import numpy as np
import onnxplug

def private():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    fields = [line.split() for line in lines]
    kinds = {"Private_Clean:", "Private_Dirty:"}
    return sum(int(f[1]) for f in fields if f[0] in kinds) / 1024

small, large = sys.argv[1:]
x = {n: np.ones((64, n), np.float32) for n in (96, 2048)}
onnxplug.InferenceSession(small).run(None, {"x": x[96]})
gc.collect()
used, kept = [private()], []
for _ in range(3):
    kept.append(onnxplug.InferenceSession(large))
    kept[-1].run(None, {"x": x[2048]})
    gc.collect()
    used.append(private())
kept.clear()
gc.collect()
used.append(private())
print(*used)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("external", [True, False])
def test_sessions_of_one_matrix_have_it_once(tmp_path: Path, external: bool) -> None:
    paths = []
    for size in (96, 2048):
        w = np.ones((size, size), np.float32)
        proto = model(weights={"w": w}, depth=size)
        paths.append(saved(tmp_path / f"{size}.onnx", proto, external))
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, paths)],
        check=True,
        capture_output=True,
        text=True,
    )
    before, one, two, three, none = map(float, found.stdout.split())
    matrix = 16  # MiB; terms of bfloat16 take half as much again
    assert one - before < 1.5 * matrix + 6
    assert two - one < 4 and three - two < 4
    assert none - before < 6


def test_small_weights_are_packed_by_one_program() -> None:
    rng = np.random.default_rng(0)
    shapes = {"w": (DEPTH, 40)} | {f"w{n}": (40, 40) for n in range(5)}
    weights = {n: rng.standard_normal(s).astype("f") for n, s in shapes.items()}
    values = ["x", *(f"v{n}" for n in range(5)), "y"]
    proto = model(
        [
            helper.make_node("MatMul", [values[n], name], [values[n + 1]])
            for n, name in enumerate(weights)
        ],
        dict(weights),
    )
    expected = X.astype(np.float64)
    for each in weights.values():
        expected = expected @ each
    programs: list[int] = []
    init = Program.__init__

    def noted(self: Program, commands: Any, *given: Any, **named: Any) -> None:
        programs.append(len(named.get("targets", ())))
        init(self, commands, *given, **named)

    with mock.patch.object(Program, "__init__", noted):
        first = session(proto)
        np.testing.assert_allclose(run(first), expected, 1e-3, 1)
    assert sorted(programs) == [0, len(weights)]
