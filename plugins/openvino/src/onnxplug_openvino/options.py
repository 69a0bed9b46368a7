"""The options, by the names of ONNX Runtime's OpenVINO EP, and what they mean.

Owns: the declared options, and :class:`Settings`, what they come to for one session.
An option without meaning here is declared as refused, so that setting it says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onnxplug.authoring.files import read_file
from onnxplug.ep import DeviceType, EpDevice, Option, OptionError, OptionValue

PRECISIONS: Final = ("FP32", "FP16", "BF16", "ACCURACY")

OPTIONS: Final[dict[str, Option]] = {
    "device_type": Option(
        default="",
        doc="What to run on: CPU, GPU, GPU.1, NPU, AUTO:GPU,CPU, HETERO:…, MULTI:…, "
        "or an old form such as CPU_FP32; the session's device unless given.",
    ),
    "device_id": Option(
        default="", doc="Which of several: a number, or a name such as GPU.1."
    ),
    "precision": Option(
        default="FP32",
        choices=PRECISIONS,
        doc="The type floating point is computed in; ACCURACY: the model's own.",
    ),
    "num_of_threads": Option(
        default=0,
        compiled_in=False,
        minimum=0,
        doc="Threads a run may use; 0: the session's intra_op_num_threads, or "
        "OpenVINO's choice.",
    ),
    "num_streams": Option(
        default=0,
        compiled_in=False,
        minimum=0,
        doc="How many runs OpenVINO works on at a time; 0: its own choice, one.",
    ),
    "cache_dir": Option(
        default="",
        compiled_in=False,
        doc="A folder that keeps compiled models for later processes.",
    ),
    "cache": Option(
        default=False,
        doc="Keep compiled models in onnxplug's cache on disk, for later processes; "
        "`onnxplug cache ls --compiled` lists them.",
        compiled_in=False,
    ),
    "load_config": Option(
        default="",
        doc="OpenVINO's own properties by device, as JSON or the path of a JSON file; "
        "they outrank the other options.",
    ),
    "model_priority": Option(
        default="DEFAULT",
        compiled_in=False,
        choices=("DEFAULT", "LOW", "MEDIUM", "HIGH"),
        doc="How urgent the model is beside others on the device.",
    ),
    "reshape_input": Option(
        default="",
        doc="Shapes to compile for, input[1,3,60,80..100],… with ranges where a "
        "dimension varies.",
    ),
    "disable_dynamic_shapes": Option(
        default=False,
        doc="Compile anew for each set of input shapes; a compiled model is kept for "
        "each of the last eight.",
    ),
    "enable_opencl_throttling": Option(
        default=False,
        compiled_in=False,
        doc="Let the GPU's queue wait instead of polling; GPU only.",
    ),
    "int64_in_32_bits": Option(
        default=False,
        doc="Take int64 of unknown range too, which OpenVINO computes in 32 bits.",
    ),
    "device_luid": Option(
        default="", refused="devices are chosen by device_id or by their EpDevice"
    ),
    "layout": Option(
        default="",
        refused="ONNX fixes the layout of its tensors, and the EP takes them as they "
        "are",
    ),
    "enable_qdq_optimizer": Option(
        default=False,
        refused="OpenVINO finds quantize and dequantize pairs by itself",
    ),
    "context": Option(
        default="",
        refused="tensors are passed in host memory; there is no OpenCL context to "
        "share",
    ),
    "enable_causallm": Option(
        default=False,
        refused="the EP runs the model as written and keeps no state for it",
    ),
    "weights_metadata_map": Option(
        default="", refused="weights are shared with OpenVINO in memory, not by file"
    ),
    "shared_context": Option(
        default=False,
        refused="sessions share compiled models by the config entry "
        "ep.share_ep_contexts, whatever the EP",
    ),
}

_PLAIN: Final = re.compile(r"(CPU|GPU(\.\d+)?|NPU(\.\d+)?)")
_OLD: Final = re.compile(r"(CPU|GPU(?:\.\d+)?|NPU)_(FP32|FP16|BF16)")
_META: Final = ("AUTO", "HETERO", "MULTI")
_HINTS: Final = {"FP32": "f32", "FP16": "f16", "BF16": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the options come to.

    Attributes:
        device: OpenVINO's name of the device, ``CPU``, ``GPU.1``, ``AUTO:GPU,CPU``.
        precision: one of :data:`PRECISIONS`.
        properties: OpenVINO's properties for compiling.
        shapes: shapes to compile for, by input, in OpenVINO's notation.
        static: compile for each set of shapes.
        trust_int64: take int64 for granted to fit in 32 bits.
        caches: keep what is compiled in the host's cache.
    """

    device: str
    precision: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, str] = field(default_factory=dict)
    static: bool = False
    trust_int64: bool = False
    caches: bool = False

    @property
    def base_devices(self) -> tuple[str, ...]:
        """The kinds of hardware that may compute; empty when OpenVINO chooses."""
        listed = self.device.partition(":")[2] if ":" in self.device else self.device
        names = (name.partition(".")[0] for name in listed.split(","))
        return tuple(
            dict.fromkeys(
                name for name in names if name not in _META and not name.startswith("-")
            )
        )


