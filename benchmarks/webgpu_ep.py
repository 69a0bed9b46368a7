"""Compares the EP on WebGPU with tinygrad's, on the same adapter, and the CPU EP.

    python plugins/webgpu/tools/with_lavapipe.py FOLDER \\
        python benchmarks/webgpu_ep.py --clock cpu [--models NAME …] …

The arguments are those of ``compare.py``; ``--option`` is for the EP on WebGPU.
tinygrad runs on Dawn: it needs the distributions tinygrad and dawn-python, and
WEBGPU_PATH, the path of Dawn's library in the latter.  Networks are those of
``torch_ep.py`` with smaller inputs, and fewer layers where that is not enough.  Errors
are against what PyTorch computes in float64.

On an adapter of software, such as Mesa's lavapipe, times say how much work there is in
the kernels, how many there are, and how well this driver's compiler does with them;
they say nothing of a GPU, where other kernels may be the faster ones.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import partial

from comparison import Files, Runtime, main

OURS = (
    Runtime("onnxplug on WebGPU", "onnxplug-webgpu"),
    Runtime("onnxplug on the CPU", "onnxplug"),
)
PEERS = (Runtime("tinygrad", "tinygrad"),)

if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        sys.exit("webgpu_ep.py needs PyTorch: make .venv/webgpu.stamp")
    from zoo import SEQUENCES, ZOO, exported

    image = {"image": (1, 3, 64, 64)}
    bert = SEQUENCES["bert-base"]
    whisper = ZOO["whisper-encoder"]
    networks = {
        "resnet50": ZOO["resnet50"]._replace(inputs=image),
        "mobilenetv2": ZOO["mobilenetv2"]._replace(inputs=image),
        "unet": ZOO["unet"]._replace(inputs=image),
        "whisper-encoder": whisper._replace(
            build=partial(whisper.build, encoder_layers=2, max_source_positions=100),
            inputs={"mel": (1, 80, 200)},
        ),
        "bert-base": bert._replace(
            build=partial(bert.build, num_hidden_layers=2),
            inputs={"input_ids": (1, 32)},
        ),
    }
    main(
        __doc__,
        {
            name: lambda _, name=name, network=network: Files(
                *exported(network, f"{name}-webgpu")
            )
            for name, network in networks.items()
        },
        ours=OURS,
        peers=PEERS,
    )
