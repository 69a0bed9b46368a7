"""What users may set, by ONNX Runtime's names and with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onnxplug import ep
from onnxplug.authoring.record import Record

UNLIMITED: Final = (1 << 64) - 1
"""The limit of memory that is none."""

GROWTH: Final = ("kNextPowerOfTwo", "kSameAsRequested")
"""By how much the arena grows, in the order of ONNX Runtime's numbers."""

SEARCH: Final = ("EXHAUSTIVE", "HEURISTIC", "DEFAULT")
"""How cuDNN's plans for convolutions are found, in the order of their numbers."""

SMALL_WORKSPACE: Final = 32 << 20
"""Bytes that a convolution's workspace is held to where the option says so."""

LEGACY: Final = 1
"""The handle of CUDA's default stream, which waits for others that do not refuse to."""

PER_THREAD: Final = 2
"""The handle of the default stream of the thread that uses it."""

FLASH: Final = 1
CUDNN: Final = 8
MATH: Final = 16
"""Bits of ``sdpa_kernel``: this EP's kernels, cuDNN's, and products with a softmax
between them, which this EP's kernels become where scores are to be held."""

_OURS: Final = {FLASH: FLASH, 2: FLASH, CUDNN: CUDNN, MATH: MATH, 256: FLASH}
"""What serves for a bit of ``sdpa_kernel``: memory-efficient and lean attention are
ways of doing without the scores, as flash attention is."""

_TENSORRT: Final = 4 | 32 | 64 | 128
"""Bits of ``sdpa_kernel`` for kernels of TensorRT's, which are not here."""

_MOST_BITS: Final = 511