def read_settings(
    devices: Sequence[EpDevice],
    options: Mapping[str, OptionValue],
    threads: int = 0,
) -> Settings:
    """What *options* come to on *devices*.

    Raises:
        OptionError: something in them has no meaning here; the text says what.
    """
    device, precision = _device(devices, options)
    properties: dict[str, Any] = {}
    if precision == "ACCURACY":
        properties["EXECUTION_MODE_HINT"] = "ACCURACY"
    else:
        # on processors with bf16 OpenVINO would else compute float32 in 16 bits
        properties["INFERENCE_PRECISION_HINT"] = _HINTS[precision]
    if precision in ("ACCURACY", "FP32") and device.startswith(("CPU", "GPU")):
        # else what is multiplied by quantised weights is quantised, too
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    if count := int(options["num_of_threads"]) or threads:
        properties["INFERENCE_NUM_THREADS"] = count
    if count := int(options["num_streams"]):
        properties["NUM_STREAMS"] = str(count)
    if options["cache_dir"]:
        properties["CACHE_DIR"] = str(options["cache_dir"])
    if options["model_priority"] != "DEFAULT":
        properties["MODEL_PRIORITY"] = str(options["model_priority"])
    if options["enable_opencl_throttling"]:
        if not device.startswith("GPU"):
            raise OptionError(
                "option 'enable_opencl_throttling' concerns GPUs; the device is "
                f"{device}"
            )
        properties["GPU_QUEUE_THROTTLE"] = "LOW"
    if ":" in device or device in _META:
        # threads and precision are the hardware's to know, not AUTO's
        inner = {
            name: properties.pop(name)
            for name in list(properties)
            if name in _OF_HARDWARE
        }
        listed = device.partition(":")[2].split(",")
        names = [name for name in listed if name and not name.startswith("-")]
        for name in names or ("CPU", "GPU", "NPU"):
            properties[f"DEVICE_PROPERTIES {name}"] = dict(inner)
    properties |= _load_config(str(options["load_config"]), device)
    return Settings(
        device=device,
        precision=precision,
        properties=properties,
        shapes=_read_shapes(str(options["reshape_input"])),
        static=bool(options["disable_dynamic_shapes"]),
        trust_int64=bool(options["int64_in_32_bits"]),
        caches=bool(options["cache"]),
    )


_OF_HARDWARE: Final = frozenset(
    {"INFERENCE_NUM_THREADS", "INFERENCE_PRECISION_HINT", "NUM_STREAMS"}
)


