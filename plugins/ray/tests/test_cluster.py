"""Datasets on nodes that differ, fail, or are lost."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter

import numpy as np
import pytest
import ray

import onnxplug
import onnxplug_ray
from onnxplug.errors import InvalidArgument

# workers cannot import it
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

TABLE = "table (int64[N] i) => (float[N, 2] y) { y = Gather (t, i) }"

NPU = """
from onnxplug.ep import DeviceType
from onnxplug_testing import Knobs, SimulatedFactory


class NpuFactory(SimulatedFactory):
    name = "FleetExecutionProvider"

    def __init__(self):
        knobs = Knobs(
            name=self.name, device_type=DeviceType.NPU, virtual=True, device_count=1
        )
        super().__init__(knobs)
"""


@pytest.fixture(scope="module")
def fleet(nodes, tmp_path_factory):
    """The cluster with two more nodes: ``npu`` has an EP for an NPU, and ``bare`` may
    use no EP at all."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "fleet_npu-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: fleet-npu\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text(
        "[onnxplug.execution_providers]\n"
        "FleetExecutionProvider = fleet_npu:NpuFactory\n"
    )
    (folder / "fleet_npu.py").write_text(NPU)
    paths = os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(":")])
    added = [
        nodes.add(
            "npu", resources={"onnxplug/fleet": 1}, env_vars={"PYTHONPATH": paths}
        ),
        nodes.add("bare", env_vars={"ONNXPLUG_BLOCK": "cpu"}),
    ]
    yield nodes
    for node in added:
        nodes.cluster.remove_node(node)


def pool(size: int = 1):
    return ray.data.ActorPoolStrategy(size=size)


def rows(count: int, blocks: int):
    """Rows of four numbers, by *id*."""

    def numbers(batch):
        ids = batch["id"].astype(np.float32)
        return {"id": batch["id"], "x": np.repeat(ids[:, np.newaxis], 4, axis=1)}

    return ray.data.range(count, override_num_blocks=blocks).map_batches(numbers)


def test_a_survey_tells_what_each_node_has(fleet) -> None:
    found = onnxplug_ray.survey()
    by_ep = Counter(row.ep for row in found if not row.error)
    assert by_ep["CPUExecutionProvider"] == 3
    assert by_ep["FleetExecutionProvider"] == 1
    (npu,) = (row for row in found if row.ep == "FleetExecutionProvider")
    assert (npu.device_type, npu.offered) == ("npu", 1)
    assert found.nodes_with("fleet") == [npu.node_id]
    (bare,) = (row for row in found if row.error)
    assert bare.node_id not in found.nodes_with("cpu")
    assert "ONNXPLUG_BLOCK" in bare.error
    lines = str(found).splitlines()
    assert lines[0].split() == ["NODE", "EP", "VERSION", "DEVICE", "OFFERED", "STATE"]
    assert len(lines) == 1 + len(found.rows)


def test_what_no_node_offers_is_refused_at_once(fleet) -> None:
    assert onnxplug_ray.actor_options("fleet")["resources"] == {"onnxplug/fleet": 1}
    with pytest.raises(onnxplug_ray.EpNotInCluster, match="onnxplug/cuda: 1") as caught:
        onnxplug_ray.actor_options("CUDAExecutionProvider", num_gpus=1)
    assert str(caught.value).count("  node 127.0.0.1") == 4
    with pytest.raises(onnxplug_ray.EpNotInCluster, match="CPU: 64"):
        onnxplug_ray.actor_options(num_cpus=64)
    with pytest.raises(InvalidArgument):
        onnxplug_ray.actor_options(num_cpus=0)


def test_a_node_without_the_ep_fails_in_words(fleet, scale) -> None:
    model = onnxplug_ray.share(scale)
    dataset = rows(8, 1).map_batches(
        onnxplug_ray.Predictor,
        fn_constructor_kwargs={"model": model, "providers": ["fleet"]},
        compute=pool(),
        resources={"second": 1},
    )
    with pytest.raises(ray.exceptions.RayError) as caught:
        dataset.take_all()
    assert "EpNotOnNode: node 127.0.0.1" in str(caught.value)
    assert "has not the EP fleet: no installed plugin" in str(caught.value)


def test_a_policy_is_resolved_on_each_node_and_results_say_how(fleet, scale) -> None:
    model = onnxplug_ray.share(scale)
    found = {}
    for node in ("second", "npu"):
        results = (
            rows(6, 1)
            .map_batches(
                onnxplug_ray.Predictor,
                fn_constructor_kwargs={"model": model, "policy": "prefer_npu"},
                compute=pool(),
                resources={node: 1},
            )
            .take_all()
        )
        assert [row["y"].tolist() for row in results] == [
            [2.0 * n] * 4 for n in range(6)
        ]
        found[node] = {row["eps"] for row in results}
    assert found == {
        "second": {"CPUExecutionProvider"},
        "npu": {"FleetExecutionProvider"},
    }


