r"""Compares the EP on WebGPU with tinygrad's, on the same adapter, and the CPU EP.

    python plugins/webgpu/tools/with_lavapipe.py FOLDER \\
        python benchmarks/webgpu_ep.py --clock cpu --no-start [--models NAME …] …

The arguments are those of ``compare.py``; ``--option`` is for the EP on WebGPU.
tinygrad runs on Dawn: it needs the distributions tinygrad and dawn-python, and
WEBGPU_PATH, the path of Dawn's library in the latter.  Networks are those of
``torch_ep.py`` with smaller inputs, and fewer layers where that is not enough, and a
decoder's block with weights of 4 bits.  Errors are against what PyTorch computes in
float64.  Of each, the report has what a run does on the device, and which share of the
nodes and of the arithmetic that is.

On an adapter of software, such as Mesa's lavapipe, times say how much work there is in
the kernels, how many there are, and how well this driver's compiler does with them;
they say nothing of a GPU, where other kernels may be the faster ones.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from comparison import Files, Runtime, main
from comparison.arithmetic import shares

EP: Final = "WebGpuExecutionProvider"
OURS: Final = (
    Runtime("onnxplug on WebGPU", "onnxplug-webgpu"),
    Runtime("onnxplug on the CPU", "onnxplug"),
)
PEERS: Final = (Runtime("tinygrad", "tinygrad"),)


def on_the_device(files: Files) -> dict[str, float]:
    """What a run of a model does there, and which share of the model that is."""
    import onnxplug
    from onnxplug_cli.profile import read_profile

    with np.load(files.feeds) as stored:
        feeds = dict(stored)
    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "trace")
        session = onnxplug.InferenceSession(
            files.model, options, providers=[EP, "CPUExecutionProvider"]
        )
        for _ in range(2):
            session.run(None, feeds)
        profile = read_profile(Path(session.end_profiling()), 1)
    launches = [row for row in profile.rows if row.provider == EP and row.bytes]
    return {
        "launches": sum(row.calls for row in launches),
        "nbytes": sum(row.bytes for row in launches),
        "flops": sum(row.flops for row in launches),
        **{
            f"share of {name}": share
            for name, share in shares(files.model, feeds, EP)._asdict().items()
        },
    }


def _block(folder: Path) -> Files:
    """A layer of Llama over a token, of half the width, in 4 bits."""
    from models.quantised import llama_in_4_bits

    case = llama_in_4_bits(np.float32, 31, width=512, heads=8, groups=2, inner=1408)
    model, feeds = folder / "llama-4-bits.onnx", folder / "llama-4-bits.npz"
    onnx.save(case.model, model)
    np.savez(feeds, **case.feeds)
    return Files(model, feeds)


def networks() -> dict[str, Callable[[Path], Files]]:
    """What writes their files, by name."""
    from zoo import SEQUENCES, ZOO, cache_of, exported

    image = {"image": (1, 3, 64, 64)}
    bert, gpt2 = SEQUENCES["bert-base"], SEQUENCES["gpt2-decode"]
    whisper = ZOO["whisper-encoder"]
    chosen = {
        "resnet50": ZOO["resnet50"]._replace(inputs=image),
        "mobilenetv2": ZOO["mobilenetv2"]._replace(inputs=image),
        "unet": ZOO["unet"]._replace(inputs=image),
        "whisper-encoder": whisper._replace(
            build=partial(whisper.build, encoder_layers=2, max_source_positions=100),
            inputs={"mel": (1, 80, 200)},
        ),
        "bert-base": bert._replace(
            build=partial(bert.build, num_hidden_layers=2),
            inputs={"input_ids": (2, 16)},
        ),
        "gpt2-decode": gpt2._replace(
            build=partial(gpt2.build, layers=2, words=8192),
            inputs=cache_of(31, layers=2),
            words=8192,
        ),
    }
    found: dict[str, Callable[[Path], Files]] = {
        name: lambda _, name=name, network=network: Files(
            *exported(network, f"{name}-webgpu")
        )
        for name, network in chosen.items()
    }
    return found | {"llama-4-bits": _block}


def adapter() -> dict[str, str]:
    """Which one the EP uses."""
    from onnxplug_webgpu.adapters import find_adapters, import_wgpu

    first = find_adapters(import_wgpu())[0]
    return {"adapter": f"{first}, {first.driver}"}


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        sys.exit("webgpu_ep.py needs PyTorch: make .venv/webgpu.stamp")
    main(
        __doc__,
        networks(),
        ours=OURS,
        peers=PEERS,
        of_a_model=on_the_device,
        of_the_machine=adapter,
    )
