"""Compares EPs made for ONNX Runtime, hosted by onnxplug, and by ONNX Runtime itself.

    python benchmarks/native_eps.py LIBRARY [--models NAME …] [--threads 1] …

LIBRARY is ``nxrt``, of the distribution nxrt-ep-cpu, ``openvino``, of
onnxruntime-ep-openvino, which drives processors of Intel only, or ``webgpu``, of
onnxruntime-ep-webgpu, which needs an adapter: on a machine without one run the script
under ``plugins/native/tools/with_adapter.py``, and read what ``webgpu_ep.py`` says of
software.  Both runtimes load the same file, and nodes are not refused for what was
measured.  With WebGPU's library our own EP on WebGPU is compared, too, if
onnxplug-webgpu is installed.  The other arguments are those of ``compare.py``.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from comparison import Files, Runtime, main


class Library(NamedTuple):
    """A library and its EP.

    Attributes:
        distribution, module: what has it.
        ep: the name of its EP.
        models: those that it takes whole.
        own: the distribution of our own EP of that name, if there is one.
    """

    distribution: str
    module: str
    ep: str
    models: tuple[str, ...]
    own: str = ""

    @property
    def path(self) -> str:
        """The file."""
        return str(importlib.import_module(self.module).get_library_path())


LIBRARIES: Final = {
    "nxrt": Library("nxrt-ep-cpu", "nxrt_ep_cpu", "cpu_ep", ("one node", "mlp")),
    "openvino": Library(
        "onnxruntime-ep-openvino",
        "onnxruntime_ep_openvino",
        "OpenVINOExecutionProvider",
        ("one node", "mlp", "resnet50", "bert"),
    ),
    "webgpu": Library(
        "onnxruntime-ep-webgpu",
        "onnxruntime_ep_webgpu",
        "WebGpuExecutionProvider",
        ("a CNN", "a perceptron", "a transformer's block"),
        own="onnxplug-webgpu",
    ),
}

SMALL: Final = Path(__file__).parents[1] / "plugins" / "native" / "vendor_tests"
"""Where the networks are that WebGPU's library is tested with."""


def prepare(
    runtime: str, path: str, feeds: Mapping[str, Any], threads: int, name: str
) -> Callable[[], Any]:
    """Load a model with the EP of library *name* alone; a function that runs it."""
    library = LIBRARIES[name]
    if library.own:
        # of two EPs of one name neither would be used
        os.environ["ONNXPLUG_PLUGINS"] = f"cpu,{name}@{library.distribution}"
    module = importlib.import_module(runtime)
    given = {"onnxplug.trust_library": "1"} if runtime == "onnxplug" else {}
    if name == "openvino":
        config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
        given["load_config"] = json.dumps({"CPU": {k: str(config[k]) for k in config}})
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    # onnxplug finds what wheels called onnxruntime-ep-… have, and registers it itself
    if library.ep not in module.get_available_providers():
        module.register_execution_provider_library(name, library.path)
    devices = [each for each in module.get_ep_devices() if each.ep_name == library.ep]
    if not devices:
        raise RuntimeError(f"{library.ep} of {library.path} drives nothing here")
    options.add_provider_for_devices(devices[:1], given)
    session = module.InferenceSession(path, options)
    return lambda: session.run(None, feeds)


def own_ep(library: Library) -> list[Runtime]:
    """Our own EP of that name; none if there is none, or it is not installed."""
    if not library.own:
        return []
    if importlib.util.find_spec(library.own.replace("-", "_")) is None:
        print(f"{library.own} is not installed, and left out")
        return []
    return [Runtime("our own EP", library.own)]


def adapter() -> dict[str, str]:
    """What WebGPU runs on here, as our own EP's library says it, if that is there."""
    if importlib.util.find_spec("wgpu") is None:
        return {"adapter": "not known: wgpu is not installed"}
    from webgpu_ep import adapter as found

    return found()


def write(model: str, folder: Path) -> Files:
    """A model and its input."""
    files = Files(folder / f"{model}.onnx", folder / f"{model}.npz")
    if model in LIBRARIES["webgpu"].models:
        np.savez(files.feeds, x=_small(model, files.model))
    else:
        from openvino_overhead import build

        np.savez(files.feeds, x=build(model, files.model))
    return files


def _small(name: str, path: Path) -> Any:
    """Write a network of the tests to *path*; an input for it."""
    sys.path.insert(0, str(SMALL))
    import onnx
    from on_webgpu import networks

    model = dict(networks())[name]
    onnx.save(model, path)
    (given,) = model.graph.input
    shape = [each.dim_value for each in given.type.tensor_type.shape.dim]
    return np.random.default_rng(1).standard_normal(shape, np.float32)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in LIBRARIES:
        sys.exit(f"{__doc__}\nname one of {', '.join(LIBRARIES)}")
    name = sys.argv[1]
    library = LIBRARIES[name]
    if importlib.util.find_spec(library.module) is None:
        sys.exit(f"native_eps.py needs the library: pip install {library.distribution}")
    main(
        __doc__,
        {model: functools.partial(write, model) for model in library.models},
        sys.argv[2:],
        ours=[
            Runtime("onnxplug", "onnxplug-native", {"library": name}),
            *own_ep(library),
        ],
        peers=[Runtime("onnxruntime", "onnxruntime", {"library": name})],
        of_the_machine=adapter if name == "webgpu" else dict,
    )
