"""Sessions and their options with all methods that ONNX Runtime's have.

What a session that only runs does without is imported by the methods that need it.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnxplug
from onnxplug.errors import (
    ArgumentTypeError,
    InvalidArgument,
    OptionError,
    OptionWarning,
    PluginNotFound,
)
from onnxplug.names import as_names
from onnxplug.selection.request import normalise
from onnxplug.suggest import did_you_mean
from onnxplug.warn import warn_user
from onnxplug_onnxruntime.leniency import Leniency, log_without_effect
from onnxplug_onnxruntime.process import global_threads

if TYPE_CHECKING:
    from onnxplug.ep import EpDevice
    from onnxplug.partition.assigned import OrtEpAssignedSubgraph
    from onnxplug_onnxruntime.devices import OrtEpDevice
    from onnxplug_onnxruntime.memory import OrtMemoryInfo
    from onnxplug_onnxruntime.native import NativeSession
    from onnxplug_onnxruntime.values import IOBinding, OrtValue, OrtValueVector


class SessionOptions(onnxplug.SessionOptions):
    """Options of one session; see :class:`onnxplug.SessionOptions`.

    Config entries that nobody has are kept, with one warning for each; what has no
    effect is logged for who debugs.
    """

    _is_plain = True

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_strictness"] = Leniency()

    def add_provider_for_devices(
        self,
        ep_devices: Sequence[OrtEpDevice | EpDevice],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Add an EP on chosen devices, all of one EP."""
        from onnxplug_onnxruntime.devices import pairs

        super().add_provider_for_devices(pairs(ep_devices), options)

    def set_provider_selection_policy_delegate(
        self, delegate: Callable[..., Sequence[Any]]
    ) -> None:
        """Choose EPs by a function of four arguments."""
        from onnxplug_onnxruntime.devices import adapted

        super().set_provider_selection_policy_delegate(adapted(delegate))


