"""A library in C: found out about, run, and refused when it misbehaves."""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep, errors
from onnxplug.plugins import registry
from onnxplug_native.interface.table import API_VERSION

from .conftest import feeds, product

EXAMPLE = "ExampleExecutionProvider"


def open_session(model: bytes, **options: str) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(model, providers=[(EXAMPLE, options), "cpu"])


def test_a_library_is_registered_described_and_unregistered(register) -> None:
    path = register()
    (pair,) = [each for each in onnxplug.get_ep_devices() if each.ep_name == EXAMPLE]
    assert pair.ep_vendor == "Example Inc."
    assert pair.metadata["version"] == "1.2.3"
    assert pair.metadata["colour"] == "green"
    assert pair.metadata["library_path"] == str(path)
    assert pair.default_options == {"speed": "fast"}
    onnxplug.unregister_ep_library("example")
    assert EXAMPLE not in onnxplug.get_available_providers()
    assert str(path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize(
    ("macros", "shape"),
    [([], ("n", 3)), ([], (2, 3)), (["KERNELS"], ("n", 3)), (["KERNELS"], (2, 3))],
)
def test_partitions_run_with_any_shapes_from_any_threads(
    register, macros, shape
) -> None:
    register(*macros)
    with open_session(product(*shape, nodes=3)) as session:
        assert session.get_providers() == [EXAMPLE, "CPUExecutionProvider"]
        sizes = [(2, 3)] if shape == (2, 3) else [(1, 3), (5, 3), (0, 3), (2, 3)]
        for size in sizes:
            given = feeds(*size)
            (found,) = session.run(None, given)
            expected = (given["x"] + given["x"]) * given["y"] ** 3
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        wrong: list[int] = []

        def run(seed: int) -> None:
            given = {k: v + np.float32(seed) for k, v in feeds(2, 3).items()}
            for _ in range(50):
                (found,) = session.run(None, given)
                expected = (given["x"] + given["x"]) * given["y"] ** 3
                if not np.allclose(found, expected, rtol=1e-5):
                    wrong.append(seed)

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_a_library_is_not_unregistered_while_a_session_uses_it(register) -> None:
    register()
    with (
        open_session(product(2, 3)),
        pytest.raises(errors.LibraryInUse, match="1 session"),
    ):
        onnxplug.unregister_ep_library("example")


def test_what_the_user_says_reaches_the_library(register, caplog) -> None:
    register()
    with caplog.at_level(logging.WARNING, logger="onnxplug.session"):
        open_session(product(2, 3), mode="log", speed="slow").close()
    (record,) = [each for each in caplog.records if hasattr(each, "native_path")]
    assert (record.message, record.levelno) == ("slow", logging.WARNING)
    assert record.native_path == "example.c"


def test_texts_are_never_null(register) -> None:
    """C++ makes strings of them, which a null would end the process in."""
    register()
    open_session(product(2, 3), mode="texts").close()


def test_a_bound_output_is_written_in_place(register) -> None:
    register()
    model = product(2, 3)
    with open_session(model) as session:
        given = feeds(2, 3)
        binding = session.io_binding()
        for name, array in given.items():
            binding.bind_cpu_input(name, array)
        target = onnxplug.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
        binding.bind_ortvalue_output("v1", target)
        session.run_with_iobinding(binding)
        expected = (given["x"] + given["x"]) * given["y"]
        np.testing.assert_allclose(target.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("macros", "kind", "told"),
    [
        (["NO_RELEASE"], errors.PluginLoadError, "does not export ReleaseEpFactory"),
        (
            [f"VERSION={API_VERSION + 1}"],
            errors.PluginIncompatible,
            rf"version {API_VERSION + 1} .*hosts up to {API_VERSION}.*too old",
        ),
        (
            [f"VERSION={API_VERSION + 1}", "SILENT"],
            errors.PluginIncompatible,
            rf"built for version {API_VERSION + 1}",
        ),
        (["FACTORIES=0"], errors.PluginLoadError, "made 0 factories; expected 1 to 4"),
        (["FACTORIES=5"], errors.PluginLoadError, "made 5 factories; expected 1 to 4"),
        (["NULL_FACTORY"], errors.PluginLoadError, "factory 0 .* is null"),
        (["NAMELESS"], errors.PluginLoadError, "a factory of .* has no name"),
        (
            ["MADE_UP=1"],
            errors.PluginLoadError,
            "an OrtEpFactory at 0x1238, where nothing is",
        ),
        (["MADE_UP=2"], errors.PluginLoadError, "a text at 0x1238, where nothing is"),
    ],
)
def test_a_library_that_cannot_be_loaded_says_why(register, macros, kind, told) -> None:
    with pytest.raises(kind, match=told):
        register(*macros)


@pytest.mark.parametrize(
    ("macro", "told"),
    [
        ("DEVICES=100", "says that it made 100 devices"),
        ("FOREIGN_DEVICE", "CreateEpDevice did not make"),
    ],
)
def test_devices_that_are_none_are_errors(register, macro, told) -> None:
    register(macro)
    with pytest.raises(errors.OnnxplugError, match=told):
        onnxplug.InferenceSession(product(2, 3), providers=[EXAMPLE])


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("fail_create", r"CreateEp .*\(NO_SUCHFILE\): no licence file"),
        ("null_ep", "made an EP that is null"),
        ("made_up_ep", "an OrtEp at 0x1238, where nothing is"),
        ("made_up_name", "a text at 0x1238, where nothing is"),
        ("other_name", "calls itself 'SomebodyElse'"),
        ("fail_capability", r"GetCapability .*\(RUNTIME_EXCEPTION\): no idea"),
        ("two_groups", "takes Mul .* in two groups"),
        ("unknown_entry", r"NOT_IMPLEMENTED.*OrtApi\[470\] \(entry 470\) is not impl"),
        ("missing_entry", r"OrtApi.CreateSession \(entry 7\) is not implemented"),
        ("stale_handle", "expected the address of a GraphView, got 0x"),
        ("null_out", "where to put the result is null"),
        ("null_node", "expected the address of a NodeView, got a null pointer"),
        ("empty_group", "a group has no nodes"),
        ("null_group", "an array is null"),
        ("many_nodes", f"{1 << 60} nodes are given; there can be 2 at most"),
        ("one_node_more", "3 nodes are given; there can be 2 at most"),
        ("made_up_group", "1 nodes are given at 0x1238, where nothing is"),
        ("made_up_options", "options of a group are given at 0x1238, where nothing"),
        ("many_in_view", f"{(1 << 64) - 1} nodes are given; there can be 2"),
        ("little_room", "there are 2 nodes, and room for 0"),
        ("fail_compile", r"Compile .*\(EP_FAIL\): cannot compile it"),
        ("null_compiled", "compiled a partition to nothing"),
        ("made_up_compiled", "an OrtNodeComputeInfo at 0x1238, where nothing is"),
        ("version_zero", "OrtNodeComputeInfo of version 0"),
        ("no_compute", "does not implement OrtNodeComputeInfo.Compute"),
        ("fail_state", r"CreateState .*: no state"),
    ],
)
def test_what_fails_before_runs_names_the_library(register, mode, told) -> None:
    register()
    with pytest.raises(errors.OnnxplugError, match=told) as raised:
        onnxplug.InferenceSession(product(2, 3), providers=[(EXAMPLE, {"mode": mode})])
    assert "library 'example' (libexample_" in str(raised.value)


