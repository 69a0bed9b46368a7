"""The options of the torch EP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record

OPTIONS: Final[Mapping[str, ep.Option]] = {
    "device": ep.Option(
        default="",
        doc="Which of torch's devices, such as cuda:1 or cpu; empty: that of the "
        "first pair that is an accelerator, else the processor.",
    ),
    "compile": ep.Option(
        default=False,
        doc="Compile each partition by torch.compile, on its first runs.",
        compiled_in=False,
    ),
    "compile_mode": ep.Option(
        default="",
        choices=("", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
        doc="The mode of torch.compile; empty: torch's default.",
        compiled_in=False,
    ),
    "cuda_graphs": ep.Option(
        default=False,
        aliases=("enable_cuda_graph",),
        doc="Capture runs on bound values as CUDA graphs, and launch them again.",
        compiled_in=False,
    ),
    "channels_last": ep.Option(
        default=False,
        doc="Keep images and filters with their channels last in memory.",
    ),
    "allow_tf32": ep.Option(
        default=False,
        doc="Let products and convolutions of float32 on GPUs round to TF32.",
    ),
    "dtype": ep.Option(
        default="float32",
        choices=("float32", "float16", "bfloat16"),
        doc="The element type in which what is float32 in the model is computed; "
        "inputs and outputs of the model stay as they are.",
    ),
    "num_threads": ep.Option(
        default=0,
        minimum=0,
        doc="torch's threads within an operator, for the whole process; 0: the "
        "session's intra_op_num_threads, or else as torch has it.",
        compiled_in=False,
    ),
    "user_compute_stream": ep.Option(
        default=0,
        minimum=0,
        doc="The native handle of the stream to work on; 0: the host's own.",
        compiled_in=False,
    ),
}


class Settings(Record):
    """Options of one session."""

    device: str
    compile: bool
    compile_mode: str
    cuda_graphs: bool
    channels_last: bool
    allow_tf32: bool
    dtype: str
    num_threads: int

    def narrow(self, torch: Any) -> Any:
        """What takes the place of float32, as a dtype of torch's; ``None``: nothing."""
        return None if self.dtype == "float32" else getattr(torch, self.dtype)


def read_settings(options: Mapping[str, ep.OptionValue], threads: int) -> Settings:
    """What *options* say, for a session of that many threads.

    Raises:
        OptionError: they contradict each other.
    """
    if options["compile_mode"] and not options["compile"]:
        raise ep.OptionError("option 'compile_mode' has no effect without 'compile'")
    if options["cuda_graphs"] and options["compile"]:
        raise ep.OptionError(
            "options 'compile' and 'cuda_graphs' exclude each other; compile_mode "
            "reduce-overhead has graphs of its own"
        )
    return Settings(
        str(options["device"]),
        bool(options["compile"]),
        str(options["compile_mode"]),
        bool(options["cuda_graphs"]),
        bool(options["channels_last"]),
        bool(options["allow_tf32"]),
        str(options["dtype"]),
        int(options["num_threads"]) or threads,
    )