def _device(
    devices: Sequence[EpDevice], options: Mapping[str, OptionValue]
) -> tuple[str, str]:
    """OpenVINO's name of the device, and the precision."""
    written = str(options["device_type"]).strip()
    number = str(options["device_id"]).strip()
    precision = str(options["precision"])
    device = written.upper()
    if old := _OLD.fullmatch(device):
        device, implied = old[1], old[2]
        if precision not in ("FP32", implied):
            raise OptionError(
                f"option 'device_type' is {written!r}, which says {implied}, and "
                f"'precision' says {precision}"
            )
        precision = implied
    if not device and _PLAIN.fullmatch(number.upper()):
        return number.upper(), precision
    if not device:
        device = _of_devices(devices)
    if device.partition(":")[0] in _META:
        inner = [name for name in device.partition(":")[2].split(",") if name]
        bad = [name for name in inner if not _PLAIN.fullmatch(name.lstrip("-"))]
        if bad or (not inner and device != "AUTO"):
            raise OptionError(
                f"option 'device_type' is {written!r}; expected a list of CPU, GPU, "
                "GPU.1, NPU after the colon"
            )
    elif not _PLAIN.fullmatch(device):
        raise OptionError(
            f"option 'device_type' is {written!r}; expected CPU, GPU, GPU.1, NPU, "
            "AUTO:…, HETERO:…, MULTI:…, or an old form such as CPU_FP32"
        )
    if number:
        device = _with_number(device, number)
    return device, precision


def _with_number(device: str, number: str) -> str:
    if number.upper() == device:
        return device
    if not number.isdigit():
        raise OptionError(
            f"option 'device_id' is {number!r}; expected a number such as 0, or the "
            "name of a device such as GPU.1"
        )
    if _PLAIN.fullmatch(device) and "." not in device and device != "CPU":
        return f"{device}.{number}"
    if device == "CPU" and number == "0":
        return device
    raise OptionError(
        f"option 'device_id' is {number!r}, which does not go with device {device}"
    )


def _of_devices(devices: Sequence[EpDevice]) -> str:
    """The name of the first of the session's devices: they come best first."""
    kinds = [pair.device.type for pair in devices]
    return {DeviceType.CPU: "CPU", DeviceType.GPU: "GPU", DeviceType.NPU: "NPU"}[
        kinds[0]
    ]


def _load_config(text: str, device: str) -> dict[str, Any]:
    """The properties that JSON, or the file at a path, gives for *device*."""
    if not text.strip():
        return {}
    if not text.lstrip().startswith("{"):
        try:
            text = read_file(text).decode()
        except (OSError, ValueError) as error:
            raise OptionError(
                f"option 'load_config' names a file that cannot be read: {error}"
            ) from error
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option 'load_config' is not JSON: {error}") from error
    if not isinstance(tree, dict) or not all(
        isinstance(inner, dict) for inner in tree.values()
    ):
        raise OptionError(
            "option 'load_config' must be a JSON object of objects, "
            '{"CPU": {"PROPERTY": "value"}}'
        )
    known = [name for name in tree if not _PLAIN.fullmatch(name) and name not in _META]
    if known:
        raise OptionError(
            f"option 'load_config' has properties for {known[0]!r}; expected CPU, GPU, "
            "NPU, AUTO, HETERO or MULTI"
        )
    properties: dict[str, Any] = {}
    for name in dict.fromkeys((device.partition(":")[0].partition(".")[0], device)):
        properties |= tree.get(name, {})
    return properties


_SHAPE: Final = re.compile(r"\s*([^\[\]]+?)\s*\[([^\[\]]*)\]\s*(?:,|$)")
_SIZE: Final = re.compile(r"\d+|\d+\.\.\d+|\?|-1")


def _read_shapes(text: str) -> dict[str, str]:
    """``a[1,2],b[1..4]`` as shapes by input name."""
    shapes: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _SHAPE.match(text, position)
        sizes = [size.strip() for size in match[2].split(",")] if match else []
        if match is None or not all(map(_SIZE.fullmatch, filter(None, sizes))):
            raise OptionError(
                f"option 'reshape_input' is {text!r}; expected input[1,3,60,80..100],…"
            )
        shapes[match[1]] = f"[{','.join(sizes)}]"
        position = match.end()
    return shapes
