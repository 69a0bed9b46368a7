"""Models and compiled code that nodes share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import ray

import onnxplug_ray
from onnxplug.errors import ModelError, ModelNotFound
from onnxplug_ray.artefacts import Artefacts
from onnxplug_ray.opening import open_model

# workers cannot import it
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

PERCEPTRON = """perceptron (float[N, 64] x) => (float[N, 8] y) {
    h = MatMul (x, a)
    r = Relu (h)
    y = MatMul (r, b)
}"""


@ray.remote(num_cpus=0)
class Opener:
    """Opens a model on its node, and tells what happened."""

    def open(self, model):
        from onnxplug.authoring import entries
        from onnxplug_ray import artefacts

        self.stored, self.installed = [], 0
        store, install = entries.Cache.store, artefacts._install

        def noting(cache, name, *parts):
            self.stored.append((cache.folder.name, name))
            return store(cache, name, *parts)

        def counting(found):
            install(found)
            self.stored.clear()
            self.installed += len(found)

        entries.Cache.store, artefacts._install = noting, counting
        self.model = open_model(model, None, None, onnxplug_ray_options)
        folder = Path(self.model.source).parent
        status = os.stat(self.model.source)
        return {
            "node": ray.get_runtime_context().get_node_id(),
            "path": self.model.source,
            "files": sorted(each.name for each in folder.iterdir()),
            "written": (status.st_ino, status.st_mtime_ns),
        }

    def run(self):
        x = np.ones((4, 64), np.float32)
        with self.model.once("batch"):
            (y,) = self.model.session.run(None, {"x": x})
        code = [each for each in self.stored if each[0] == "onnxplug-cpu"]
        return y, len(code), self.installed


def onnxplug_ray_options():
    import onnxplug

    return onnxplug.SessionOptions()


@pytest.fixture(scope="session")
def perceptron(tmp_path_factory):
    """A model with weights in a file beside it."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]>\n{PERCEPTRON}'
    )
    for name, shape in (("a", (64, 64)), ("b", (64, 8))):
        weight = rng.random(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    path = tmp_path_factory.mktemp("perceptron") / "perceptron.onnx"
    onnx.save(
        model,
        path,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return path


def opener(node: str):
    return Opener.options(resources={node: 1}).remote()


def test_a_model_goes_to_each_node_once_with_its_weights(nodes, perceptron) -> None:
    model = onnxplug_ray.share(perceptron)
    assert [each.name for each in model.files] == ["perceptron.onnx", "weights.bin"]
    actors = [opener(name) for name in ("head", "second", "second")]
    found = ray.get([actor.open.remote(model) for actor in actors], timeout=120)
    head, second, beside = found
    assert head["node"] != second["node"] == beside["node"]
    assert str(nodes.folder / "second") in second["path"]
    assert second["path"] == beside["path"] != head["path"]
    assert second["written"] == beside["written"]
    assert head["files"] == ["perceptron.onnx", "weights.bin"]
    results = ray.get([actor.run.remote() for actor in actors], timeout=120)
    expected = run_here(perceptron)
    for y, _, _ in results:
        np.testing.assert_allclose(y, expected, rtol=1e-5)


def run_here(path):
    import onnxplug

    with onnxplug.InferenceSession(str(path)) as session:
        return session.run(None, {"x": np.ones((4, 64), np.float32)})[0]


def test_code_is_compiled_once_for_a_kind_of_machine(nodes, save_model) -> None:
    """On one node, and not on another with an empty cache."""
    weights = {"a": np.ones((64, 40), np.float32), "b": np.ones((40, 8), np.float32)}
    model = onnxplug_ray.share(save_model(PERCEPTRON, **weights))
    made = []
    for name in ("second", "head"):
        actor = opener(name)
        ray.get(actor.open.remote(model), timeout=120)
        y, compiled, installed = ray.get(actor.run.remote(), timeout=120)
        np.testing.assert_allclose(y, np.full((4, 8), 64 * 40), rtol=1e-5)
        made.append((compiled > 0, installed > 0))
    assert made == [(True, False), (False, True)]
    assert len(ray.get(model.store.made.remote())) == 2


def test_who_fails_lets_another_compile(nodes, scale) -> None:
    model = onnxplug_ray.share(scale)
    first, second = (Artefacts(model.store, "session") for _ in range(2))
    with pytest.raises(RuntimeError, match="fails"), first.once("session"):
        raise RuntimeError("it fails")
    with second.once("session"):
        pass
    assert len(ray.get(model.store.made.remote())) == 1


def test_what_is_no_model_is_not_shared(nodes, tmp_path) -> None:
    with pytest.raises(ModelNotFound):
        onnxplug_ray.share(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="expected a path, bytes"):
        onnxplug_ray.share(3)
    with pytest.raises(ModelError):
        onnxplug_ray.share(b"no model")


def test_a_store_that_is_gone_is_an_error_in_words(nodes, scale) -> None:
    model = onnxplug_ray.share(Path(scale).read_bytes())
    model.drop()
    with pytest.raises(onnxplug_ray.ModelNotShared, match="its store is gone"):
        model.keep()


def test_a_named_store_is_one(nodes, scale) -> None:
    model = onnxplug_ray.share(scale, name="scale")
    with pytest.raises(ValueError, match="a shared model called 'scale'"):
        onnxplug_ray.share(scale, name="scale")
    model.drop()
