"""Compiles models ahead of sessions, in ONNX Runtime's words."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Sequence
from enum import IntFlag
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onnxplug.compile.ep_context.write import (
    CompiledModel,
    ContextSettings,
    write_compiled,
)
from onnxplug.context_data import WriteFunction
from onnxplug.errors import Fail, InvalidArgument, OptionError, OptionTypeError
from onnxplug.interruption import raise_interruption
from onnxplug.levels import GraphOptimizationLevel
from onnxplug.options import SessionOptions
from onnxplug.paths import why_no_path
from onnxplug.session.compiled_model import default_path
from onnxplug.session.opening import open_model
from onnxplug.session.ort_value import OrtValue
from onnxplug.session.request import SessionRequest, read_options, read_source

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.graph import Model
    from onnxplug.graph.placing import Place
    from onnxplug.partition.report import Explanation
    from onnxplug.plugins import PluginRegistry
    from onnxplug.selection.request import ProviderEntry


class OrtCompileApiFlags(IntFlag):
    """What is an error for :class:`ModelCompiler`."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class OrtExternalInitializerInfo:
    """Where the bytes of an initializer are in a file.

    Attributes:
        filepath: the file, relative to the model.
        file_offset, byte_size: where in it, and how many.

    Raises:
        OptionError: it is no path, or a number is negative.
    """

    def __init__(self, filepath: str, file_offset: int, byte_size: int) -> None:
        self.filepath: Final = _path(filepath)
        self.file_offset: Final = _bytes("file_offset", file_offset)
        self.byte_size: Final = _bytes("byte_size", byte_size)


GetInitializerLocation: TypeAlias = Callable[
    [str, OrtValue, OrtExternalInitializerInfo | None],
    OrtExternalInitializerInfo | None,
]


