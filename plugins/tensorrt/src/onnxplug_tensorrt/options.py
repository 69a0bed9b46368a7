"""What users may set, by ONNX Runtime's names and with its defaults.

Names are those in the binary of ONNX Runtime 1.31's TensorRT EP; ``trt_fp32_op_types``
and ``trt_fp32_nodes`` are onnxplug's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onnxplug.ep import Option

_AHEAD: Final = (
    "what a session compiled is written by onnxplug, whatever the EP: set the session "
    "config entry ep.context_enable, or run `onnxplug compile`"
)
_ENCRYPTED: Final = (
    "engines are not decrypted: that would load a library which a model's owner names; "
    "decrypt the model before it is given to the session"
)
_IN_MEMORY: Final = (
    "weights are handed to TensorRT where onnxplug has them, also for refitting"
)

_MOST: Final = (1 << 31) - 1
"""What TensorRT's integers of 32 bits hold."""

BUILD: Final[Mapping[str, Option]] = {
    "trt_max_workspace_size": Option(
        default=0,
        minimum=0,
        doc="bytes that a layer may take of the GPU's memory while it computes; 0: all",
    ),
    "trt_builder_optimization_level": Option(
        default=3,
        minimum=0,
        maximum=5,
        doc="how long TensorRT searches for fast kernels, from 0 to 5",
    ),
    "trt_auxiliary_streams": Option(
        default=-1,
        minimum=-1,
        maximum=_MOST,
        doc="how many streams an engine may use beside the run's; -1: TensorRT decides",
    ),
    "trt_sparsity_enable": Option(
        default=False,
        doc="kernels for weights of which two of four are 0 may be used where they are",
    ),
    "trt_dla_enable": Option(
        default=False,
        doc="layers run on the accelerator for deep learning that some devices have, "
        "and on the GPU where it cannot",
    ),
    "trt_dla_core": Option(
        default=0, minimum=0, doc="which of the device's deep learning accelerators"
    ),
    "trt_engine_hw_compatible": Option(
        default=False,
        doc="engines run on every GPU from Ampere on, more slowly",
    ),
    "trt_weight_stripped_engine_enable": Option(
        default=False,
        doc="engines that are kept have no weights, which are put in from the model",
    ),
    "trt_preview_features": Option(
        default="",
        doc="names of TensorRT's preview features that are turned on, with commas "
        "between them",
    ),
    "trt_tactic_sources": Option(
        default="",
        doc="libraries whose kernels may be used, or not: +EDGE_MASK_CONVOLUTIONS,"
        "-JIT_CONVOLUTIONS",
    ),
    "trt_extra_plugin_lib_paths": Option(
        default="",
        doc="paths of libraries with plugins of TensorRT's, with semicolons between "
        "them; their code is loaded into the process",
    ),
    "trt_force_sequential_engine_build": Option(
        default=False,
        compiled_in=False,
        doc="the sessions of this process build one engine at a time",
    ),
    "trt_detailed_build_log": Option(
        default=False,
        compiled_in=False,
        doc="all that TensorRT says of a build is logged, for debugging",
    ),
    "trt_build_heuristics_enable": Option(
        default=False,
        compiled_in=False,
        doc="for programs that set it for ONNX Runtime",
        ignored="TensorRT 10 removed it; lower trt_builder_optimization_level to build "
        "sooner",
    ),
}
"""How engines are built."""

PRECISION: Final[Mapping[str, Option]] = {
    "trt_fp16_enable": Option(
        default=False, doc="what is float32 in the model may be computed in float16"
    ),
    "trt_bf16_enable": Option(
        default=False, doc="what is float32 in the model may be computed in bfloat16"
    ),
    "trt_layer_norm_fp32_fallback": Option(
        default=False,
        doc="layer norms are computed in float32 where the rest is in 16 bits",
    ),
    "trt_fp32_op_types": Option(
        default="",
        doc="operators that are computed in float32 where the rest is in 16 bits, with "
        "commas between them",
    ),
    "trt_fp32_nodes": Option(
        default="",
        doc="names of nodes that are computed in float32 where the rest is in 16 bits, "
        "with commas between them",
    ),
    "trt_int8_enable": Option(
        default=False,
        compiled_in=False,
        doc="TensorRT 10 may compute with codes of 8 bits, where it chooses types or "
        "has a calibration table; what QuantizeLinear and DequantizeLinear say is "
        "always followed",
    ),
    "trt_int8_calibration_table_name": Option(
        default="",
        compiled_in=False,
        doc="the path of a file with the ranges of tensors, for TensorRT 10: "
        "calibration.flatbuffers of ONNX Runtime's",
    ),
    "trt_int8_use_native_calibration_table": Option(
        default=False,
        compiled_in=False,
        doc="that file is one that TensorRT wrote",
    ),
}
"""In which types is computed."""

