"""The smallest EP."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import numpy as np
import pluggy
import pytest

from onnxplug import ep
from onnxplug.plugins import hookspecs
from onnxplug_testing import ToyExecutionProvider, ToyFactory, toy

X = np.array([1, -2, 3, -4], np.float32)


@dataclass
class Host:
    version: str = "0"
    spi_version: tuple[int, int] = ep.SPI_VERSION
    logger: logging.Logger = field(default_factory=logging.getLogger)


def test_the_module_is_a_plugin() -> None:
    plugins = pluggy.PluginManager("onnxplug")
    plugins.add_hookspecs(hookspecs)
    plugins.register(toy)
    plugins.check_pending()
    (factory,) = plugins.hook.onnxplug_ep_factories(host=Host())
    assert isinstance(factory, ToyFactory)


def test_it_drives_cpus_only() -> None:
    cpu = ep.HardwareDevice(type=ep.DeviceType.CPU, vendor="one")
    gpu = ep.HardwareDevice(type=ep.DeviceType.GPU, vendor="two")
    (pair,) = ToyFactory().supported_devices([gpu, cpu])
    assert pair.device is cpu
    assert pair.ep_name == "ToyExecutionProvider"


def test_it_computes_what_it_claims(make_graph, whole) -> None:
    graph = make_graph(
        [
            ("Add", ("x", "k"), ("a",)),
            ("Mul", ("a", "x"), ("b",)),
            ("Sub", ("b", "k"), ("c",)),
            ("Relu", ("c",), ("y",)),
        ],
        inputs=["x"],
        outputs=["y"],
        constants={"k": np.array(2, np.float32)},
    )
    provider = ToyExecutionProvider()
    report = provider.get_capability(graph)
    assert report.claims[0].nodes == (0, 1, 2, 3)
    (y,) = provider.compile(whole(graph)).run([X], [None], None)
    np.testing.assert_array_equal(y, np.maximum((X + 2) * X - 2, 0))


def test_arrays_of_rank_0_stay_arrays(make_graph, whole) -> None:
    graph = make_graph([("Add", ("x", "x"), ("y",))], inputs=["x"], outputs=["y"])
    (y,) = (
        ToyExecutionProvider()
        .compile(whole(graph))
        .run([X[0:1].reshape(())], [None], None)
    )
    assert isinstance(y, np.ndarray)
    assert y == 2


@pytest.mark.parametrize(
    ("node", "dtypes", "opset", "code", "detail"),
    [
        (("Abs", ("x",), ("y",)), {}, 21, "op", "Abs; runs Add, Mul, Relu, Sub"),
        (("com.acme.Add", ("x", "x"), ("y",)), {}, 21, "op", "Add; runs"),
        (("Add", ("x", "x"), ("y",)), {}, 6, "opset", "Add-6; broadcasts since"),
        (
            ("Add", ("x", "x"), ("y",)),
            {"x": ep.DataType.INT8},
            21,
            "dtype",
            "'x' is int8; takes float32",
        ),
        (("Relu", ("x",), ("y",)), {"x": None}, 21, "dtype", "'x' is of unknown type"),
    ],
)
def test_it_says_why_it_refuses(make_graph, node, dtypes, opset, code, detail) -> None:
    graph = make_graph([node], inputs=["x"], outputs=["y"], dtypes=dtypes, opset=opset)
    (refusal,) = ToyExecutionProvider().get_capability(graph).refusals
    assert refusal.reason.code == code
    assert detail in refusal.reason.detail
