"""What the options of a session come to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.entries import fingerprint
from onnxplug.authoring.record import Record
from onnxplug_tensorrt.calibration import NAME as TABLE
from onnxplug_tensorrt.calibration import NATIVE, Ranges, Table
from onnxplug_tensorrt.driver import AMPERE, DeviceFacts
from onnxplug_tensorrt.profiles import Range, read_profile

LEGACY: Final = 1
"""The handle of CUDA's default stream, which cannot be captured."""

PER_THREAD: Final = 2
"""That of the default stream of the thread which uses it."""

STRONG: Final = (11, 0)
"""The TensorRT from which on types are those of the network, and no flags change
them."""


class BuildSettings(Record):
    """How engines are built; fields as the options of these names.

    Attributes:
        workspace: bytes; 0: as many as there are.
        dla_core: -1: none.
        tactics: names of sources, and whether they may be used.
    """

    workspace: int = 0
    level: int = 3
    auxiliary_streams: int = -1
    sparse: bool = False
    dla_core: int = -1
    hardware_compatible: bool = False
    stripped: bool = False
    preview_features: tuple[str, ...] = ()
    tactics: tuple[tuple[str, bool], ...] = ()
    sequential: bool = False
    detailed_log: bool = False


class Precision(Record):
    """In which types is computed.

    Attributes:
        types: that what is float32 in the model may be computed in.
        norms_in_float32: layer norms are not.
        operators_in_float32, nodes_in_float32: neither are these.
        codes: TensorRT before 11 may compute with codes where it may choose types.
        ranges: of tensors, for codes, by their names.
    """

    types: tuple[ep.DataType, ...] = ()
    norms_in_float32: bool = False
    codes: bool = False
    operators_in_float32: tuple[str, ...] = ()
    nodes_in_float32: tuple[str, ...] = ()
    ranges: Ranges = MappingProxyType({})

    @property
    def of_ranges(self) -> str:
        """What tells these ranges from all others; empty: there are none."""
        if not self.ranges:
            return ""
        return fingerprint(json.dumps(sorted(self.ranges.items()))).hex()


class NamedFolder(Record):
    """A folder that an option names.

    Attributes:
        option: the option's name.
        path: its value, which may be relative to the working folder.
    """

    option: str
    path: str

    def refused(self, why: str) -> ep.OptionError:
        """What to raise where nothing can be kept there."""
        return ep.OptionError(
            f"option {self.option!r} is {self.path!r}, where nothing can be kept: "
            f"{why}; name another folder, or leave the option out, and onnxplug's own "
            "cache is used"
        )


class CacheSettings(Record):
    """What is kept on disk.

    Attributes:
        engines, times: these are.
        ignores_device: times of other GPUs count, too.
        folder, times_folder: where; ``None``: in onnxplug's own cache.
        prefix: what the names of engines begin with.
    """

    engines: bool = False
    times: bool = False
    ignores_device: bool = False
    folder: NamedFolder | None = None
    times_folder: NamedFolder | None = None
    prefix: str = ""


class Settings(Record):
    """What the options of a session say.

    Attributes:
        profile: ranges of shapes by the names of inputs; ``None``: they are what runs
            bring.
        smallest: nodes of a partition at least.
        rounds: how often the parser is asked.
        excluded: operators that are not taken.
        dumps: partitions are written as models.
        shares_memory: engines compute in memory of the host's arena.
        captures: bound runs are captured.
        plugins: paths of libraries.
        table: where ranges of tensors are read from.
    """

    build: BuildSettings = BuildSettings()
    precision: Precision = Precision()
    caches: CacheSettings = CacheSettings()
    profile: Mapping[str, Range] | None = None
    smallest: int = 1
    rounds: int = 1000
    excluded: frozenset[str] = frozenset()
    dumps: bool = False
    shares_memory: bool = False
    captures: bool = False
    plugins: tuple[str, ...] = ()
    table: Table | None = None

    def calibrated(self) -> Settings:
        """They, with the ranges that the table has.

        Raises:
            OptionError: there is no such table, or it is damaged.
        """
        if self.table is None:
            return self
        ranges = self.table.read()
        return self._replace(precision=self.precision._replace(ranges=ranges))


