"""Damaged and hostile models: only our errors come out, in bounded time and memory."""

from __future__ import annotations

import inspect
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxplug.ep import DataType
from onnxplug.errors import ExternalDataError, InvalidModel, OnnxplugError
from onnxplug.graph import Graph, Weight
from onnxplug.graph.export import export_graph
from onnxplug.graph.load import load_model, parse_function

FUZZ_SECONDS = 2.0  # for each kind of damage


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, as it is on the wire."""
    encoded = bytearray()
    for value in (number << 3 | 2, len(content)):
        while value > 0x7F:
            encoded.append(value & 0x7F | 0x80)
            value >>= 7
        encoded.append(value)
    return bytes(encoded) + content


def rich_model() -> onnx.ModelProto:
    """A small model with something of everything that is read."""
    weights = [
        numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "raw"),
        helper.make_tensor("floats", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("doubles", TensorProto.DOUBLE, [2], [1.0, 2.0]),
        helper.make_tensor("ints", TensorProto.INT32, [3], [1, -300, 70000]),
        helper.make_tensor("longs", TensorProto.INT64, [3], [1, -300, 2**40]),
        helper.make_tensor("unsigned", TensorProto.UINT64, [2], [1, 2**63]),
        helper.make_tensor("halves", TensorProto.FLOAT16, [2], [1.0, 2.0]),
        helper.make_tensor("nibbles", TensorProto.INT4, [3], [1, -2, 3]),
        helper.make_tensor("complex", TensorProto.COMPLEX64, [1], [1 + 2j]),
        helper.make_tensor("bools", TensorProto.BOOL, [2], [True, False]),
        helper.make_tensor("strings", TensorProto.STRING, [2], ["a", "bc"]),
        numpy_helper.from_array(np.ones(3, np.float32), "default"),
    ]
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5.0]), "sparse"),
        numpy_helper.from_array(np.array([[0, 1]])),
        [2, 3],
    )
    tensor_type = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, "n"])
    sequence = helper.make_sequence_type_proto(tensor_type)
    r = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    body = helper.make_graph(
        [helper.make_node("Add", ["x", "own"], ["r"])],
        "body",
        [],
        [r],
        [numpy_helper.from_array(np.ones(1, np.float32), "own")],
    )
    nodes = [
        helper.make_node("If", ["c"], ["i"], then_branch=body, else_branch=body),
        helper.make_node("Conv", ["i", "raw"], ["v"], "conv", pads=[1, 2], auto="x"),
        helper.make_node(
            "F",
            ["v", "", "sparse"],
            ["y"],
            domain="d",
            f=0.5,
            fs=[1.0],
            t=weights[3],
            ss=["a"],
            sp=sparse,
            tp=sequence,
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "main",
        [
            helper.make_value_info("x", tensor_type),
            helper.make_value_info("c", helper.make_optional_type_proto(sequence)),
            helper.make_tensor_value_info("default", TensorProto.FLOAT, [3]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        weights,
        value_info=[helper.make_tensor_value_info("v", TensorProto.FLOAT, [2, -1])],
        sparse_initializer=[sparse],
    )
    function = helper.make_function(
        "d",
        "F",
        ["a", "b", "s"],
        ["o"],
        [helper.make_node("Identity", ["a"], ["o"])],
        [helper.make_opsetid("", 18)],
        ["f"],
    )
    return helper.make_model(
        graph,
        functions=[function],
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("d", 1)],
        producer_name="test",
    )


DATA = rich_model().SerializeToString()


def graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for body in node.subgraphs.values():
            yield from graphs(body)


def use(data: bytes) -> bool:
    """Load *data* and look at everything; whether that worked.

    Anything but our own errors gets through and fails the test.
    """
    try:
        model = load_model(data)
        for graph in graphs(model.graph):
            for weight in (*graph.constants.values(), *graph.defaults.values()):
                assert weight.array.shape == weight.shape
            for node in graph.nodes:
                assert node.attributes is not None
    except OnnxplugError as error:
        assert str(error)
        return False
    return True


def test_the_undamaged_model_is_read() -> None:
    assert use(DATA)


def test_every_truncation_is_refused() -> None:
    # a message may end where a field does, and then lacks what came after
    whole = [end for end in range(len(DATA)) if use(DATA[:end])]
    assert len(whole) < 10


def for_a_while(damage: Callable[[random.Random], bytes]) -> None:
    generator = random.Random(20251106)
    deadline = time.monotonic() + FUZZ_SECONDS
    count = 0
    while time.monotonic() < deadline:
        use(damage(generator))
        count += 1
    assert count > 50


def test_flipped_bits_raise_only_our_errors() -> None:
    def flipped(generator: random.Random) -> bytes:
        data = bytearray(DATA)
        for _ in range(generator.randint(1, 4)):
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        return bytes(data)

    for_a_while(flipped)


def test_changed_bytes_raise_only_our_errors() -> None:
    def changed(generator: random.Random) -> bytes:
        data = bytearray(DATA)
        for _ in range(generator.randint(1, 3)):
            data[generator.randrange(len(data))] = generator.choice(b"\0\1\x7f\x80\xff")
        return bytes(data)

    for_a_while(changed)


def test_cut_and_repeated_bytes_raise_only_our_errors() -> None:
    def spliced(generator: random.Random) -> bytes:
        first, second = sorted(generator.sample(range(len(DATA)), 2))
        if generator.random() < 0.5:
            return DATA[:first] + DATA[second:]
        return DATA[:second] + DATA[first:]

    for_a_while(spliced)


def test_damaged_functions_raise_only_our_errors() -> None:
    data = rich_model().functions[0].SerializeToString()
    generator = random.Random(1)
    for _ in range(2000):
        damaged = bytearray(data)
        damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            parse_function(bytes(damaged))
        except OnnxplugError:
            continue


def test_what_survives_damage_can_be_exported() -> None:
    generator = random.Random(2)
    for _ in range(300):
        damaged = bytearray(DATA)
        damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
        try:
            graph = load_model(bytes(damaged)).graph
            export_graph(graph)
        except OnnxplugError:
            continue


# hostile


def nested_bodies(depth: int) -> bytes:
    """An If in an If in an If …, of which only a scanner sees the depth."""
    graph = field(2, b"innermost")
    for _ in range(depth):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
        graph = field(1, field(4, b"If") + field(5, attribute)) + field(2, b"g")
    return b"\x08\x02" + field(7, graph)


def test_bodies_are_nested_as_deep_as_protobuf_allows() -> None:
    assert use(nested_bodies(30))
    with pytest.raises(InvalidModel, match="nested more than 100 deep"):
        load_model(nested_bodies(40))


@pytest.mark.parametrize("depth", [200, 2000])
def test_deeper_bodies_are_refused_at_once(depth: int) -> None:
    data = nested_bodies(depth)
    start = time.process_time()
    assert not use(data)
    assert time.process_time() - start < 1


def test_deep_types_are_refused() -> None:
    value_type = field(1, b"\x08\x01")
    for _ in range(2000):
        value_type = field(4, field(1, value_type))
    graph = field(11, field(1, b"x") + field(2, value_type))
    with pytest.raises(InvalidModel, match="nested more than 100 deep"):
        load_model(b"\x08\x02" + field(7, graph))


def tensor_claiming(dims: list[int], **content: Any) -> TensorProto:
    fields = {"name": "w", "data_type": TensorProto.FLOAT, **content}
    return TensorProto(dims=dims, **fields)


@pytest.mark.parametrize(
    "tensor",
    [
        tensor_claiming([2**60]),
        tensor_claiming([2**60], raw_data=b"1234"),
        tensor_claiming([2**40], data_type=TensorProto.INT64, int64_data=[1]),
        tensor_claiming([2**40], data_type=TensorProto.STRING),
        tensor_claiming([2**62, 2**62, 2**62]),
        tensor_claiming([2**62] * 64),
        tensor_claiming([1] * 100_000),
        tensor_claiming([-(2**63)]),
    ],
    ids=lambda tensor: str(list(tensor.dims[:3])),
)
def test_a_tensor_that_claims_more_than_it_has_takes_no_memory(
    tensor: TensorProto,
) -> None:
    model = rich_model()
    model.graph.initializer.append(tensor)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(OnnxplugError):
        load_model(model)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000  # KiB on Linux


def test_lengths_beyond_the_end_are_refused_wherever_they_are() -> None:
    huge = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
    for tag in (0x3A, 0x42, 0x72, 0xCA):
        assert not use(b"\x08\x02" + bytes([tag]) + huge)
        assert not use(b"\x08\x02" + field(7, bytes([tag]) + huge))


def test_many_nodes_in_a_cycle_are_refused_in_time() -> None:
    nodes = [
        helper.make_node("A", [f"v{i}"], [f"v{(i + 1) % 3000}"]) for i in range(3000)
    ]
    y = helper.make_tensor_value_info("v0", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "g", [], [y]))
    with pytest.raises(InvalidModel, match="cycle"):
        load_model(model)


def test_many_nodes_in_reverse_order_are_sorted_in_time() -> None:
    nodes = [helper.make_node("A", [f"v{i}"], [f"v{i + 1}"]) for i in range(3000)]
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, None)
    y = helper.make_tensor_value_info("v3000", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes[::-1], "g", [x], [y]))
    start = time.process_time()
    graph = load_model(model).graph
    assert time.process_time() - start < 1
    assert graph.nodes[0].inputs == ("v0",)


def test_many_names_twice_are_refused_in_time() -> None:
    names = [f"v{i}" for i in range(20_000)]
    inputs = [field(11, field(1, name.encode())) for name in [*names, names[-1]]]
    start = time.process_time()
    with pytest.raises(InvalidModel, match="two inputs named 'v19999'"):
        load_model(b"\x08\x02" + field(7, b"".join(inputs)))
    assert time.process_time() - start < 1


def test_a_weight_is_not_kept_half_made() -> None:
    """A materialisation that fails fails again, rather than give something else."""

    def fail() -> Any:
        raise InvalidModel("it is damaged")

    weight = Weight(DataType.INT64, (1,), fail)
    for _ in range(2):
        with pytest.raises(InvalidModel):
            assert weight.array is None


@pytest.mark.parametrize(
    ("octets", "words"),
    [
        (b"\x80" * 12 + b"\x01", "a varint of more than 10 bytes"),
        (b"\x01\x80", "within a field that reaches"),
    ],
)
def test_varints_are_looked_at_when_the_weight_is_loaded(
    octets: bytes, words: str
) -> None:
    tensor = b"\x08\x01\x10\x02" + field(8, b"w") + field(5, octets)
    opset = field(8, b"\x10\x15")
    with pytest.raises(InvalidModel, match=words):
        load_model(b"\x08\x0a" + field(7, field(5, tensor)) + opset)


@pytest.mark.parametrize("wire_type", [3, 4, 6, 7])
def test_groups_are_refused_however_deep(wire_type: int) -> None:
    groups = bytes([1 << 3 | wire_type]) * 200_000
    for data in (groups, field(7, groups), field(7, field(1, groups))):
        with pytest.raises(InvalidModel, match=f"wire type {wire_type} is "):
            load_model(b"\x08\x02" + data)


@pytest.mark.parametrize(
    "length",
    [
        b"\xff" * 9 + b"\x01",  # 2**64 - 1
        b"\xff" * 9 + b"\x7f",  # what is beyond 64 bits is not looked at
        b"\x80" * 9 + b"\x01",
        b"\xff" * 10,
        b"\xff" * 100_000,
        b"\x80",
    ],
    ids=lambda length: f"{length[:3].hex()}x{len(length)}",
)
def test_a_length_beyond_64_bits_is_refused_wherever_it_is(length: bytes) -> None:
    for number in (1, 5, 7, 8, 11):
        tag = bytes([number << 3 | 2])
        assert not use(b"\x08\x02" + tag + length)
        assert not use(b"\x08\x02" + field(7, tag + length))
        assert not use(b"\x08\x02" + field(7, field(5, tag + length)))


def test_bodies_as_deep_as_can_be_leave_most_of_the_stack() -> None:
    """Each body takes a few frames, so that the limit of messages is met first."""
    data = nested_bodies(32)
    depth = len(inspect.stack(0))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 250)
    try:
        assert use(data)
    finally:
        sys.setrecursionlimit(limit)


def test_every_entry_of_external_data_that_is_no_range_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(24))
    model = rich_model()
    tensor = tensor_claiming([6], data_location=TensorProto.EXTERNAL)
    model.graph.initializer.append(tensor)
    numbers = ["-1", "1", "2305843009213693952", str(2**63 - 1), str(2**63)]
    numbers += [str(2**64 - 23), str(2**64), "-9223372036854775808", "9" * 5000]
    for key in ("offset", "length"):
        for number in numbers:
            damaged = model.graph.initializer[-1]
            del damaged.external_data[:]
            damaged.external_data.add(key="location", value="w.bin")
            damaged.external_data.add(key=key, value=number)
            with pytest.raises(ExternalDataError):
                load_model(model, external_data_folder=tmp_path)


def test_a_million_empty_nodes_are_refused_at_the_first() -> None:
    start = time.process_time()
    with pytest.raises(InvalidModel, match="names no operator"):
        load_model(b"\x08\x02" + field(7, field(1, b"") * 1_000_000))
    assert time.process_time() - start < 5


def test_the_time_of_loading_grows_as_the_nodes() -> None:
    def seconds(count: int) -> float:
        node = field(1, field(4, b"A"))
        data = b"\x08\x02" + field(7, node * count)
        start = time.process_time()
        assert len(load_model(data).graph.nodes) == count
        return time.process_time() - start

    # of several, since one may meet a collection of the whole heap
    few, many = (min(seconds(count) for _ in range(3)) for count in (2000, 20_000))
    assert many < 40 * few


def test_many_tensors_of_one_file_open_it_once(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(24))
    model = rich_model()
    for index in range(3000):
        location = "./" * (index % 50) + "w.bin"
        tensor = tensor_claiming([6], name=f"w{index}", data_location=1)
        tensor.external_data.add(key="location", value=location)
        model.graph.initializer.append(tensor)
    loaded = load_model(model, external_data_folder=tmp_path)
    assert len(loaded.files) == 1


def test_initializers_that_appear_twice_are_refused() -> None:
    model = rich_model()
    for name in ("raw", "sparse", "default"):
        twice = rich_model()
        twice.graph.initializer.append(
            numpy_helper.from_array(np.zeros(3, np.float32), name)
        )
        with pytest.raises(InvalidModel, match=f"two initializers named '{name}'"):
            load_model(twice)
    model.graph.sparse_initializer.append(model.graph.sparse_initializer[0])
    with pytest.raises(InvalidModel, match="two initializers named 'sparse'"):
        load_model(model)