CACHES: Final[Mapping[str, Option]] = {
    "trt_engine_cache_enable": Option(
        default=False,
        compiled_in=False,
        doc="engines are kept on disk for later sessions and processes",
    ),
    "trt_engine_cache_path": Option(
        default="",
        compiled_in=False,
        doc="the folder below which engines and times are kept if they are, which may "
        "be relative to the working folder; empty: onnxplug's own cache",
    ),
    "trt_engine_cache_prefix": Option(
        default="",
        compiled_in=False,
        doc="what the names of files with engines begin with; engines of another "
        "prefix are not found",
    ),
    "trt_timing_cache_enable": Option(
        default=False,
        compiled_in=False,
        doc="how long kernels took is kept on disk, so that later builds need not "
        "measure it again",
    ),
    "trt_timing_cache_path": Option(
        default="",
        compiled_in=False,
        doc="the folder below which times are kept if they are, as of "
        "trt_engine_cache_path; empty: that one",
    ),
    "trt_force_timing_cache": Option(
        default=False,
        compiled_in=False,
        doc="times that were measured on another GPU are used, too",
    ),
    "trt_engine_decryption_enable": Option(default=False, refused=_ENCRYPTED),
    "trt_engine_decryption_lib_path": Option(default="", refused=_ENCRYPTED),
    "trt_dump_ep_context_model": Option(default=False, refused=_AHEAD),
    "trt_ep_context_file_path": Option(default="", refused=_AHEAD),
    "trt_ep_context_embed_mode": Option(default=0, refused=_AHEAD),
    "trt_onnx_model_folder_path": Option(
        default="",
        compiled_in=False,
        doc="for programs that set it for ONNX Runtime",
        ignored=_IN_MEMORY,
    ),
    "trt_onnx_bytestream": Option(
        default=0,
        compiled_in=False,
        doc="for programs that set it for ONNX Runtime",
        ignored=_IN_MEMORY,
    ),
    "trt_onnx_bytestream_size": Option(
        default=0,
        compiled_in=False,
        doc="for programs that set it for ONNX Runtime",
        ignored=_IN_MEMORY,
    ),
    "trt_external_data_bytestream": Option(
        default=0,
        compiled_in=False,
        doc="for programs that set it for ONNX Runtime",
        ignored=_IN_MEMORY,
    ),
    "trt_external_data_bytestream_size": Option(
        default=0,
        compiled_in=False,
        doc="for programs that set it for ONNX Runtime",
        ignored=_IN_MEMORY,
    ),
    "trt_load_user_initializer": Option(
        default=False,
        compiled_in=False,
        doc="for programs that set it for ONNX Runtime",
        ignored=f"it is always on: {_IN_MEMORY}",
    ),
}
"""What is kept, and where from it is restored."""

SHARE: Final[Mapping[str, Option]] = {
    "trt_min_subgraph_size": Option(
        default=1,
        minimum=1,
        compiled_in=False,
        doc="partitions of fewer nodes are left to other EPs",
    ),
    "trt_max_partition_iterations": Option(
        default=1000,
        minimum=1,
        compiled_in=False,
        doc="how often TensorRT's parser is asked for a session, each time without the "
        "nodes that it did not take before",
    ),
    "trt_op_types_to_exclude": Option(
        default="",
        compiled_in=False,
        doc="operators that are left to other EPs, with commas between them",
    ),
    "trt_dump_subgraphs": Option(
        default=False,
        compiled_in=False,
        doc="each partition is written to the working folder as a model, for debugging",
    ),
}
"""Which part of a model is TensorRT's."""

RUN: Final[Mapping[str, Option]] = {
    "device_id": Option(
        default=0,
        minimum=-1,
        compiled_in=False,
        doc="which GPU, as CUDA counts those that it sees; -1: that of the session's "
        "device",
    ),
    "has_user_compute_stream": Option(
        default=False,
        compiled_in=False,
        doc="for programs that set it beside user_compute_stream; alone it is refused",
    ),
    "user_compute_stream": Option(
        default=0,
        minimum=0,
        compiled_in=False,
        doc="the address of the CUDA stream to work on; 0: the host's own",
    ),
    "trt_profile_min_shapes": Option(
        default="",
        doc="the smallest shapes of inputs whose sizes are open: ids:1x1,mask:1x1",
    ),
    "trt_profile_opt_shapes": Option(
        default="", doc="the shapes that engines are to be fastest for"
    ),
    "trt_profile_max_shapes": Option(default="", doc="the largest shapes"),
    "trt_context_memory_sharing_enable": Option(
        default=False,
        compiled_in=False,
        doc="what engines need while they compute is taken from the arena of the CUDA "
        "EP, run by run, and not by each for itself",
    ),
    "trt_cuda_graph_enable": Option(
        default=False,
        doc="bound runs are captured as a CUDA graph, and launched again",
    ),
}
"""How engines run."""

OPTIONS: Final[Mapping[str, Option]] = {
    **RUN,
    **SHARE,
    **PRECISION,
    **BUILD,
    **CACHES,
}