def read_settings(options: Mapping[str, ep.OptionValue]) -> Settings:
    """The settings that options, all of :data:`~.options.OPTIONS`, stand for.

    Raises:
        OptionError: they contradict each other, or are not written as they should be.
    """
    _check_stream(options)
    return Settings(
        _build(options),
        Precision(
            tuple(
                dtype
                for name, dtype in (
                    ("trt_fp16_enable", ep.DataType.FLOAT16),
                    ("trt_bf16_enable", ep.DataType.BFLOAT16),
                )
                if options[name]
            ),
            bool(options["trt_layer_norm_fp32_fallback"]),
            bool(options["trt_int8_enable"]),
            _listed(options["trt_fp32_op_types"], ","),
            _listed(options["trt_fp32_nodes"], ","),
        ),
        _caches(options),
        read_profile(options),
        int(options["trt_min_subgraph_size"]),
        int(options["trt_max_partition_iterations"]),
        frozenset(_listed(options["trt_op_types_to_exclude"], ",")),
        bool(options["trt_dump_subgraphs"]),
        bool(options["trt_context_memory_sharing_enable"]),
        bool(options["trt_cuda_graph_enable"]),
        _listed(options["trt_extra_plugin_lib_paths"], ";"),
        _table(options),
    )


def check(settings: Settings, tensorrt: Any, device: DeviceFacts) -> None:
    """Check what only the installed TensorRT and the GPU know.

    Raises:
        OptionError: TensorRT has no such feature or source of tactics, does not compute
            in such types, or the GPU is too old.
    """
    build = settings.build
    _check_types(settings.precision, tensorrt)
    if settings.table is not None and version_of(tensorrt) >= STRONG:
        raise ep.OptionError(
            f"option {TABLE!r} is for TensorRT 10, and {tensorrt.__version__} has no "
            "calibration; quantise the model, such that it has QuantizeLinear and "
            "DequantizeLinear"
        )
    for option, enum, names in (
        ("trt_preview_features", tensorrt.PreviewFeature, build.preview_features),
        (
            "trt_tactic_sources",
            tensorrt.TacticSource,
            tuple(name for name, _ in build.tactics),
        ),
    ):
        known = list(enum.__members__)
        for name in names:
            if name not in known:
                raise ep.OptionError(
                    f"option {option!r} has {name!r}, which TensorRT "
                    f"{tensorrt.__version__} has not; it has {', '.join(known)}"
                )
    if build.hardware_compatible and device.capability[0] < AMPERE:
        raise ep.OptionError(
            "option 'trt_engine_hw_compatible' is for GPUs from Ampere on, and "
            f"{device.name} is {device.architecture}; turn it off"
        )


def _check_types(precision: Precision, tensorrt: Any) -> None:
    version = f"TensorRT {tensorrt.__version__}"
    if version_of(tensorrt) >= STRONG:
        if len(precision.types) > 1:
            raise ep.OptionError(
                "options 'trt_fp16_enable' and 'trt_bf16_enable' are both set, and "
                f"{version} does not choose between types; set one of them"
            )
    elif precision.types:
        for name, is_set in (
            ("trt_layer_norm_fp32_fallback", precision.norms_in_float32),
            ("trt_fp32_op_types", precision.operators_in_float32),
            ("trt_fp32_nodes", precision.nodes_in_float32),
        ):
            if is_set:
                raise ep.OptionError(
                    f"option {name!r} is for TensorRT from 11 on, where onnxplug "
                    f"chooses the types, and {version} chooses them itself; turn it "
                    "off, or pip install 'tensorrt-cu13>=11'"
                )


