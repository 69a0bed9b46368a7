"""Arguments that are no list of names, no path or no value: refused in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import onnxplug
import onnxplug_onnxruntime
from onnxplug import OrtValue
from onnxplug.errors import (
    ArgumentTypeError,
    Fail,
    InputTypeError,
    OptionError,
    OptionTypeError,
)

MODEL = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[2] x) => (float[2] y, float[2] z) {y = Neg (x) z = Abs (x)}
    """
).SerializeToString()
X = np.array([1, -2], np.float32)
VALUE = OrtValue.ortvalue_from_numpy(X)
MADE: Any = (
    iter,
    set,
    lambda names: dict.fromkeys(names, 0),
    lambda names: (name for name in names),
    lambda names: map(str, names),
    lambda names: [each.encode() for each in names],
    lambda names: [names],
    lambda names: names[0].encode(),
    lambda names: 7,
)


@pytest.mark.parametrize(
    "make", [onnxplug.InferenceSession, onnxplug_onnxruntime.InferenceSession]
)
@pytest.mark.parametrize("listed", MADE)
def test_outputs_are_asked_for_by_a_list_of_names(make: Any, listed: Any) -> None:
    session = make(MODEL)
    called: list[str] = []
    for run in (
        lambda names: session.run(names, {"x": X}),
        lambda names: session.run_with_ort_values(names, {"x": VALUE}),
        lambda names: session.run_async(
            names, {"x": X}, lambda *_: called.append("back"), None
        ),
    ):
        with pytest.raises(ArgumentTypeError, match=r"output_names (is given|has)"):
            run(listed(["z", "y"]))
    assert not called


@pytest.mark.parametrize(
    "names",
    [["z", "y"], ("z", "y"), np.array(["z", "y"]), {"z": 0, "y": 0}.keys()],
    ids=["list", "tuple", "array", "keys"],
)
def test_names_are_in_the_order_that_they_have(names: Any) -> None:
    for make in (onnxplug.InferenceSession, onnxplug_onnxruntime.InferenceSession):
        session = make(MODEL)
        for z, y in (
            session.run(names, {"x": X}),
            session.run_with_ort_values(names, {"x": VALUE}),
        ):
            np.testing.assert_array_equal(z, abs(X))
            np.testing.assert_array_equal(y, -X)


def test_values_are_fed_by_name() -> None:
    session: Any = onnxplug.InferenceSession(MODEL)
    for run in (session.run, session.run_with_ort_values):
        with pytest.raises(InputTypeError, match="the feed is a list; expected a dict"):
            run(None, [VALUE])


@pytest.mark.parametrize("names", [iter(["x"]), {"x"}, [b"x"], 7])
def test_vectors_of_values_are_run_by_lists_of_names(names: Any) -> None:
    session = onnxplug_onnxruntime.InferenceSession(MODEL)
    cpu = onnxplug_onnxruntime.OrtDevice.make("cpu", 0)
    feeds, fetches = [VALUE], onnxplug_onnxruntime.OrtValueVector()
    with pytest.raises(ArgumentTypeError, match=r"feed_names (is given|has)"):
        session.run_with_ortvaluevector(None, names, feeds, ["y"], fetches, [cpu])
    with pytest.raises(ArgumentTypeError, match=r"fetch_names (is given|has)"):
        session.run_with_ortvaluevector(None, ["x"], feeds, names, fetches, [cpu])


def test_a_pass_is_left_out_by_its_name_alone() -> None:
    onnxplug.InferenceSession(MODEL, disabled_optimizers="fold")
    with pytest.raises(OptionError, match="there is no pass 'mold'"):
        onnxplug.InferenceSession(MODEL, disabled_optimizers="mold")


REPLACED: dict[str, tuple[Callable[[Any], None], str]] = {
    "no value": (
        lambda options: options.add_initializer("w", X),
        "'w' is given as a ndarray; expected an OrtValue",
    ),
    "names once": (
        lambda options: options.add_external_initializers(iter(["w"]), [VALUE]),
        "names is given as a value of type list_iterator",
    ),
    "values once": (
        lambda options: options.add_external_initializers(["w"], iter([VALUE])),
        "values is given as a value of type list_iterator",
    ),
    "an array among the values": (
        lambda options: options.add_external_initializers(["v", "w"], [VALUE, X]),
        "'w' is given as a ndarray; expected an OrtValue",
    ),
    "a file of text": (
        lambda options: add_file(options, "abc", 1),
        "'f' in memory is given as a str",
    ),
    "a file with gaps": (
        lambda options: add_file(options, np.zeros((4, 4))[:, ::2], 1),
        "expected a contiguous buffer",
    ),
    "half a byte": (
        lambda options: add_file(options, b"abc", 1.5),
        "length 1.5; expected a contiguous buffer and a whole number",
    ),
}


