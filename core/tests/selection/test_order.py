"""Pairs are ordered as ONNX Runtime orders them (provider_policy_context.cc)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from onnxplug.ep import EpDevice
from onnxplug.selection import order_devices

MakePair = Callable[..., EpDevice]


def assert_ordered(*expected: EpDevice, **vendor_ids: int) -> None:
    """Whatever the order they come in, they leave in the order they are given here."""
    ids = {f"{name}ExecutionProvider": number for name, number in vendor_ids.items()}
    for mixed in itertools.permutations(expected):
        assert order_devices(mixed, ids) == list(expected)


def test_npus_come_before_gpus_and_gpus_before_cpus(pair: MakePair) -> None:
    assert_ordered(pair("Z", "npu"), pair("Y", "gpu"), pair("A", "cpu"))


def test_gpus_known_to_be_discrete_come_first(pair: MakePair) -> None:
    discrete = pair("Z", "gpu", vendor="NVIDIA", Discrete="1")
    integrated = pair("A", "gpu", vendor="Intel", Discrete="0")
    unknown = pair("B", "gpu", vendor="AMD")
    assert_ordered(discrete, integrated, unknown)


def test_to_be_discrete_counts_for_gpus_alone(pair: MakePair) -> None:
    assert_ordered(pair("A", "npu"), pair("Z", "npu", Discrete="1"))


def test_a_discrete_gpu_beats_an_ep_of_the_devices_maker(pair: MakePair) -> None:
    assert_ordered(
        pair("Z", "gpu", vendor="NVIDIA", Discrete="1"),
        pair("A", "gpu", vendor="Intel", ep_vendor="Intel"),
    )


def test_the_makers_own_ep_comes_first(pair: MakePair) -> None:
    own = pair("Z", "gpu", vendor="NVIDIA", ep_vendor="NVIDIA", Discrete="1")
    other = pair("A", "gpu", vendor="NVIDIA", ep_vendor="Microsoft", Discrete="1")
    assert_ordered(own, other)


def test_makers_are_compared_by_number_as_well(pair: MakePair) -> None:
    # Linux does not tell the names of many GPUs
    own = pair("Z", "gpu", vendor_id=0x10DE, ep_vendor="NVIDIA Corporation")
    other = pair("A", "gpu", vendor_id=0x10DE, ep_vendor="Microsoft")
    assert_ordered(own, other, Z=0x10DE, A=0x1414)


def test_no_name_and_no_number_are_no_maker(pair: MakePair) -> None:
    # both are equal in nothing but that nothing is known
    assert_ordered(pair("A", "gpu"), pair("Z", "gpu"), Z=0)


def test_the_default_cpu_ep_is_last(pair: MakePair) -> None:
    cpu = pair("CPU", "cpu", vendor="Intel", ep_vendor="onnxplug")
    assert_ordered(
        pair("OpenVINO", "cpu", vendor="Intel", ep_vendor="Intel"),
        pair("Zzz", "cpu", vendor="Intel", ep_vendor="Somebody"),
        cpu,
    )


def test_ties_are_broken_by_the_eps_name(pair: MakePair) -> None:
    assert_ordered(pair("A", "gpu"), pair("B", "gpu"), pair("C", "gpu"))


def test_equal_devices_of_one_ep_stay_in_their_order(pair: MakePair) -> None:
    first = pair("CUDA", "gpu", pci_bus_id="0000:01:00.0")
    second = pair("CUDA", "gpu", pci_bus_id="0000:02:00.0")
    assert order_devices([first, second]) == [first, second]
    assert order_devices([second, first]) == [second, first]


def test_a_whole_laptop(pair: MakePair) -> None:
    """Verified with ONNX Runtime: OpenVINO beats the CPU EP on an Intel processor."""
    intel = {"vendor": "Intel", "ep_vendor": "Intel"}
    machine = [
        pair("CPU", "cpu", vendor="Intel", ep_vendor="onnxplug"),
        pair("CUDA", "gpu", vendor="NVIDIA", ep_vendor="NVIDIA", Discrete="1"),
        pair("Dml", "gpu", vendor="Intel", ep_vendor="Microsoft", Discrete="0"),
        pair("Dml", "gpu", vendor="NVIDIA", ep_vendor="Microsoft", Discrete="1"),
        pair("OpenVINO", "cpu", **intel),
        pair("OpenVINO", "gpu", Discrete="0", **intel),
        pair("OpenVINO", "npu", **intel),
    ]
    assert [
        (pair.ep_name.removesuffix("ExecutionProvider"), pair.device.vendor)
        for pair in order_devices(machine)
    ] == [
        ("OpenVINO", "Intel"),
        ("CUDA", "NVIDIA"),
        ("Dml", "NVIDIA"),
        ("OpenVINO", "Intel"),
        ("Dml", "Intel"),
        ("OpenVINO", "Intel"),
        ("CPU", "Intel"),
    ]


@pytest.mark.parametrize("count", [0, 1])
def test_few_are_ordered_as_well(pair: MakePair, count: int) -> None:
    assert len(order_devices([pair("A", "cpu")] * count)) == count