@pytest.mark.parametrize(
    ("mode", "kind", "told"),
    [
        ("fail_compute", errors.InvalidArgument, r"\(INVALID_ARGUMENT\): not today"),
        ("garbage_status", errors.EPFail, "returned as its status 0x1234"),
        ("old_status", errors.EPFail, "returned as its status 0x.*, which is none"),
        (
            "made_up_context",
            errors.OnnxplugError,
            "address of a KernelContext, got 0x1",
        ),
        ("made_up_value", errors.OnnxplugError, "address of a Value, got 0x1238"),
        (
            "other_value",
            errors.OnnxplugError,
            "expected the address of a Value, got 0x",
        ),
        ("our_value", errors.OnnxplugError, "expected the address of a Value, got 0x"),
        ("made_up_shape", errors.OnnxplugError, "address of a ShapeInfo, got 0x1238"),
        (
            "released_shape",
            errors.OnnxplugError,
            "a ShapeInfo, got 0x.* none that lives",
        ),
        ("null_output", errors.OnnxplugError, "where to put the result is null"),
        ("null_shape", errors.OnnxplugError, "an array is null"),
        ("other_shape", errors.EpError, r"shape \[6\] for 'v1'"),
        (
            "long_shape",
            errors.OnnxplugError,
            "1048576 dimensions are given; there can be 64 at most",
        ),
        ("no_output", errors.EPFail, "did not compute the output 'v1'"),
        ("bad_input", errors.OnnxplugError, "there is no input 9 of 2"),
        ("bad_output", errors.OnnxplugError, "there is no output 7 of 1"),
        ("negative_shape", errors.OnnxplugError, r"\[-5\] is no shape"),
        ("huge_output", MemoryError, "fits into no memory"),
    ],
)
def test_what_fails_in_runs_is_an_error_and_the_next_run_works(
    register, mode, kind, told
) -> None:
    register()
    with open_session(product(2, 3), mode=mode) as session:
        for _ in range(2):
            with pytest.raises(Exception, match=told) as raised:
                session.run(None, feeds(2, 3))
            causes = [raised.value, raised.value.__cause__]
            assert any(isinstance(error, kind) for error in causes), causes