def test_what_was_compiled_ahead_goes_with_the_model(
    fleet, scale, tmp_path, monkeypatch
) -> None:
    """To a node that has the EP, which compiles nothing then."""
    (tmp_path / "fleet_npu.py").write_text(NPU)
    monkeypatch.syspath_prepend(tmp_path)
    onnxplug.register_ep_library("fleet", "fleet_npu:NpuFactory")
    try:
        options = onnxplug.SessionOptions()
        options.add_provider("FleetExecutionProvider")
        compiler = onnxplug.ModelCompiler(options, scale)
        compiler.compile_to_file(str(tmp_path / "compiled.onnx"))
    finally:
        onnxplug.unregister_ep_library("fleet")
    model = onnxplug_ray.share(tmp_path / "compiled.onnx")
    names = [each.name for each in model.files]
    assert names == ["compiled.onnx", "compiled_FleetExecutionProvider.bin"]

    @ray.remote(num_cpus=0, resources={"npu": 1})
    def run():
        made = onnxplug.SessionOptions()
        made.add_session_config_entry("session.disable_model_compile", "1")
        predictor = onnxplug_ray.Predictor(
            model, providers=["fleet"], options=lambda: made
        )
        return predictor({"x": np.ones((2, 4), np.float32)})

    found = ray.get(run.remote(), timeout=120)
    assert found["eps"].tolist() == ["FleetExecutionProvider"] * 2
    assert (found["y"] == 2).all()


def poisoned(batch):
    """A row that the table has not, among many."""
    return {"id": batch["id"], "i": np.where(batch["id"] == 777, 99, batch["id"] % 3)}


def test_a_poisoned_row_is_found_and_named(nodes, save_model) -> None:
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    model = onnxplug_ray.share(save_model(TABLE, t=table))
    dataset = ray.data.range(2000, override_num_blocks=4).map_batches(poisoned)

    def run(**more):
        return dataset.map_batches(
            onnxplug_ray.Predictor,
            fn_constructor_kwargs={"model": model, **more},
            batch_size=256,
            compute=pool(),
            **onnxplug_ray.actor_options("cpu"),
        )

    with pytest.raises(ray.exceptions.RayError) as caught:
        run().materialize()
    text = str(caught.value)
    assert "(id=777), on node 127.0.0.1" in text
    assert "with CPUExecutionProvider" in text
    assert "index 99 is out of range" in text
    results = run(on_error="record").take_all()
    assert sorted(row["id"] for row in results) == list(range(2000))
    (wrong,) = (row for row in results if row["error"])
    assert wrong["id"] == 777
    for row in results:
        if row is not wrong:
            np.testing.assert_array_equal(row["y"], table[row["id"] % 3])


class Slow(onnxplug_ray.Predictor):
    """So slow that a node can be lost meanwhile; says where rows were run."""

    def __call__(self, batch):
        time.sleep(0.03)
        found = super().__call__(batch)
        return {**found, "node": np.full(len(found["id"]), self.node)}


@pytest.fixture
def in_order():
    """Has datasets keep the order of rows."""
    options = ray.data.DataContext.get_current().execution_options
    options.preserve_order = True
    yield
    options.preserve_order = False


def test_a_hundred_thousand_rows_outlive_a_node(nodes, in_order, scale) -> None:
    """Every row once, and in order."""
    count = 100_000
    lost, left = (
        nodes.add(name, num_cpus=2, resources={"worker": 2})
        for name in ("lost", "left")
    )
    dataset = rows(count, 200).map_batches(
        Slow,
        fn_constructor_kwargs={"model": onnxplug_ray.share(scale)},
        batch_size=500,
        compute=pool(2),
        resources={"worker": 1},
    )
    ids, ran = [], Counter()
    for batch in dataset.iter_batches(batch_size=500, batch_format="numpy"):
        ids.append(batch["id"])
        ran.update(batch["node"].tolist())
        np.testing.assert_array_equal(batch["y"][:, 0], 2.0 * batch["id"])
        if len(ids) == 10:
            nodes.cluster.remove_node(lost, allow_graceful=False)
    there = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    assert left.node_id in there
    assert lost.node_id not in there
    nodes.cluster.remove_node(left)
    np.testing.assert_array_equal(np.concatenate(ids), np.arange(count))
    # both had a part in it, and the one that was left the larger
    names = sorted(ran, key=ran.__getitem__)
    assert len(names) == 2
    assert left.node_id[:8] in names[1]