def add_file(options: Any, buffer: Any, length: Any) -> None:
    options.add_external_initializers_from_files_in_memory(["f"], [buffer], [length])


@pytest.mark.parametrize("name", REPLACED)
def test_parts_of_a_model_are_replaced_by_what_can_be_one(name: str) -> None:
    replace, words = REPLACED[name]
    options = onnxplug.SessionOptions()
    with pytest.raises(OptionTypeError, match=words):
        replace(options)
    assert not options.initializers and not options.external_files


@pytest.mark.parametrize("length", [-1, 4])
def test_a_file_in_memory_has_as_many_bytes_as_its_buffer(length: int) -> None:
    with pytest.raises(OptionError, match=f"to have {length} bytes; its buffer has 3"):
        add_file(onnxplug.SessionOptions(), b"abc", length)


# paths


UNENCODABLE = ("a\0b", "a\ud800b")
ENTRIES = (
    "session.model_external_initializers_file_folder_path",
    "session.optimized_model_external_initializers_file_name",
    "ep.context_file_path",
    "ep.context_model_external_initializers_file_name",
)


@pytest.mark.parametrize("path", UNENCODABLE)
def test_what_no_system_takes_for_a_path_is_refused_where_it_is_set(path: str) -> None:
    options = onnxplug.SessionOptions()
    for name in ("optimized_model_filepath", "profile_file_prefix"):
        before = getattr(options, name)
        with pytest.raises(OptionError, match=f"{name} is .* which has .*expected a"):
            setattr(options, name, path)
        assert getattr(options, name) == before
    for entry in ENTRIES:
        with pytest.raises(OptionError, match=entry):
            options.add_session_config_entry(entry, path)
    compiler = onnxplug.ModelCompiler
    for make in (
        lambda: compiler(options, MODEL, external_initializers_file_path=path),
        lambda: compiler(options, MODEL).compile_to_file(path),
        lambda: compiler(options, MODEL).set_ep_context_binary_information("/", path),
        lambda: onnxplug.OrtExternalInitializerInfo(path, 0, 0),
        lambda: onnxplug.register_execution_provider_library("x", f"{path}.py"),
    ):
        with pytest.raises(OptionError, match=r"which has (a NUL|'\\ud800')"):
            make()


@pytest.mark.parametrize("numbers", [(-1, 0), (0, -1), (1.5, 0), (0, None)])
def test_an_initializers_place_has_whole_numbers(numbers: Any) -> None:
    with pytest.raises(OptionError, match=r"(file_offset|byte_size) is "):
        onnxplug.OrtExternalInitializerInfo("w.bin", *numbers)


def test_no_value_of_an_engine_has_a_nul() -> None:
    options = onnxplug.SessionOptions()
    for entry in ("ep.context_node_name_prefix", "ep.toy.key", "session.check_results"):
        with pytest.raises(OptionError, match="no NUL"):
            options.add_session_config_entry(entry, "1\0")
    with pytest.raises(OptionError, match="no NUL"):
        onnxplug.RunOptions().add_run_config_entry("gpu_graph_id", "1\0")
    with pytest.raises(OptionError, match="no NUL"):
        options.add_provider("CPUExecutionProvider", {"arena_extend_strategy": "k\0"})


def test_a_newline_is_a_character_of_paths_like_others(tmp_path: Path) -> None:
    options = onnxplug.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "a\nb.onnx")
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "p\nq")
    trace = onnxplug.InferenceSession(MODEL, options).end_profiling()
    assert Path(trace).is_file() and "p\nq" in trace
    onnxplug.InferenceSession(options.optimized_model_filepath)


def test_a_prepared_model_that_cannot_be_written_is_told_with_its_path(
    tmp_path: Path,
) -> None:
    for path, words in (
        (tmp_path, "no regular file"),
        (tmp_path / "none" / "m.onnx", "No such file or directory"),
    ):
        options = onnxplug.SessionOptions()
        options.optimized_model_filepath = str(path)
        with pytest.raises(Fail, match=f"the file '{path}' cannot be .*{words}"):
            onnxplug.InferenceSession(MODEL, options)


def test_what_is_no_regular_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    os = pytest.importorskip("posix", reason="Windows has no pipes in folders")
    pipe = tmp_path / "m.onnx"
    os.mkfifo(pipe)
    compiler = onnxplug.ModelCompiler(onnxplug.SessionOptions(), MODEL)
    with pytest.raises(Fail, match="what is there is no regular file"):
        compiler.compile_to_file(pipe)
    assert pipe.is_fifo()