@pytest.mark.parametrize("checked", ["0", "1"])
@pytest.mark.parametrize("macros", [[], ["STREAMS"], ["KERNELS"]])
def test_memory_that_the_host_cannot_use(
    register, macros, checked, monkeypatch
) -> None:
    monkeypatch.setenv("ONNXPLUG_CHECK", checked)
    path = register("DEVICE_MEMORY", *macros)
    allocated = ctypes.CDLL(str(path)).example_allocated
    with open_session(product("n", 3, nodes=3)) as session:
        for count in (1, 4, 0):
            given = feeds(count, 3)
            (found,) = session.run(None, given)
            expected = (given["x"] + given["x"]) * given["y"] ** 3
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    # the session is closed, and may have weights there still
    onnxplug.unregister_ep_library("example")
    assert allocated() == 0
    del session
    gc.collect()
    assert allocated() == 0


def test_what_is_before_a_point_that_was_waited_for_is_done(register) -> None:
    register("DEVICE_MEMORY", "STREAMS")
    with open_session(product(2, 3)):
        place = ep.MemoryLocation("example_memory", 0)
        context = registry.contexts.at(place).context
        first, second, third = streams = [context.create_stream() for _ in range(3)]
        before, later = first.record(), first.record()
        assert second.wait(before) and third.wait(later)
        behind = second.record()
        assert not any(event.done() for event in (before, later, behind))
        behind.synchronize()
        assert [event.done() for event in (before, later, behind)] == [
            True,
            False,
            True,
        ]
        third.synchronize()
        assert later.done() and not first.record().done()
        for stream in streams:
            stream.close()


def test_a_scalar_is_copied_to_a_librarys_memory(register) -> None:
    register("DEVICE_MEMORY")
    with open_session(product(2, 3)):
        place = ep.MemoryLocation("example_memory", 0)
        context = registry.contexts.at(place).context
        target = context.allocator(ep.MemoryKind.DEVICE).empty((), ep.DataType.FLOAT32)
        context.transfer.copy([(np.float32(3), target)], None)
        found = np.zeros((), np.float32)
        context.transfer.copy([(target, found)], None)
        assert found == 3
        del target


def test_the_context_of_a_librarys_memory_is_kept(register) -> None:
    register("DEVICE_MEMORY")
    contexts = []
    for _ in range(2):
        with open_session(product(2, 3)) as session:
            contexts.append(
                registry.contexts.at(ep.MemoryLocation("example_memory", 0)).context
            )
            session.run(None, feeds(2, 3))
    assert contexts[0] is contexts[1]


def test_config_entries_of_the_session_reach_the_library(register) -> None:
    register()
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.exampleexecutionprovider.mode", "fail_create")
    with pytest.raises(errors.NoSuchFile, match="no licence file"):
        onnxplug.InferenceSession(product(2, 3), options, providers=[EXAMPLE])


def test_a_library_that_runs_one_at_a_time_is_run_so(register) -> None:
    overlapped = ctypes.CDLL(str(register())).example_overlapped
    with open_session(product(2, 3), mode="one_at_a_time") as session:
        run = functools.partial(session.run, None, feeds(2, 3))
        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(run) for _ in range(40)]:
                future.result()
    assert overlapped() == 0
    del session, run


