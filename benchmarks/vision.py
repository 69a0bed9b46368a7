"""Compares onnxplug with ONNX Runtime and OpenVINO in f32, on networks for pictures
and sound that PyTorch exports.

    python benchmarks/vision.py [--models NAME …] [--threads 1,2] …

The arguments are those of ``compare.py``, as is the way it measures; errors are
against what PyTorch computes in float64.  Networks are exported once, into
``$XDG_CACHE_HOME/onnxplug-benchmarks`` or ``~/.cache/onnxplug-benchmarks``.
"""

from __future__ import annotations

import importlib.util
import sys

from comparison import Files, main

if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        sys.exit("vision.py needs PyTorch: make .venv/exporters.stamp")
    from zoo import ZOO, exported

    main(
        __doc__,
        {
            name: lambda _, name=name, network=network: Files(*exported(network, name))
            for name, network in ZOO.items()
        },
    )