def _numbered(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names and, as texts, the numbers that ONNX Runtime has for them."""
    return (*names, *map(str, range(len(names))))


def _named(value: object, names: tuple[str, ...]) -> str:
    text = str(value)
    return names[int(text)] if text.isdecimal() else text


OPTIONS: Final[Mapping[str, ep.Option]] = {
    "device_id": ep.Option(
        default=0,
        minimum=-1,
        doc="which GPU, as CUDA counts those that it sees; -1: that of the session's "
        "device",
        compiled_in=False,
    ),
    "gpu_mem_limit": ep.Option(
        default=UNLIMITED,
        minimum=1,
        doc="bytes that the session's arena, of weights and of what is between nodes, "
        "takes of the device at most; what CUDA and its libraries take is not counted",
        compiled_in=False,
    ),
    "arena_extend_strategy": ep.Option(
        default=GROWTH[0],
        choices=_numbered(GROWTH),
        doc="by how much the arena grows: `kNextPowerOfTwo` (0) to the next power of "
        "two, `kSameAsRequested` (1) by what was asked for",
        compiled_in=False,
    ),
    "cudnn_conv_algo_search": ep.Option(
        default=SEARCH[0],
        choices=_numbered(SEARCH),
        doc="how cuDNN's plan for a convolution is found: `EXHAUSTIVE` (0) times all "
        "that there are, once for a shape, and keeps the fastest on disk; `HEURISTIC` "
        "(1) takes cuDNN's first guess; `DEFAULT` (2) the first of its fallbacks",
        compiled_in=False,
    ),
    "cudnn_conv_use_max_workspace": ep.Option(
        default=True,
        doc="plans for convolutions may take as much workspace as they want; off: at "
        "most 32 MiB",
        compiled_in=False,
    ),
    "cudnn_conv1d_pad_to_nc1d": ep.Option(
        default=False,
        doc="a convolution along one axis is given to cuDNN as [N, C, 1, D], and not "
        "as [N, C, D, 1]",
        compiled_in=False,
    ),
    "do_copy_in_default_stream": ep.Option(
        default=True,
        doc="copies are queued on the stream that computes; off: on a stream of their "
        "own, which the other waits for, so nothing is read early",
        compiled_in=False,
    ),
    "enable_cuda_graph": ep.Option(
        default=False,
        doc="bound runs are captured as a CUDA graph, and launched again",
        compiled_in=False,
    ),
    "enable_cudnn": ep.Option(
        default=True,
        doc="convolutions and attention by cuDNN, where it is installed; off: by this "
        "EP's own kernels",
    ),
    "enable_skip_layer_norm_strict_mode": ep.Option(
        default=False,
        doc="for programs that set it for ONNX Runtime",
        ignored="norms are always summed in float32",
    ),
    "fuse_conv_bias": ep.Option(
        default=False,
        doc="cuDNN adds the bias of a convolution, and applies the Relu after it; "
        "off: a kernel of this EP's does",
    ),
    "gpu_external_alloc": ep.Option(
        default=0,
        minimum=0,
        doc="the address of a function that takes bytes and gives the device memory "
        "that the arena grows by; 0: CUDA's",
        compiled_in=False,
    ),
    "gpu_external_free": ep.Option(
        default=0,
        minimum=0,
        doc="the address of the function that takes back what gpu_external_alloc gave",
        compiled_in=False,
    ),
    "gpu_external_empty_cache": ep.Option(
        default=0,
        minimum=0,
        doc="the address of a function that is called where there is no memory left, "
        "before it is asked for again; 0: none",
        compiled_in=False,
    ),
    "has_user_compute_stream": ep.Option(
        default=False,
        doc="for programs that set it beside user_compute_stream; alone it is refused",
        compiled_in=False,
    ),
    "prefer_nhwc": ep.Option(
        default=False,
        doc="images lie with their channels last around convolutions, where the graph "
        "leaves it open",
    ),
    "sdpa_kernel": ep.Option(
        default=0,
        minimum=0,
        maximum=_MOST_BITS,
        doc="which kernels attention may have, a sum of 1, 2, 16 or 256 (this EP's) "
        "and 8 (cuDNN's); 4, 32, 64 and 128 are TensorRT's, which are not here; 0: "
        "cuDNN's where it has one, else this EP's",
    ),
    "tunable_op_enable": ep.Option(
        default=False,
        doc="products run by the algorithms of cuBLASLt that were measured to be the "
        "fastest, where they were",
        compiled_in=False,
    ),
    "tunable_op_tuning_enable": ep.Option(
        default=False,
        doc="products that were not measured are, when they are compiled for the sizes "
        "of a run, and the result is kept on disk; needs tunable_op_enable",
        compiled_in=False,
    ),
    "tunable_op_max_tuning_duration_ms": ep.Option(
        default=0,
        minimum=0,
        doc="milliseconds after which no other algorithm is tried for a product; 0: "
        "all are",
        compiled_in=False,
    ),
    "use_ep_level_unified_stream": ep.Option(
        default=False,
        doc="for programs that set it for ONNX Runtime",
        ignored="a run always has one stream for all that it computes on a GPU",
    ),
    "use_tf32": ep.Option(
        default=True,
        doc="products and convolutions of float32 may round their factors to TF32 on "
        "GPUs that have it",
    ),
    "user_compute_stream": ep.Option(
        default=0,
        minimum=0,
        doc="the address of the CUDA stream to work on; 0: the host's own",
        compiled_in=False,
    ),
}


class Allocator(Record):
    """Addresses of the user's functions for device memory; 0: CUDA's.

    Attributes:
        alloc: ``void *(size_t)``.
        free: ``void (void *)``.
        empty_cache: ``void (void)``, or 0.
    """

    alloc: int = 0
    free: int = 0
    empty_cache: int = 0


class MemorySettings(Record):
    """How a session takes memory of the device.

    Attributes:
        limit: bytes of the arena at most.
        doubles: it grows to powers of two, and not by what was asked for.
        allocator: where it takes memory from.
        copies_apart: copies have a stream of their own.
    """

    limit: int = UNLIMITED
    doubles: bool = True
    allocator: Allocator = Allocator()
    copies_apart: bool = False

    @property
    def has_own_weights(self) -> bool:
        """Whether weights are in the session's arena, and not shared: they count
        against its limit, and are from the user's allocator."""
        return self.limit != UNLIMITED or bool(self.allocator.alloc)


class ConvolutionSettings(Record):
    """How convolutions are given to cuDNN.

    Attributes:
        search: one of :data:`SEARCH`.
        workspace: bytes at most; ``None``: as many as a plan wants.
        rows_first: what has one axis gets another before it, and not behind it.
        fuses_bias: cuDNN applies the bias and what follows.
    """

    search: str = SEARCH[0]
    workspace: int | None = None
    rows_first: bool = False
    fuses_bias: bool = False


class TuningSettings(Record):
    """How algorithms for products are found.

    Attributes:
        uses: what was measured is used.
        measures: what was not measured is.
        seconds: after which no other is tried; 0: all are.
    """

    uses: bool = False
    measures: bool = False
    seconds: float = 0.0


class Settings(Record):
    """What the options of a session say to its partitions.

    Attributes:
        captures: bound runs are captured.
        channels_last: how images lie.
        cudnn: convolutions and attention may be cuDNN's.
        tf32: products and convolutions may round float32 to TF32.
        attention: the kernels that attention may have, of ``FLASH``, ``CUDNN`` and
            ``MATH``; empty for what is the best there is.
    """

    memory: MemorySettings = MemorySettings()
    convolution: ConvolutionSettings = ConvolutionSettings()
    tuning: TuningSettings = TuningSettings()
    captures: bool = False
    channels_last: bool = False
    cudnn: bool = True
    tf32: bool = True
    attention: frozenset[int] = frozenset()


def read_settings(options: Mapping[str, ep.OptionValue]) -> Settings:
    """The settings that options, all of :data:`OPTIONS`, stand for.

    Raises:
        OptionError: they contradict each other.
    """
    _check_stream(options)
    uses_max = bool(options["cudnn_conv_use_max_workspace"])
    return Settings(
        MemorySettings(
            int(options["gpu_mem_limit"]),
            _named(options["arena_extend_strategy"], GROWTH) == GROWTH[0],
            _allocator(options),
            not options["do_copy_in_default_stream"],
        ),
        ConvolutionSettings(
            _named(options["cudnn_conv_algo_search"], SEARCH),
            None if uses_max else SMALL_WORKSPACE,
            bool(options["cudnn_conv1d_pad_to_nc1d"]),
            bool(options["fuse_conv_bias"]),
        ),
        _tuning(options),
        bool(options["enable_cuda_graph"]),
        bool(options["prefer_nhwc"]),
        bool(options["enable_cudnn"]),
        bool(options["use_tf32"]),
        _attention(int(options["sdpa_kernel"]), bool(options["enable_cudnn"])),
    )


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
            "whichever thread uses it; set it to a stream that you create, or to "
            f"{LEGACY}, the default one of all threads"
        )
    if handle == LEGACY and options["enable_cuda_graph"]:
        raise ep.OptionError(
            f"option 'user_compute_stream' is {handle}, CUDA's default stream, which "
            "cannot be captured as 'enable_cuda_graph' asks for; set it to a stream "
            "that you create"
        )