class ModelCompiler:
    """Compiles a model for EPs, so that sessions need not.

    What is written is a model again, in which nodes of the operator ``EPContext`` stand
    for what EPs compiled and can serialise; all others are as they were.

    Args:
        sess_options: has the EPs, or a policy.
        input_model_path_or_bytes: as of :class:`InferenceSession`.
        embed_compiled_data_into_model: write what EPs compiled into the model, and not
            into a file beside it.
        external_initializers_file_path: where initializers of the other nodes go, in
            the model's folder; they go into the model unless given.
        external_initializers_size_threshold: bytes above which they go there.
        flags: what is an error.
        graph_optimization_level: how much the model is rewritten before.
        get_initializer_location_func: says for each initializer ``(name, value, None)``
            where the program has put it, and ``None`` for those that go into the model.
        providers: EPs, in the words of :class:`InferenceSession`, beside those of the
            options.
        registry: where EPs are looked up, by default the process's.

    Attributes:
        explanation: of the last compilation: which node is where, and which partitions
            are not compiled into the model; ``None`` before.

    Raises:
        InvalidArgument: arguments exclude each other.
    """

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: Any,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = (
            GraphOptimizationLevel.ORT_DISABLE_ALL
        ),
        get_initializer_location_func: GetInitializerLocation | None = None,
        *,
        providers: str | Sequence[ProviderEntry] | None = None,
        registry: PluginRegistry | None = None,
    ) -> None:
        if external_initializers_file_path and get_initializer_location_func:
            raise InvalidArgument(
                "Cannot initialize ModelCompiler with both "
                "`external_initializers_file_path` and `get_initializer_location_func`"
            )
        options = read_options(sess_options)
        options.graph_optimization_level = graph_optimization_level
        self._request: Final = SessionRequest(
            read_source(input_model_path_or_bytes),
            options,
            providers,
            None,
            None,
            (),
            registry,
        )
        self._flags: Final = OrtCompileApiFlags(flags)
        config = options.config
        self._settings = ContextSettings(
            None,
            embed=bool(embed_compiled_data_into_model),
            prefix=config["ep.context_node_name_prefix"],
            initializers=_path(external_initializers_file_path or ""),
            threshold=external_initializers_size_threshold,
            locate=_locator(get_initializer_location_func),
            share=config["ep.share_ep_contexts"] == "1",
            stop_sharing=config["ep.stop_share_ep_contexts"] == "1",
            if_none=(
                "error"
                if OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED in self._flags
                else "model"
            ),
        )
        self.explanation: Explanation | None = None

    def compile_to_file(
        self, output_model_path: str | os.PathLike[str] | None = None
    ) -> None:
        """Write the compiled model to a file.

        Args:
            output_model_path: by default that of the model, with ``_ctx.onnx`` at its
                end in place of ``.onnx``.

        Raises:
            InvalidArgument: there is no path, or it is the model's.
            Fail: as the flags say, or a file cannot be written.
            OnnxplugError: the model, or an EP, cannot be used, as of a session.
        """
        path = _path(output_model_path or "") or self._default_path()
        if not path:
            raise InvalidArgument(
                "the model is in memory, so that no path for the compiled one follows; "
                "give one to compile_to_file()"
            )
        if os.path.exists(path):
            if OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS in self._flags:
                raise Fail(
                    f"Failed to generate EP context model since the file {path!r} "
                    "exists already; remove it to compile the model anew"
                )
            source = self._request.source
            if isinstance(source, str) and os.path.samefile(path, source):
                raise InvalidArgument(
                    f"the compiled model would be written over the model, {path!r}; "
                    "give another path"
                )
        self._compile(self._settings._replace(path=path))

    def compile_to_bytes(self) -> bytes:
        """The compiled model.

        Raises:
            InvalidArgument: what EPs compiled is not to be in the model, and there is
                no other place for it.
            OnnxplugError: as of :meth:`compile_to_file`.
        """
        return self._compile(self._settings).model

    def compile_to_stream(self, write_function: Callable[[bytes], object]) -> None:
        """Give the compiled model to *write_function*.

        Raises:
            OnnxplugError: as of :meth:`compile_to_bytes`.
            Fail: *write_function* raised.
        """
        compiled = self.compile_to_bytes()
        try:
            write_function(compiled)
        except Exception as error:  # of the user's function
            raise_interruption(error)
            raise Fail(
                f"the function of compile_to_stream failed for {len(compiled)} bytes: "
                f"{type(error).__name__}: {error}"
            ) from error

    def set_ep_context_data_write_func(self, write_func: WriteFunction) -> None:
        """Let *write_func* take what would be in files beside the model.

        It is called with the name that the model has for the file, and an
        :class:`~onnxplug.OrtEpContextData`.
        """
        self._settings = self._settings._replace(write_data=write_func)

    def clear_ep_context_data_write_func(self) -> None:
        """Undo :meth:`set_ep_context_data_write_func`."""
        self._settings = self._settings._replace(write_data=None)

    def set_ep_context_binary_information(
        self, output_directory: str | os.PathLike[str], model_name: str
    ) -> None:
        """Say where files beside a model go that is not written to a file itself.

        Args:
            output_directory: the folder that the model will be in.
            model_name: what their names begin with; ``.onnx`` at its end is left out.

        Raises:
            InvalidArgument: there is no such folder, or no name.
        """
        folder = _path(output_directory)
        if not os.path.isdir(folder):
            raise InvalidArgument(f"there is no folder {folder!r}")
        stem = os.path.basename(_path(model_name)).removesuffix(".onnx")
        if not stem:
            raise InvalidArgument(f"model_name is {model_name!r}; expected a name")
        self._settings = self._settings._replace(
            folder=os.path.abspath(folder), stem=stem
        )

    def _default_path(self) -> str:
        source = self._request.source
        return default_path(source if isinstance(source, str) else None)

    def _compile(self, settings: ContextSettings) -> CompiledModel:
        written: list[CompiledModel] = []

        def finish(built: BuiltModel, model: Model) -> None:
            built.explanation.refresh()  # before its partitions are closed
            self.explanation = built.explanation
            written.append(write_compiled(built, model, settings))

        open_model(self._request, (), None, None, finish).built.close()
        return written[0]


def _locator(
    locate: GetInitializerLocation | None,
) -> Callable[[str, Any], Place | None] | None:
    return None if locate is None else functools.partial(_locate, locate)


def _locate(locate: GetInitializerLocation, name: str, array: Any) -> Place | None:
    try:
        place = locate(name, OrtValue.ortvalue_from_numpy(array), None)
    except Exception as error:
        raise_interruption(error)
        raise Fail(
            f"get_initializer_location_func failed for {name!r}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if place is None:
        return None
    if not isinstance(place, OrtExternalInitializerInfo):
        raise Fail(
            f"get_initializer_location_func gave {place!r} for {name!r}; expected an "
            "OrtExternalInitializerInfo, or None"
        )
    return place.filepath, place.file_offset, place.byte_size


def _bytes(what: str, given: Any) -> int:
    try:
        number = operator.index(given)
    except TypeError:
        raise OptionTypeError(
            f"{what} is {given!r}; expected a number of bytes"
        ) from None
    if number < 0:
        raise OptionError(f"{what} is {number}; expected 0 or more bytes")
    return number


def _path(given: Any) -> str:
    try:
        path = os.fsdecode(given)
    except TypeError as error:
        raise OptionTypeError(
            f"a path is {given!r}; expected a text: {error}"
        ) from error
    if why := why_no_path(path):
        raise OptionError(f"a path is {path!r}, {why}")
    return path