class RunOptions(onnxplug.RunOptions):
    """Options of one run; see :class:`onnxplug.RunOptions`, and what is said of config
    entries of :class:`SessionOptions`."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self._strictness = Leniency()


class InferenceSession(onnxplug.InferenceSession):
    """A model ready to run; see :class:`onnxplug.InferenceSession`.

    Arguments that neither runtime has warn.  The CPU EP serves, with a warning, where
    no EP that is named can be used, and a run in which an EP fails is done again with
    it.  With ``enable_fallback=0`` it serves for EPs only that are known by name.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: onnxplug.SessionOptions | None = None,
        providers: Any = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        known = {
            "enable_fallback": 1,
            "read_config_from_model": os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL")
            == "1",
            "disabled_optimizers": None,
            "policy": None,
            "registry": None,
        }
        for name in kwargs.keys() - known:
            warn_user(
                f"InferenceSession has no argument {name!r}"
                f"{did_you_mean(name, known)}; it has no effect",
                OptionWarning,
            )
        given = {name: kwargs[name] for name in kwargs if name in known}
        super().__init__(
            path_or_bytes,
            with_global_threads(
                SessionOptions() if sess_options is None else sess_options
            ),
            providers,
            provider_options,
            **known | given,
        )

    def _open(self) -> None:
        request = self._request
        own = normalise(request.providers, request.provider_options)
        self._request = request._replace(
            # with options that can be pickled
            providers=[each._replace(options=dict(each.options)) for each in own],
            provider_options=None,
            cpu_stands_in=request.falls_back or _are_known(each.name for each in own),
        )
        try:
            super()._open()
        except PluginNotFound as error:
            raise PluginNotFound(
                f"Unknown Provider Type: {error.plugin}: {error}", plugin=error.plugin
            ) from error
        self._bindings: weakref.WeakSet[IOBinding] = weakref.WeakSet()

    # running

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: onnxplug.RunOptions | None = None,
    ) -> list[Any]:
        """Run the model; see :meth:`onnxplug.InferenceSession.run`."""
        # there is no sparse tensor that is not of this module
        if isinstance(input_feed, Mapping) and f"{__package__}.sparse" in sys.modules:
            from onnxplug_onnxruntime.sparse import unwrapped

            input_feed = {name: unwrapped(value) for name, value in input_feed.items()}
        results = super().run(output_names, input_feed, run_options)
        if not any(isinstance(value, onnxplug.ep.SparseTensor) for value in results):
            return results
        from onnxplug_onnxruntime.sparse import wrapped

        return [wrapped(value) for value in results]

    def io_binding(self) -> IOBinding:
        """A binding of inputs and outputs for runs of this session."""
        from onnxplug_onnxruntime.values import IOBinding

        binding = IOBinding(self, self._opened.registry)
        self._bindings.add(binding)
        return binding

    def run_with_ortvaluevector(
        self,
        run_options: onnxplug.RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[onnxplug.OrtValue],
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[Any],
    ) -> None:
        """Run on *feeds*; the outputs are then in *fetches*.

        Args:
            fetch_devices: where each output is to be, an ``OrtDevice``.

        Raises:
            InvalidArgument: names, values and devices are not of one number.
        """
        feed_names = as_names(feed_names, "feed_names", ArgumentTypeError)
        fetch_names = as_names(fetch_names, "fetch_names", ArgumentTypeError)
        if len(feed_names) != len(feeds) or len(fetch_names) != len(fetch_devices):
            raise InvalidArgument(
                f"{len(feed_names)} inputs have {len(feeds)} values, and "
                f"{len(fetch_names)} outputs {len(fetch_devices)} devices; expected as "
                "many of each"
            )
        binding = self.io_binding()
        for name, value in zip(feed_names, feeds, strict=True):
            binding.bind_ortvalue_input(name, value)
        for name, device in zip(fetch_names, fetch_devices, strict=True):
            binding.bind_output(name, device.name, device.device_id())
        self.run_with_iobinding(binding, run_options)
        fetches[:] = binding.get_outputs_as_ortvaluevector()

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Release what runs captured as ``gpu_graph_id``, if anything."""
        for binding in self._bindings:
            binding.release_captured_graph(graph_annotation_id)

    # values

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A tensor of unspecified content."""
        from onnxplug_onnxruntime.values import OrtValue

        return OrtValue.ortvalue_from_shape_and_type(
            shape, element_type, device_type, device_id, vendor_id
        )

    # asking

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """For each input the memory of the EP that reads it first."""
        return [self._memory(self._reader(arg.name)) for arg in self.get_inputs()]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """For each output the memory of the EP that makes it."""
        made = {
            name: part.ep for part in self.explain().partitions for name in part.outputs
        }
        return [self._memory(made.get(arg.name)) for arg in self.get_outputs()]

    def get_input_epdevices(self) -> list[OrtEpDevice | None]:
        """For each input a device of the EP that reads it first, if one does."""
        from onnxplug_onnxruntime.devices import OrtEpDevice

        devices = {each.name: each.devices for each in self._built.chosen}
        readers = [
            devices.get(self._reader(arg.name) or "") for arg in self.get_inputs()
        ]
        return [OrtEpDevice(found[0]) if found else None for found in readers]

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """The partitions and their nodes; of the CPU's, each node by itself."""
        from onnxplug.partition.assigned import OrtEpAssignedSubgraph
        from onnxplug.selection.order import CPU

        return [
            OrtEpAssignedSubgraph(part.ep_name, nodes)
            for part in super().get_provider_graph_assignment_info()
            for nodes in (
                [[node] for node in part.nodes] if part.ep_name == CPU else [part.nodes]
            )
        ]

    def _reader(self, name: str) -> str | None:
        """The EP of the first partition that reads an input."""
        parts = self.explain().partitions
        return next((part.ep for part in parts if name in part.inputs), None)

    def _memory(self, ep: str | None) -> OrtMemoryInfo:
        """That of an EP; the host's for ``None``."""
        from onnxplug.ep import HOST
        from onnxplug_onnxruntime.memory import memory_info

        locations = {each.name: each.provider.location for each in self._built.chosen}
        return memory_info(locations.get(ep or "", HOST))

    # what few EPs have here, or none

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Options of EPs that change while a session lives.

        Raises:
            OptionError: none is given, or an EP does not take them.
        """
        if not options:
            raise OptionError("No options were provided")
        if any(each.provider.dynamic_options for each in self._built.chosen):
            super().set_ep_dynamic_options(options)
            return
        log_without_effect(
            f"no EP of the session has dynamic options; {', '.join(options)} have no "
            "effect"
        )

    def get_tuning_results(self) -> list[Any]:
        """What EPs found out by trying; they keep that themselves, so none."""
        return []

    def set_tuning_results(
        self, results: Sequence[Any], *, error_on_invalid: bool = False
    ) -> None:
        """Does nothing: no EP takes any."""
        if results:
            log_without_effect("tuning results have no effect: no EP takes any")

    # by names that are private there, and read all the same

    @property
    def _sess(self) -> NativeSession:
        from onnxplug_onnxruntime.native import NativeSession

        return NativeSession(self)

    @property
    def _sess_options(self) -> onnxplug.SessionOptions:
        return self.get_session_options()

    @property
    def _providers(self) -> list[str]:
        return self.get_providers()


Session = InferenceSession


def _are_known(names: Iterable[str]) -> bool:
    """Whether onnxplug knows EPs of all *names*."""
    from onnxplug.selection.known import find_known  # who falls back does not ask

    return all(map(find_known, names))


def get_default_session_options() -> SessionOptions:
    """Options as they are when nothing is set."""
    return SessionOptions()


def with_global_threads(options: onnxplug.SessionOptions) -> onnxplug.SessionOptions:
    """*options* with as many threads as ``set_global_thread_pool_sizes`` said, where
    they are to use those."""
    threads = global_threads()
    if threads and not vars(options)["use_per_session_threads"]:
        options = options.snapshot()
        options.intra_op_num_threads = threads
    return options