def _allocator(options: Mapping[str, ep.OptionValue]) -> Allocator:
    names = ("gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache")
    alloc, free, empty = (int(options[name]) for name in names)
    if bool(alloc) != bool(free) or (empty and not alloc):
        raise ep.OptionError(
            "options 'gpu_external_alloc' and 'gpu_external_free' belong together: set "
            f"are {', '.join(name for name in names if options[name])}; set both or "
            "none, and 'gpu_external_empty_cache' only beside them"
        )
    return Allocator(alloc, free, empty)


def _tuning(options: Mapping[str, ep.OptionValue]) -> TuningSettings:
    uses = bool(options["tunable_op_enable"])
    measures = bool(options["tunable_op_tuning_enable"])
    if measures and not uses:
        raise ep.OptionError(
            "option 'tunable_op_tuning_enable' has no effect without "
            "'tunable_op_enable'; set both"
        )
    milliseconds = int(options["tunable_op_max_tuning_duration_ms"])
    return TuningSettings(uses, measures, milliseconds / 1000)


def _attention(bits: int, has_cudnn: bool) -> frozenset[int]:
    if bits and not bits & ~_TENSORRT:
        raise ep.OptionError(
            f"option 'sdpa_kernel' is {bits}, which allows kernels of TensorRT's only, "
            "and they are not here; allow one of 1, 2, 8, 16 or 256, or leave it at 0"
        )
    if bits & ~_TENSORRT == CUDNN and not has_cudnn:
        raise ep.OptionError(
            f"option 'sdpa_kernel' is {bits}, which allows cuDNN's attention only, and "
            "'enable_cudnn' is off; turn it on, or allow another kernel"
        )
    return frozenset(ours for bit, ours in _OURS.items() if bits & bit)