def version_of(tensorrt: Any) -> tuple[int, ...]:
    """The major and minor version of a module of TensorRT's."""
    return tuple(int(part) for part in str(tensorrt.__version__).split(".")[:2])


def _build(options: Mapping[str, ep.OptionValue]) -> BuildSettings:
    return BuildSettings(
        int(options["trt_max_workspace_size"]),
        int(options["trt_builder_optimization_level"]),
        int(options["trt_auxiliary_streams"]),
        bool(options["trt_sparsity_enable"]),
        int(options["trt_dla_core"]) if options["trt_dla_enable"] else -1,
        bool(options["trt_engine_hw_compatible"]),
        bool(options["trt_weight_stripped_engine_enable"]),
        _listed(options["trt_preview_features"], ","),
        _tactics(str(options["trt_tactic_sources"])),
        bool(options["trt_force_sequential_engine_build"]),
        bool(options["trt_detailed_build_log"]),
    )


def _table(options: Mapping[str, ep.OptionValue]) -> Table | None:
    path, is_native = str(options[TABLE]), bool(options[NATIVE])
    if not path:
        return None
    if not options["trt_int8_enable"]:
        raise ep.OptionError(
            f"option {TABLE!r} is set and 'trt_int8_enable' is not, without which a "
            "calibration table is of no use; set both or none"
        )
    return Table(path, is_native)


def _check_stream(options: Mapping[str, ep.OptionValue]) -> None:
    handle = int(options["user_compute_stream"])
    if options["has_user_compute_stream"] and not handle:
        raise ep.OptionError(
            "option 'has_user_compute_stream' is set and 'user_compute_stream' is not; "
            "set the latter to the stream's address"
        )
    if handle == PER_THREAD:
        raise ep.OptionError(
            f"option 'user_compute_stream' is {handle}, CUDA's default stream of "
            "whichever thread uses it; set it to a stream that you create"
        )
    if handle == LEGACY and options["trt_cuda_graph_enable"]:
        raise ep.OptionError(
            f"option 'user_compute_stream' is {handle}, CUDA's default stream, which "
            "cannot be captured as 'trt_cuda_graph_enable' asks for; set it to a "
            "stream that you create"
        )


def _listed(text: object, separator: str) -> tuple[str, ...]:
    parts = (part.strip() for part in str(text).split(separator))
    return tuple(part for part in parts if part)


def _tactics(text: str) -> tuple[tuple[str, bool], ...]:
    """``+A,-B`` as names and whether each may be used."""
    found = []
    for part in _listed(text, ","):
        if part[0] not in "+-" or len(part) == 1:
            raise ep.OptionError(
                f"option 'trt_tactic_sources' is {text!r}; expected names with + or - "
                "before each, as in +EDGE_MASK_CONVOLUTIONS,-JIT_CONVOLUTIONS"
            )
        found.append((part[1:], part[0] == "+"))
    return tuple(found)


def _caches(options: Mapping[str, ep.OptionValue]) -> CacheSettings:
    prefix = str(options["trt_engine_cache_prefix"])
    if not re.fullmatch(r"[A-Za-z0-9._-]{0,100}", prefix):
        raise ep.OptionError(
            f"option 'trt_engine_cache_prefix' is {prefix!r}; expected up to 100 "
            "letters of ASCII, digits, dots, hyphens and underscores, as names of "
            "files begin with it"
        )
    folder = _named(options, "trt_engine_cache_path")
    return CacheSettings(
        bool(options["trt_engine_cache_enable"]),
        bool(options["trt_timing_cache_enable"]),
        bool(options["trt_force_timing_cache"]),
        folder,
        _named(options, "trt_timing_cache_path") or folder,
        prefix,
    )


def _named(options: Mapping[str, ep.OptionValue], name: str) -> NamedFolder | None:
    path = str(options[name])
    return NamedFolder(name, path) if path else None