def test_a_library_is_told_of_runs(register) -> None:
    runs = ctypes.CDLL(str(register())).example_runs
    with open_session(product(2, 3), mode="told_of_runs") as session:
        for _ in range(3):
            session.run(None, feeds(2, 3))
    assert runs() == 3


def compile_ahead(tmp_path: Path, **options: str) -> tuple[Path, list[str]]:
    """A model that is compiled for the example, and why some of it is not."""
    settings = onnxplug.SessionOptions()
    settings.add_provider(EXAMPLE, options)
    path = tmp_path / "compiled.onnx"
    compiler = onnxplug.ModelCompiler(settings, product(2, 3, nodes=2))
    compiler.compile_to_file(path)
    assert compiler.explanation is not None
    left = compiler.explanation.not_written
    return path, [each.reason.detail for each in left if each.ep == EXAMPLE]


def test_what_a_library_compiles_is_written_and_read(register, tmp_path) -> None:
    register()
    path, left = compile_ahead(tmp_path)
    assert not left
    operators = [node.op_type for node in onnx.load(path).graph.node]
    assert operators == ["Add", "EPContext", "EPContext"]
    with onnxplug.InferenceSession(path, providers=[EXAMPLE, "cpu"]) as session:
        given = feeds(2, 3)
        (found,) = session.run(None, given)
    expected = (given["x"] + given["x"]) * given["y"] ** 2
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_library_is_asked_whether_it_takes_what_was_compiled(
    register, tmp_path
) -> None:
    register()
    path, _ = compile_ahead(tmp_path)
    onnxplug.unregister_ep_library("example")
    register("NEXT_VERSION")
    with pytest.raises(errors.OnnxplugError, match=r"for others: made by version 1"):
        onnxplug.InferenceSession(path, providers=[EXAMPLE, "cpu"])


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("no_context", "makes no EPContext node"),
        ("other_context", r"made a node com\.microsoft\.Mul, no EPContext"),
    ],
)
def test_nodes_that_cannot_be_kept_are_said_so(register, tmp_path, mode, told) -> None:
    register()
    path, left = compile_ahead(tmp_path, mode=mode)
    assert len(left) == 2 and all(re.search(told, reason) for reason in left)
    assert "EPContext" not in [node.op_type for node in onnx.load(path).graph.node]


def test_options_change_while_a_session_lives(register) -> None:
    register()
    given = feeds(2, 3)
    expected = (given["x"] + given["x"]) * given["y"]
    with open_session(product(2, 3), mode="dynamic") as session:
        for scale in (1, 3, 0.5):
            session.set_ep_dynamic_options({"ep.dynamic.scale": str(scale)})
            (found,) = session.run(None, given)
            np.testing.assert_allclose(found, expected * scale, rtol=1e-6)
        with pytest.raises(errors.OnnxplugError, match="nobody knows that option"):
            session.set_ep_dynamic_options({"ep.dynamic.colour": "red"})


def test_a_library_without_such_options_says_so(register) -> None:
    register()
    with open_session(product(2, 3)) as session:
        for wrong, told in (
            ({"ep.dynamic.scale": "1"}, "of its EPs none has such options"),
            ({}, "expected one at least"),
            ({"ep.dynamic.scale": 1}, "expected two texts"),
        ):
            with pytest.raises(errors.OptionError, match=told):
                session.set_ep_dynamic_options(wrong)


def test_what_a_library_records_is_in_the_trace(register, tmp_path) -> None:
    path = register("VERSION=25")
    settings = onnxplug.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(tmp_path / "trace")
    providers = [(EXAMPLE, {"mode": "profiles"}), "cpu"]
    with onnxplug.InferenceSession(product(2, 3), settings, providers) as session:
        for _ in range(3):
            session.run(None, feeds(2, 3))
        trace = json.loads(Path(session.end_profiling()).read_text())
    found = [each for each in trace if each["name"] == "multiply"]
    assert len(found) == 3
    for each in found:
        assert each["cat"] == "Kernel"
        assert each["args"]["provider"] == EXAMPLE
        assert each["args"]["of"] == "group 1" and each["args"]["id"] == "7"
        assert each["dur"] >= 0
    onnxplug.unregister_ep_library("example")
    assert ctypes.CDLL(str(path)).example_allocated() == 0
