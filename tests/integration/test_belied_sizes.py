"""Sizes that a model states alike and that are fed as several: as ONNX has it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import (
    InputError,
    InvalidModel,
    ModelNotFound,
    NodeError,
    RunCancelled,
    RunError,
)
from onnxplug.hardware import discover
from onnxplug.plugins import registry
from onnxplug.session import opening, remaking, runner
from onnxplug.verify.check import run_probes
from onnxplug.verify.verdict import Verdict
from onnxplug_testing import SimulatedFactory

Simulated = Callable[..., SimulatedFactory]

TIERS = [{}, {"compile": "0"}]


def parse(graph: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g ' + graph
    )


def session(model: onnx.ModelProto, tier: dict[str, str] | None = None) -> Any:
    return onnxplug.InferenceSession(model, providers=[("cpu", tier or {})])


def arrays(**shapes: tuple[int, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def made_anew(caplog: pytest.LogCaptureFixture) -> int:
    return sum("made anew" in record.message for record in caplog.records)


# each would give other numbers if equal names were believed to be equal sizes
MODELS: dict[str, tuple[str, list[dict[str, tuple[int, ...]]]]] = {
    "a difference of sizes": (
        """(float[N] a, float[N] b) => (int64[1] d, float[M] c) {
            s = Shape (a)  t = Shape (b)  d = Sub (s, t)  c = Concat <axis=0> (a, b) }
        """,
        [{"a": (3,), "b": (3,)}, {"a": (3,), "b": (5,)}, {"a": (5,), "b": (3,)}],
    ),
    "a branch taken by sizes": (
        """(float[N] a, float[N] b) => (float[K] y) {
            s = Size (a)  t = Size (b)  same = Equal (s, t)
            y = If (same) <
                then_branch = u () => (float[K] p) { p = Neg (a) },
                else_branch = v () => (float[K] q) { q = Exp (b) }> }
        """,
        [{"a": (3,), "b": (3,)}, {"a": (3,), "b": (5,)}, {"a": (4,), "b": (4,)}],
    ),
    "a stretch that would do nothing": (
        """(float[N,M] a, float[N,M] b) => (float[P,Q] y) {
            s = Shape (b)  e = Expand (a, s)  y = Exp (e) }
        """,
        [
            {"a": (2, 3), "b": (2, 3)},
            {"a": (1, 3), "b": (2, 3)},
            {"a": (2, 1), "b": (2, 4)},
        ],
    ),
    "a shape that would be as before": (
        """(float[N,6] a, float[N,6] b) => (float[P,Q] y)
            <int64[1] rest = {-1}, int64[1] zero = {0}, int64[1] one = {1}> {
            s = Shape (b)  n = Slice (s, zero, one)  t = Concat <axis=0> (n, rest)
            r = Reshape (a, t)  y = Exp (r) }
        """,
        [
            {"a": (4, 6), "b": (4, 6)},
            {"a": (4, 6), "b": (8, 6)},
            {"a": (4, 6), "b": (2, 6)},
        ],
    ),
    "both sizes of one input": (
        """(float[N,N] a) => (float[P,Q] y) {
            t = Transpose <perm=[1,0]> (a)  p = MatMul (a, t)  y = Exp (p) }
        """,
        [{"a": (3, 3)}, {"a": (2, 5)}, {"a": (5, 2)}],
    ),
    "a size that is computed of others": (
        """(float[B,P] cache, float[B,S] new, float[B,any] mask) => (float[B,T] y) {
            all = Concat <axis=1> (cache, new)  y = Mul (all, mask) }
        """,
        [
            {"cache": (2, 3), "new": (2, 1), "mask": (2, 4)},
            {"cache": (2, 3), "new": (2, 1), "mask": (2, 1)},
            {"cache": (1, 3), "new": (1, 2), "mask": (2, 5)},
        ],
    ),
    "sizes that broadcast": (
        """(float[N,H] a, float[N,H] b) => (float[N,H] y) {
            s = Add (a, b)  e = Erf (s)  m = ReduceMean (e)  y = Mul (e, m) }
        """,
        [
            {"a": (4, 8), "b": (4, 8)},
            {"a": (4, 8), "b": (1, 8)},
            {"a": (1, 1), "b": (4, 8)},
        ],
    ),
    "a name that outputs declare": (
        """(float[N] a, float[N] b) => (float[N] x, float[N] y, int64[1] z) {
            x = Neg (a)  y = Neg (b)  s = Shape (x)  t = Shape (y)  z = Sub (s, t) }
        """,
        [{"a": (3,), "b": (3,)}, {"a": (3,), "b": (5,)}],
    ),
    "a turn for each size": (
        """(float[N] a, float[N] b, bool go) => (float[N] y) {
            n = Size (b)
            y = Loop (n, go, a) <
                body = l (int64 i, bool c, float[N] v) => (bool d, float[N] w) {
                    d = Identity (c)  w = Add (v, v) }> }
        """,
        [{"a": (3,), "b": (3,)}, {"a": (3,), "b": (5,)}],
    ),
    "a name that outputs declare of sizes that differ": (
        """(float[P] a, float[Q] b) => (int64[1,N] x, int64[1,N] y, int64[2] z) {
            x = NonZero (a)  y = NonZero (b)  s = Shape (x)  t = Shape (y)
            z = Sub (s, t) }
        """,
        [{"a": (3,), "b": (3,)}, {"a": (3,), "b": (5,)}],
    ),
    "a name that is declared within": (
        """(float[P] a, float[Q] b) => (int64[2] z)
            <int64[1,N] x, int64[1,N] y, int64[2] s, int64[2] t> {
            x = NonZero (a)  y = NonZero (b)  s = Shape (x)  t = Shape (y)
            z = Sub (s, t) }
        """,
        [{"a": (3,), "b": (3,)}, {"a": (3,), "b": (5,)}],
    ),
    "a name of an input that outputs declare": (
        """(float[N] a, float[M] b) => (float[N] x, int64[1] z) {
            x = Add (a, b)  s = Shape (x)  t = Shape (a)  z = Sub (s, t) }
        """,
        [{"a": (1,), "b": (3,)}, {"a": (3,), "b": (3,)}],
    ),
    "a name that a body declares": (
        """(float[N] a, float[M] b, bool go) => (int64[1] z)
            <float[any] x, int64[1] s, int64[1] t> {
            x = If (go) <
                then_branch = u () => (float[N] p) { p = Exp (b) },
                else_branch = v () => (float[N] q) { q = Neg (b) }>
            s = Shape (x)  t = Shape (a)  z = Sub (s, t) }
        """,
        [{"a": (3,), "b": (3,)}, {"a": (3,), "b": (5,)}],
    ),
    "sizes that are not named": (
        """(float[any,any] a, float[any] b) => (float[any,any] y) { y = Mul (a, b) }""",
        [{"a": (3, 3), "b": (3,)}, {"a": (2, 5), "b": (5,)}, {"a": (2, 5), "b": (1,)}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("tier", TIERS, ids=["compiled", "arrays"])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_the_reference(name: str, tier: dict[str, str]) -> None:
    text, feeds = MODELS[name]
    model = parse(text)
    _rename(model, "any", "P + S" if "[B,P]" in text else "?")
    reference = onnx.reference.ReferenceEvaluator(model)
    ours = session(model, tier)
    declared = [(value.name, value.shape) for value in ours.get_inputs()]
    for shapes in [*feeds, *reversed(feeds)]:
        feed = arrays(**shapes)
        if "bool go" in text:
            feed["go"] = np.array(True)
        for found, expected in zip(
            ours.run(None, feed), reference.run(None, feed), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
    assert [(value.name, value.shape) for value in ours.get_inputs()] == declared


def _rename(model: onnx.ModelProto, old: str, new: str) -> None:
    for value in (*model.graph.input, *model.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param == old:
                size.dim_param = new


TWO = parse("(float[N] a, float[N] b) => (float[N] y) { y = Add (a, b) }")
SAME, OTHER = arrays(a=(3,), b=(3,)), arrays(a=(3,), b=(1,))


def test_outputs_are_reported_as_declared() -> None:
    model = parse("(float[P] a, float[N] b) => (int64[1,N] x) { x = NonZero (a) }")
    (x,) = session(model).get_outputs()
    assert x.shape == [1, "N"]


def test_names_in_functions_are_their_own() -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 21, "f": 1]> '
        "g (float[P] a, bool go) => (int64[2] z) {"
        " x = f.either (a, go)  b = Concat <axis=0> (a, a)  y = f.either (b, go)"
        " s = Shape (x)  t = Shape (y)  z = Sub (s, t) } "
        '<domain: "f", opset_import: ["": 21]> either (a, go) => (x) {'
        " x = If (go) <"
        " then_branch = u () => (int64[1,N] p) { p = NonZero (a) },"
        " else_branch = v () => (int64[1,N] q) { m = Neg (a)  q = NonZero (m) }> }"
    )
    feed = {**arrays(a=(3,)), "go": np.array(True)}
    (z,) = session(onnx.parser.parse_model(text)).run(None, feed)
    assert z.tolist() == [0, -3]


def test_it_is_made_anew_once_and_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="onnxplug.session")
    made = session(TWO)
    for _ in range(3):
        made.run(None, SAME)
    assert made_anew(caplog) == 0
    for _ in range(3):
        made.run(None, OTHER)
        made.run(None, SAME)
    assert made_anew(caplog) == 1
    assert "'N' of input 'b'" in caplog.text


def test_what_is_no_name_is_never_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="onnxplug.session")
    model = parse("(float[any,3,any] x) => (float[any,3,any] y) { y = Relu (x) }")
    _rename(model, "any", "?")
    made = session(model)
    (x,), (y,) = made.get_inputs(), made.get_outputs()
    assert x.shape == y.shape == ["?", 3, "?"]
    assert made.run(None, arrays(x=(1, 3, 7)))[0].shape == (1, 3, 7)
    assert made_anew(caplog) == 0
    options = onnxplug.SessionOptions()
    options.add_free_dimension_override_by_name("?", 2)
    (x,) = onnxplug.InferenceSession(model, options).get_inputs()
    assert x.shape == [2, 3, 2]


@pytest.mark.parametrize("tier", TIERS, ids=["compiled", "arrays"])
def test_sizes_that_do_not_go_together_are_the_nodes(tier: dict[str, str]) -> None:
    made = session(TWO, tier)
    for _ in range(2):
        with pytest.raises(NodeError, match="Add") as raised:
            made.run(None, arrays(a=(3,), b=(5,)))
        assert "partition 0" in str(raised.value)
    np.testing.assert_array_equal(made.run(None, SAME)[0], SAME["a"] + SAME["b"])


def test_every_way_to_run() -> None:
    expected = OTHER["a"] + OTHER["b"]
    done: list[Any] = []

    def by_binding(made: Any) -> Any:
        binding = made.io_binding()
        for name, value in OTHER.items():
            binding.bind_cpu_input(name, value)
        binding.bind_output("y")
        made.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()[0]

    def by_callback(made: Any) -> Any:
        ended = threading.Event()

        def receive(results: list[Any], user_data: Any, error: str) -> None:
            done.append((results, error))
            ended.set()

        made.run_async(None, OTHER, receive, None)
        assert ended.wait(30)
        results, error = done.pop()
        assert not error
        return results[0]

    def by_values(made: Any) -> Any:
        values = {
            name: onnxplug.OrtValue.ortvalue_from_numpy(value)
            for name, value in OTHER.items()
        }
        return made.run_with_ort_values(None, values)[0].numpy()

    for way in (
        by_binding,
        by_callback,
        by_values,
        lambda made: asyncio.run(made.arun(None, OTHER))[0],
        lambda made: made.run(["a", "y"], OTHER)[1],
        lambda made: made.run(None, OTHER, onnxplug.RunOptions())[0],
    ):
        made = session(TWO)
        made.run(None, SAME)
        np.testing.assert_array_equal(way(made), expected)
        made.close()


def test_prepare_takes_shapes_that_belie_names() -> None:
    model = parse(
        """(float[N,4] a, float[N,4] b) => (float[N,4] y) {
            s = Add (a, b)  e = Erf (s)  y = Mul (e, b) }"""
    )
    made = session(model)
    (prepared,) = made.prepare(iter([{"a": (3, 4), "b": (1, 4)}]))
    assert prepared.ready
    with pytest.raises(InputError, match="no input 'z'"):
        made.prepare({"z": (1,)})


def test_values_within_and_values_that_users_added() -> None:
    class Mine(onnxplug.InferenceSession):
        pass

    made = Mine(parse(MODELS["a difference of sizes"][0]))
    made.tag = "mine"  # type: ignore[attr-defined]
    feed = arrays(a=(3,), b=(5,))
    before = made.run(["s", "t", "d"], arrays(a=(3,), b=(3,)))
    after = made.run(["s", "t", "d"], feed)
    assert [int(value[0]) for value in before] == [3, 3, 0]
    assert [int(value[0]) for value in after] == [3, 5, -2]
    assert made.run(["d"], feed)[0] == [-2]
    assert made.tag == "mine"  # type: ignore[attr-defined]
    assert made.get_providers() == ["CPUExecutionProvider"]


def test_threads_see_their_own_results() -> None:
    made = session(parse(MODELS["sizes that broadcast"][0]))
    wrong: list[object] = []

    def work(rows: int) -> None:
        feed = arrays(a=(4, 8), b=(rows, 8))
        reference = onnx.reference.ReferenceEvaluator(
            parse(MODELS["sizes that broadcast"][0])
        )
        (expected,) = reference.run(None, feed)
        try:
            for _ in range(50):
                (found,) = made.run(None, feed)
                np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (4, 1, 4, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_trace_goes_on(tmp_path: Path) -> None:
    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    made = onnxplug.InferenceSession(TWO, options)
    made.run(None, SAME)
    made.run(None, OTHER)
    path = made.end_profiling()
    assert Path(path).read_text().count('"model_run"') == 3  # one began twice
    assert [p.name for p in tmp_path.iterdir()] == [Path(path).name]


def test_a_closed_session_is_not_made_anew() -> None:
    made = session(TWO)
    made.close()
    with pytest.raises(RunError, match="closed"):
        made.run(None, OTHER)


def test_what_is_written_holds_for_sizes_that_differ(tmp_path: Path) -> None:
    model = parse(MODELS["a difference of sizes"][0])
    options = onnxplug.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "prepared.onnx")
    onnxplug.InferenceSession(model, options).close()
    written = onnx.load(options.optimized_model_filepath)
    assert [v.type.tensor_type.shape.dim[0].dim_param for v in written.graph.input] == [
        "N",
        "N",
    ]
    feed = arrays(a=(3,), b=(5,))
    d, _ = onnx.reference.ReferenceEvaluator(written).run(None, feed)
    assert d == [-2]
    assert session(written).run(["d"], feed)[0] == [-2]


def test_a_compiled_model_holds_for_sizes_that_differ(tmp_path: Path) -> None:
    model = parse(MODELS["a difference of sizes"][0])
    path = tmp_path / "compiled.onnx"
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_file_path", str(path))
    onnxplug.InferenceSession(model, options, providers=["OpenVINO", "cpu"])
    made = onnxplug.InferenceSession(str(path), providers=["OpenVINO", "cpu"])
    assert made.run(["d"], arrays(a=(3,), b=(3,)))[0] == [0]
    assert made.run(["d"], arrays(a=(3,), b=(5,)))[0] == [-2]


OWN_N = parse(
    "(float[N] a, float[N] b) => (float[N] x, float[N] y) { x = Exp (a)  y = Neg (b) }"
)


@pytest.mark.parametrize("way", ["prepared", "compiled"])
def test_sizes_that_are_fixed_are_fixed_in_what_is_written(
    tmp_path: Path, way: str
) -> None:
    path = tmp_path / "written.onnx"
    options = onnxplug.SessionOptions()
    options.add_free_dimension_override_by_name("N", 4)
    if way == "prepared":
        options.optimized_model_filepath = str(path)
    else:
        options.add_session_config_entry("ep.context_enable", "1")
        options.add_session_config_entry("ep.context_file_path", str(path))
    made = onnxplug.InferenceSession(OWN_N, options, providers=["OpenVINO", "cpu"])
    ports = [*made.get_inputs(), *made.get_outputs()]
    assert [port.shape for port in ports] == [[4]] * 4
    graph = onnx.load(path).graph
    sizes = [v.type.tensor_type.shape.dim[0] for v in (*graph.input, *graph.output)]
    assert [size.dim_value for size in sizes] == [4] * 4


def test_a_size_that_is_fixed_in_part(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="onnxplug.session")
    model = parse(
        """(float[M] a, float[any] b, float[N] c) => (float[P] x, float[Q] y) {
            x = Concat <axis=0> (a, c)  y = Neg (b) }"""
    )
    _rename(model, "any", "N*M")
    options = onnxplug.SessionOptions()
    options.add_free_dimension_override_by_name("N", 2)
    made = onnxplug.InferenceSession(model, options)
    for size in (6, 5, 6):
        feed = arrays(a=(3,), b=(size,), c=(2,))
        np.testing.assert_array_equal(made.run(None, feed)[1], -feed["b"])
    assert made.prepare({"a": (3,), "b": (5,), "c": (2,)})[0].ready
    assert made_anew(caplog) == 1


def with_default(size: int) -> onnx.ModelProto:
    model = parse(
        """(float[N] a, float[N] w) => (float[any] z) {
            s = Shape (a)  t = Shape (w)  d = Sub (s, t)
            f = Cast <to=1> (d)  z = Add (a, f) }"""
    )
    _rename(model, "any", "?")
    default = onnx.numpy_helper.from_array(np.ones(size, np.float32), "w")
    model.graph.initializer.append(default)
    return model


@pytest.mark.parametrize("tier", TIERS, ids=["compiled", "arrays"])
def test_a_default_that_is_left_out_belies_names(tier: dict[str, str]) -> None:
    made = session(with_default(1), tier)
    for size in (1, 5, 1, 2):
        feed = arrays(a=(size,))
        (z,) = made.run(None, feed)
        np.testing.assert_array_equal(z, feed["a"] + (size - 1))


def test_prepare_heeds_defaults_that_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="onnxplug.session")
    made = session(with_default(1))
    made.prepare({"a": (1,)})
    assert made_anew(caplog) == 0
    made.prepare({"a": (5,)})
    assert made_anew(caplog) == 1


def test_what_was_forgotten_and_is_belied_still_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "forget", lambda *arguments: {})
    made = session(TWO)
    with pytest.raises(RunError, match=r"'N' of input 'b'.*defect of onnxplug"):
        made.run(None, OTHER)


def test_eps_that_are_set_meanwhile_stay(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = simulated()
    began, was_set = threading.Event(), threading.Event()
    open_model = remaking.open_model

    def open_slowly(*arguments: Any) -> Any:
        opened = open_model(*arguments)
        began.set()
        was_set.wait(1)
        return opened

    monkeypatch.setattr(remaking, "open_model", open_slowly)
    made = session(TWO)
    results: list[Any] = []
    run = threading.Thread(target=lambda: results.extend(made.run(None, OTHER)))
    run.start()
    assert began.wait(30)
    made.set_providers([factory.name])
    was_set.set()
    run.join(30)
    np.testing.assert_array_equal(results[0], OTHER["a"] + OTHER["b"])
    assert made.get_providers()[0] == factory.name
    made.run(None, OTHER)
    made.close()
    assert all(provider.closed for provider in factory.created)


def test_a_model_whose_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(TWO, path)
    made = onnxplug.InferenceSession(path)
    path.unlink()
    with pytest.raises(ModelNotFound, match=r"'N' of input 'b'.*read again.*its bytes"):
        made.run(None, OTHER)
    np.testing.assert_array_equal(made.run(None, SAME)[0], SAME["a"] + SAME["b"])
    onnx.save(OWN_N, path)
    with pytest.raises(InvalidModel, match=r"'N' of input 'b'.*read again.*its bytes"):
        made.run(None, OTHER)


def test_only_the_run_cancels_what_it_needs() -> None:
    options = onnxplug.SessionOptions()
    made, other = (onnxplug.InferenceSession(TWO, options) for _ in range(2))
    options.set_load_cancellation_flag(True)
    np.testing.assert_array_equal(made.run(None, OTHER)[0], OTHER["a"] + OTHER["b"])
    with pytest.raises(onnxplug.errors.LoadCancelled):
        made.set_providers(["cpu"])
    ended, late = onnxplug.RunOptions(), onnxplug.RunOptions()
    ended.terminate, late.timeout = True, 0.0
    for given, why in ((ended, "terminate flag"), (late, "timeout")):
        with pytest.raises(RunCancelled, match=why):
            other.run(None, OTHER, given)


def test_an_interrupt_leaves_the_session_as_it_was(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = simulated()
    made = onnxplug.InferenceSession(TWO, providers=[factory.name])
    with monkeypatch.context() as patched:

        def interrupt(*arguments: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr(runner, "ModelRunner", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.run(None, OTHER)
    before, other = factory.created
    assert other.closed and not before.closed
    for feed in (SAME, OTHER):
        np.testing.assert_array_equal(made.run(None, feed)[0], feed["a"] + feed["b"])
    made.close()
    assert all(provider.closed for provider in factory.created)


def test_probes_may_belie_names(simulated: Simulated) -> None:
    probe = ep.Probe(
        family="sums",
        operators=frozenset({("", "Add", ep.DataType.FLOAT32)}),
        model=TWO.SerializeToString(),
        inputs=OTHER,
        tolerance=(1e-4, 1e-5),
    )
    factory = simulated(probes=(probe,))
    device = next(
        device
        for device in factory.supported_devices(list(discover()))
        if isinstance(device, ep.EpDevice)
    )
    (verdict,) = run_probes(factory, device, registry)
    assert (verdict.verdict, verdict.detail) == (Verdict.PASSED, "")
