"""A cluster of several nodes on this machine, and models for it."""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

# before Ray is imported: it reports to nobody, listens on loopback as it does on other
# systems than Linux, and answers to none but these processes
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import ray
        import ray.serve
        from ray.cluster_utils import Cluster

        import onnxplug_ray  # noqa: F401
except ImportError as error:
    if "ray" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
        raise
    collect_ignore_glob = ["*"]
    missing = error

HOST = "127.0.0.1"
STORE = 100 << 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let Ray use what of its own it will not have for ever."""
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker(
                pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
            )


class Nodes:
    """A cluster on loopback.

    Attributes:
        cluster: Ray's.
        folder: has a folder for the cache of each node.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = Cluster()

    def add(self, name: str, num_cpus: int = 1, **more: Any) -> Any:
        """A node, whose cache is in a folder called as it is."""
        cache = self.folder / name
        cache.mkdir(mode=0o700, exist_ok=True)
        return self.cluster.add_node(
            node_ip_address=HOST,
            num_cpus=num_cpus,
            object_store_memory=STORE,
            include_dashboard=False,
            resources={name: 100, **more.pop("resources", {})},
            env_vars={"ONNXPLUG_CACHE_DIR": str(cache), **more.pop("env_vars", {})},
            **more,
        )


@contextmanager
def started(folder: Path) -> Iterator[Nodes]:
    """A context in which there is a cluster of one node, ``head``, and this process is
    its driver."""
    nodes = Nodes(folder)
    try:
        try:
            nodes.add("head", resources={"onnxplug/cpu": 1})
        except Exception as error:
            # Ray gives it 30 s, which a machine with other work may exceed
            if "timed out during startup" not in str(error):
                raise
            nodes.cluster = Cluster()
            nodes.add("head", resources={"onnxplug/cpu": 1})
        ray.init(nodes.cluster.address, logging_level="warning", log_to_driver=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Ray's own settings
            context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        yield nodes
    finally:
        ray.shutdown()
        nodes.cluster.shutdown()


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A cluster of two nodes, ``head`` and ``second``, of one core each."""
    with started(tmp_path_factory.mktemp("nodes")) as found:
        found.add("second", resources={"onnxplug/cpu": 1})
        yield found


def save(text: str, path: Path, **weights: Any) -> Path:
    """Write the model that is the *text* of a graph."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{text}')
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


@pytest.fixture
def save_model(tmp_path: Path) -> Callable[..., str]:
    """Writes models to the test's folder."""

    def save_in_folder(text: str, name: str = "model.onnx", **weights: Any) -> str:
        return str(save(text, tmp_path / name, **weights))

    return save_in_folder


@pytest.fixture
def scale(save_model: Callable[..., str]) -> str:
    """A model that doubles rows of four numbers."""
    text = "scale (float[N, 4] x) => (float[N, 4] y) { y = Mul (x, s) }"
    return save_model(text, s=np.float32(2))
