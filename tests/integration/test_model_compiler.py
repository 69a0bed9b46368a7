"""``ModelCompiler`` and the questions about compiled models, beside ONNX Runtime's."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi import _pybind_state as of_onnxruntime

import onnxplug
from onnxplug import ep
from onnxplug.authoring.compilers import SameCompiler
from onnxplug.errors import (
    ContextError,
    Fail,
    InvalidArgument,
    InvalidModel,
    ModelNotFound,
    OptionError,
    PluginNotFound,
)
from onnxplug_testing import Stage

from .compiled_models import (
    EP,
    FEED,
    ON_DEVICE,
    SANDWICH,
    compile_ahead,
    expected,
    save,
)


@pytest.fixture
def source(tmp_path: Path) -> str:
    return save(SANDWICH, tmp_path / "m.onnx")


def compiler(source: Any, *arguments: Any, **more: Any) -> onnxplug.ModelCompiler:
    options = onnxplug.SessionOptions()
    options.add_provider(EP, {})
    return onnxplug.ModelCompiler(options, source, *arguments, **more)


def run(model: Any, options: onnxplug.SessionOptions | None = None) -> Any:
    with onnxplug.InferenceSession(model, options, [EP]) as session:
        return session.run(None, FEED)[0]


# as ONNX Runtime's


def test_it_is_called_as_onnx_runtimes() -> None:
    theirs = inspect.signature(onnxruntime.ModelCompiler.__init__).parameters
    ours = inspect.signature(onnxplug.ModelCompiler.__init__).parameters
    positional = [
        name for name, each in ours.items() if each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    assert positional == list(theirs)
    for name in positional:
        one, other = ours[name].default, theirs[name].default
        assert getattr(one, "name", one) == getattr(other, "name", other)
    public = {name for name in dir(onnxruntime.ModelCompiler) if name[0] != "_"}
    assert public <= set(dir(onnxplug.ModelCompiler))


@pytest.mark.parametrize(
    "name", ["OrtCompileApiFlags", "OrtCompiledModelCompatibility"]
)
def test_enums_have_onnx_runtimes_values(name: str) -> None:
    theirs = getattr(of_onnxruntime, name).__members__
    ours = getattr(onnxplug, name)
    # members of value 0 are none of a flag's that are listed
    assert {each: int(ours[each]) for each in theirs} == {
        each: int(value) for each, value in theirs.items()
    }


def on_the_cpu(runtime: Any, path: str, flags: int = 0) -> Any:
    return runtime.ModelCompiler(runtime.SessionOptions(), path, flags=flags)


@pytest.mark.parametrize("runtime", [onnxruntime, onnxplug])
def test_where_no_ep_compiles_the_model_stays_as_it_was(
    runtime: Any, source: str, tmp_path: Path
) -> None:
    on_the_cpu(runtime, source).compile_to_file(str(tmp_path / "c.onnx"))
    written = onnx.load(tmp_path / "c.onnx")
    assert [node.op_type for node in written.graph.node] == [
        "MatMul", "Relu", "Sin", "Add", "Mul",
    ]  # fmt: skip
    found = onnxplug.InferenceSession(written).run(None, FEED)[0]
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)


@pytest.mark.parametrize("runtime", [onnxruntime, onnxplug])
def test_that_is_an_error_by_a_flag(runtime: Any, source: str, tmp_path: Path) -> None:
    flag = runtime.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED
    with pytest.raises(Exception, match="Unable to compile any nodes") as got:
        on_the_cpu(runtime, source, int(flag)).compile_to_file(str(tmp_path / "c.onnx"))
    assert type(got.value).__name__ == "Fail"
    assert not (tmp_path / "c.onnx").exists()


@pytest.mark.parametrize("runtime", [onnxruntime, onnxplug])
def test_a_file_that_is_there_is_an_error_by_a_flag(
    runtime: Any, source: str, tmp_path: Path
) -> None:
    flag = int(runtime.OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS)
    on_the_cpu(runtime, source, flag).compile_to_file(str(tmp_path / "c.onnx"))
    with pytest.raises(Exception, match="exists already") as got:
        on_the_cpu(runtime, source, flag).compile_to_file(str(tmp_path / "c.onnx"))
    assert type(got.value).__name__ == "Fail"
    on_the_cpu(runtime, source).compile_to_file(str(tmp_path / "c.onnx"))


@pytest.mark.parametrize("runtime", [onnxruntime, onnxplug])
def test_models_go_to_files_bytes_and_functions(
    runtime: Any, source: str, tmp_path: Path
) -> None:
    parts: list[bytes] = []
    on_the_cpu(runtime, source).compile_to_stream(parts.append)
    whole = on_the_cpu(runtime, source).compile_to_bytes()
    on_the_cpu(runtime, Path(source).read_bytes()).compile_to_file(
        str(tmp_path / "f.onnx")
    )
    for data in (b"".join(parts), whole, (tmp_path / "f.onnx").read_bytes()):
        assert len(onnx.load_from_string(data).graph.node) == 5


def test_the_path_follows_from_the_models(source: str, tmp_path: Path) -> None:
    """As ONNX Runtime documents it, where it raises TypeError."""
    on_the_cpu(onnxplug, source).compile_to_file()
    assert (tmp_path / "m_ctx.onnx").exists()


def test_arguments_that_exclude_each_other_are_refused(source: str) -> None:
    for runtime in (onnxruntime, onnxplug):
        with pytest.raises(ValueError, match="Cannot initialize ModelCompiler with"):
            runtime.ModelCompiler(
                runtime.SessionOptions(),
                source,
                external_initializers_file_path="x",
                get_initializer_location_func=lambda *_: None,
            )


# what EPs compiled


@pytest.mark.parametrize("embed", [False, True])
def test_models_are_compiled_to_files(
    simulated, source: str, tmp_path: Path, embed: bool
) -> None:
    factory = simulated(ops=ON_DEVICE)
    made = compiler(source, embed)
    made.compile_to_file(tmp_path / "c.onnx")
    assert factory.created[0].closed
    assert (tmp_path / f"c_{EP}.bin").exists() is not embed
    assert made.explanation is not None
    assert [each.ep for each in made.explanation.not_written] == [
        "CPUExecutionProvider"
    ]
    found = run(str(tmp_path / "c.onnx"))
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)


def test_models_are_compiled_to_bytes(simulated, source: str, tmp_path: Path) -> None:
    simulated(ops=ON_DEVICE)
    found = run(compiler(source, True).compile_to_bytes())
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)
    with pytest.raises(OptionError, match="set_ep_context_binary_information"):
        compiler(source).compile_to_bytes()
    made = compiler(source)
    made.set_ep_context_binary_information(tmp_path, "there.onnx")
    (tmp_path / "there.onnx").write_bytes(made.compile_to_bytes())
    assert (tmp_path / f"there_{EP}.bin").exists()
    found = run(str(tmp_path / "there.onnx"))
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)
    with pytest.raises(InvalidArgument, match="there is no folder"):
        made.set_ep_context_binary_information(tmp_path / "none", "x")


def test_programs_keep_files_themselves(simulated, source: str) -> None:
    """Here encrypted, after a fashion."""
    simulated(ops=ON_DEVICE)
    kept: dict[str, bytes] = {}

    def write(name: str, data: onnxplug.OrtEpContextData) -> None:
        halves = data.read(0, 5000), data.read(5000)
        assert len(b"".join(halves)) == data.size
        kept[name] = bytes(byte ^ 0x55 for byte in b"".join(halves))

    def read(name: str, buffer: onnxplug.OrtEpContextDataBuffer) -> None:
        plain = bytes(byte ^ 0x55 for byte in kept[name])
        buffer.allocate(len(plain))
        buffer.write(plain[:100])
        buffer.write(plain[100:], 100)

    made = compiler(source)
    made.set_ep_context_data_write_func(write)
    model = made.compile_to_bytes()
    assert [*kept] == [f"model_ctx_{EP}.bin"]
    options = onnxplug.SessionOptions()
    options.set_ep_context_data_read_func(read, 1 << 20)
    found = run(model, options)
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)

    options.set_ep_context_data_read_func(read, 100)
    with pytest.raises(ContextError, match="set_ep_context_data_read_func is 100"):
        run(model, options)
    options.set_ep_context_data_read_func(lambda name, buffer: None, 100)
    with pytest.raises(ContextError, match="allocated nothing for 'model_ctx"):
        run(model, options)
    options.clear_ep_context_data_read_func()
    with pytest.raises(ContextError, match="was not loaded from a path"):
        run(model, options)

    def fail(name: str, data: onnxplug.OrtEpContextData) -> None:
        raise KeyError("no key")

    made.set_ep_context_data_write_func(fail)
    with pytest.raises(Fail, match=r"write_func failed for .*KeyError"):
        made.compile_to_bytes()
    made.clear_ep_context_data_write_func()
    with pytest.raises(OptionError):
        made.compile_to_bytes()


def test_data_of_callbacks_have_bounds() -> None:
    data = onnxplug.OrtEpContextData([memoryview(b"abc"), memoryview(b"defg")])
    assert (data.size, data.read(), data.read(2, 3)) == (7, b"abcdefg", b"cde")
    for place in ((8,), (-1,), (0, 8), (3, -1)):
        with pytest.raises(InvalidArgument):
            data.read(*place)
    buffer = onnxplug.OrtEpContextDataBuffer(4)
    with pytest.raises(InvalidArgument, match="not allocated"):
        buffer.write(b"x")
    with pytest.raises(InvalidArgument, match="the limit"):
        buffer.allocate(5)
    buffer.allocate(4)
    assert (buffer.is_allocated, buffer.size, buffer.max_size) == (True, 4, 4)
    with pytest.raises(InvalidArgument, match="allocated before"):
        buffer.allocate(1)
    for place, content in ((3, b"xy"), (-1, b"x"), (5, b"")):
        with pytest.raises(InvalidArgument, match="do not fit"):
            buffer.write(content, place)


def test_initializers_of_other_nodes_are_where_a_program_puts_them(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=frozenset({"Relu"}))
    rest = tmp_path / "rest.bin"
    asked: dict[str, tuple[int, ...]] = {}

    def locate(name: str, value: onnxplug.OrtValue, info: Any) -> Any:
        asked[name] = tuple(value.shape())
        assert info is None
        if name == "v":
            return None
        content = value.numpy().tobytes()
        rest.write_bytes(bytes(64) + content)
        return onnxplug.OrtExternalInitializerInfo("rest.bin", 64, len(content))

    made = compiler(source, get_initializer_location_func=locate)
    made.compile_to_file(tmp_path / "c.onnx")
    assert asked == {"w": (3, 4), "v": (4,)}
    found = run(str(tmp_path / "c.onnx"))
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)
    made = compiler(
        source,
        external_initializers_file_path=tmp_path / "more.bin",
        external_initializers_size_threshold=20,
    )
    made.compile_to_file(tmp_path / "d.onnx")
    graph = onnx.load(tmp_path / "d.onnx", load_external_data=False).graph
    outside = {t.name for t in graph.initializer if t.external_data}
    assert outside == {"w"}
    found = run(str(tmp_path / "d.onnx"))
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)
    made = compiler(source, external_initializers_file_path="/elsewhere/more.bin")
    with pytest.raises(OptionError, match="has to be in the model's folder"):
        made.compile_to_file(tmp_path / "e.onnx")
    assert not (tmp_path / "e.onnx").exists()


def test_the_model_is_not_written_over(simulated, source: str) -> None:
    simulated(ops=ON_DEVICE)
    with pytest.raises(InvalidArgument, match="would be written over the model"):
        compiler(source).compile_to_file(source)
    with pytest.raises(InvalidArgument, match="the model is in memory"):
        compiler(Path(source).read_bytes()).compile_to_file()


def test_files_of_the_model_are_not_written_over(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=frozenset({"Relu"}))
    model = onnx.load(source)
    for tensor in model.graph.initializer:  # only raw data can be outside
        array = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    onnx.save(
        model,
        source,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
        convert_attribute=False,
    )
    before = (tmp_path / "weights.bin").read_bytes()

    def compiled_to(name: str, initializers: str) -> None:
        made = compiler(
            source,
            external_initializers_file_path=initializers,
            external_initializers_size_threshold=20,
        )
        made.compile_to_file(tmp_path / name)

    for name, initializers in (
        ("c.onnx", "weights.bin"),
        ("weights.bin", "more.bin"),
        ("c.onnx", Path(source).name),
    ):
        with pytest.raises(OptionError, match="the same file; choose another"):
            compiled_to(name, initializers)
    with pytest.raises(OptionError, match="as the compiled model; choose another"):
        compiled_to("c.onnx", "c.onnx")
    assert not (tmp_path / "c.onnx").exists()
    assert (tmp_path / "weights.bin").read_bytes() == before
    np.testing.assert_allclose(run(source), expected(SANDWICH, FEED), rtol=1e-6)


def test_a_compilation_that_fails_leaves_nothing(
    simulated, source: str, tmp_path: Path
) -> None:
    factory = simulated(ops=ON_DEVICE, fail_at=Stage.SERIALISE)
    with pytest.raises(Exception, match="failed in serialise"):
        compiler(source).compile_to_file()
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert factory.created[0].closed


def test_files_that_cannot_be_written_are_named(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE)
    with pytest.raises(Fail, match=r"no_folder.* cannot be written: No such file"):
        compiler(source).compile_to_file(tmp_path / "no_folder" / "c.onnx")


# questions


def test_the_info_of_a_model_is_that_of_onnx_runtimes_question(
    simulated, source: str, tmp_path: Path
) -> None:
    factory = simulated(ops=ON_DEVICE)
    target = compile_ahead(source, tmp_path / "c.onnx")
    info = onnxplug.get_compatibility_info_from_model(target, EP)
    (device,) = factory.supported_devices(())
    assert info == SameCompiler(factory).compatibility_info(device)
    data = Path(target).read_bytes()
    for asked in (EP, "CPUExecutionProvider"):
        theirs = of_onnxruntime.get_compatibility_info_from_model(target, asked)
        assert onnxplug.get_compatibility_info_from_model(target, asked) == theirs
        assert theirs == onnxplug.get_compatibility_info_from_model_bytes(data, asked)
    with pytest.raises(ModelNotFound):
        onnxplug.get_compatibility_info_from_model(tmp_path / "none.onnx", EP)
    with pytest.raises(InvalidModel):
        onnxplug.get_compatibility_info_from_model_bytes(b"\x08", EP)


@pytest.mark.parametrize("verdict", [*ep.Compatibility])
def test_devices_are_asked_whether_they_can_use_it(
    simulated, verdict: ep.Compatibility
) -> None:
    factory = simulated(compatibility=(verdict, "why"))
    (device,) = factory.supported_devices(())
    found = onnxplug.get_model_compatibility_for_ep_devices([device], "anything")
    words = {
        "optimal": "EP_SUPPORTED_OPTIMAL",
        "recompile": "EP_SUPPORTED_PREFER_RECOMPILATION",
        "unsupported": "EP_UNSUPPORTED",
        "not-applicable": "EP_NOT_APPLICABLE",
    }
    assert found.name == words[verdict]


def test_what_cannot_be_asked(simulated) -> None:
    first = simulated()
    second = simulated(name="OtherExecutionProvider")
    (one,), (other,) = first.supported_devices(()), second.supported_devices(())
    ask = onnxplug.get_model_compatibility_for_ep_devices
    info = SameCompiler(first).compatibility_info(one)
    assert ask([one], info).name == "EP_SUPPORTED_OPTIMAL"
    assert ask([other], info).name == "EP_NOT_APPLICABLE"
    with pytest.raises(InvalidArgument, match="one or more"):
        ask([], info)
    with pytest.raises(InvalidArgument, match="same execution provider"):
        ask([one, other], info)
    onnxplug.plugins.registry.remove(EP)
    with pytest.raises(PluginNotFound):
        ask([one], info)
