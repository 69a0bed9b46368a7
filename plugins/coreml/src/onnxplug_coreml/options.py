"""The options, by the names of ONNX Runtime's CoreML EP, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_coreml.formats import COREAI, MLPROGRAM

ALL: Final = "ALL"
CPU_ONLY: Final = "CPUOnly"
CPU_AND_GPU: Final = "CPUAndGPU"
CPU_AND_NEURAL_ENGINE: Final = "CPUAndNeuralEngine"

OPTIONS: Final[dict[str, ep.Option]] = {
    "ModelFormat": ep.Option(
        default="",
        choices=("", MLPROGRAM, COREAI),
        substitutes={"NeuralNetwork": MLPROGRAM},
        doc="The format of compiled models, and so the engine: MLProgram for Core ML, "
        "CoreAI for its successor; empty: CoreAI from macOS 27 on and on Linux, else "
        "MLProgram.",
    ),
    "MLComputeUnits": ep.Option(
        default="",
        choices=("", ALL, CPU_AND_GPU, CPU_AND_NEURAL_ENGINE, CPU_ONLY),
        doc="Which units may compute; empty: those of the session's devices, and the "
        "processor.",
    ),
    "ComputePrecision": ep.Option(
        default="",
        choices=("", "Float32", "Float16"),
        doc="The type in which what is float32 in the model is computed; empty: "
        "Float16 with CPUAndNeuralEngine, as the Neural Engine has no other, else "
        "Float32.",
    ),
    "RequireStaticInputShapes": ep.Option(
        default=False,
        doc="Take only nodes whose inputs have shapes that are known before the run.",
    ),
    "EnableOnSubgraphs": ep.Option(
        default=False,
        doc="Take nodes in bodies of If, Loop and Scan, too.",
    ),
    "MinimumNodes": ep.Option(
        default=1,
        minimum=1,
        doc="How many nodes a partition needs to be taken.",
    ),
    "SpecializationStrategy": ep.Option(
        default="Default",
        choices=("Default", "FastPrediction"),
        doc="What Core ML takes time for in loading: FastPrediction for sooner "
        "predictions; MLProgram only, from macOS 15 on.",
    ),
    "ProfileComputePlan": ep.Option(
        default=False,
        doc="Log on which unit Core ML means to compute each operation; MLProgram "
        "only, from macOS 14.4 on.",
        compiled_in=False,
    ),
    "AllowLowPrecisionAccumulationOnGPU": ep.Option(
        default=False,
        doc="Let GPUs add up in 16 bits; MLProgram only.",
    ),
    "ModelCacheDirectory": ep.Option(
        default="",
        doc="A folder that keeps compiled models for later sessions.",
        compiled_in=False,
    ),
    "cache": ep.Option(
        default=False,
        doc="Keep compiled models in onnxplug's cache on disk, for later processes; "
        "`onnxplug cache ls --compiled` lists them.",
        compiled_in=False,
    ),
    "coreml_flags": ep.Option(
        default=0,
        minimum=0,
        maximum=0x3F,
        doc="ONNX Runtime's older form of these options, bits of a number: 1 CPUOnly, "
        "2 EnableOnSubgraphs, 4 CPUAndNeuralEngine, 8 RequireStaticInputShapes, 16 "
        "MLProgram, 32 CPUAndGPU.",
    ),
}

_UNITS_BY_FLAG: Final = {
    0x01: CPU_ONLY,
    0x04: CPU_AND_NEURAL_ENGINE,
    0x20: CPU_AND_GPU,
}
_ENABLE_ON_SUBGRAPH: Final = 0x02
_ONLY_STATIC_SHAPES: Final = 0x08
_CREATE_MLPROGRAM: Final = 0x10

_UNITS_BY_DEVICES: Final = {
    frozenset({ep.DeviceType.CPU}): CPU_ONLY,
    frozenset({ep.DeviceType.GPU}): CPU_AND_GPU,
    frozenset({ep.DeviceType.NPU}): CPU_AND_NEURAL_ENGINE,
    frozenset({ep.DeviceType.CPU, ep.DeviceType.GPU}): CPU_AND_GPU,
    frozenset({ep.DeviceType.CPU, ep.DeviceType.NPU}): CPU_AND_NEURAL_ENGINE,
}


class Settings(Record):
    """What the options come to in one session.

    Attributes:
        model_format: ``MLProgram`` or ``CoreAI``.
        units: ``ALL``, ``CPUAndGPU``, ``CPUAndNeuralEngine`` or ``CPUOnly``.
        narrow: float32 of the model is computed in float16.
        static: nodes need inputs of known shape.
        in_bodies: nodes in bodies of control flow are taken.
        minimum_nodes: of a partition.
        fast_prediction: Core ML is to take time in loading for that.
        profiles_plan: on which unit an operation runs is asked and logged.
        accumulates_low: GPUs may add up in 16 bits.
        cache_folder: where compiled models are kept; empty: nowhere, or where the host
            keeps them.
        caches: the host keeps compiled models.
    """

    model_format: str
    units: str
    narrow: bool
    static: bool = False
    in_bodies: bool = False
    minimum_nodes: int = 1
    fast_prediction: bool = False
    profiles_plan: bool = False
    accumulates_low: bool = False
    cache_folder: str = ""
    caches: bool = False


def read_settings(
    devices: Sequence[ep.EpDevice],
    options: Mapping[str, ep.OptionValue],
    default_format: str,
) -> Settings:
    """What *options* come to on *devices*.

    Raises:
        OptionError: they contradict each other, or do not fit the format or devices.
    """
    flags = int(options["coreml_flags"])
    model_format = _format(str(options["ModelFormat"]), flags, default_format)
    units = _units(str(options["MLComputeUnits"]), flags, devices)
    narrow = {"": units == CPU_AND_NEURAL_ENGINE, "Float16": True}.get(
        str(options["ComputePrecision"]), False
    )
    if options["ModelCacheDirectory"] and options["cache"]:
        raise ep.OptionError(
            "options 'ModelCacheDirectory' and 'cache' both keep compiled models; set "
            "one of them"
        )
    if model_format == COREAI:
        _refuse_of_core_ml(options)
    return Settings(
        model_format=model_format,
        units=units,
        narrow=narrow,
        static=bool(options["RequireStaticInputShapes"])
        or bool(flags & _ONLY_STATIC_SHAPES),
        in_bodies=bool(options["EnableOnSubgraphs"])
        or bool(flags & _ENABLE_ON_SUBGRAPH),
        minimum_nodes=int(options["MinimumNodes"]),
        fast_prediction=options["SpecializationStrategy"] == "FastPrediction",
        profiles_plan=bool(options["ProfileComputePlan"]),
        accumulates_low=bool(options["AllowLowPrecisionAccumulationOnGPU"]),
        cache_folder=str(options["ModelCacheDirectory"]),
        caches=bool(options["cache"]),
    )


def _format(written: str, flags: int, default: str) -> str:
    if flags & _CREATE_MLPROGRAM:
        if written not in ("", MLPROGRAM):
            raise ep.OptionError(
                f"option 'ModelFormat' is {written}, and 'coreml_flags' says MLProgram"
            )
        return MLPROGRAM
    return written or default


def _units(written: str, flags: int, devices: Sequence[ep.EpDevice]) -> str:
    flagged = [units for flag, units in _UNITS_BY_FLAG.items() if flags & flag]
    if len(flagged) > 1:
        raise ep.OptionError(
            f"option 'coreml_flags' says {' and '.join(flagged)}; at most one of the "
            "bits 1, 4 and 32 may be set"
        )
    if flagged and written and flagged != [written]:
        raise ep.OptionError(
            f"option 'MLComputeUnits' is {written}, and 'coreml_flags' says "
            f"{flagged[0]}"
        )
    if flagged or written:
        return written or flagged[0]
    kinds = frozenset(pair.device.type for pair in devices)
    return _UNITS_BY_DEVICES.get(kinds, ALL)


_OF_CORE_ML: Final = (
    "SpecializationStrategy",
    "ProfileComputePlan",
    "AllowLowPrecisionAccumulationOnGPU",
)


def _refuse_of_core_ml(options: Mapping[str, ep.OptionValue]) -> None:
    for name in _OF_CORE_ML:
        if options[name] != OPTIONS[name].default:
            raise ep.OptionError(
                f"option {name!r} is of Core ML; Core AI has nothing like it, so it "
                "goes with ModelFormat MLProgram only"
            )
