"""The simulated EP's factory: devices, options, what sessions share, and failures."""

from __future__ import annotations

import itertools

import pluggy
import pytest

from onnxplug import ep
from onnxplug.ep import DeviceType, HardwareDevice
from onnxplug.plugins import hookspecs
from onnxplug_testing import (
    Knobs,
    SimulatedFactory,
    SimulatedFailure,
    SimulatedPlugin,
    Stage,
)

DEVICE = ep.MemoryKind.DEVICE
HERE = ep.MemoryLocation("simulated", 0)
GPUS = [
    HardwareDevice(type=DeviceType.CPU, vendor="one"),
    HardwareDevice(type=DeviceType.GPU, vendor="two", device_id=2),
    HardwareDevice(type=DeviceType.GPU, vendor="three", device_id=3),
]


def load(plugin: SimulatedPlugin) -> list[ep.EpFactory]:
    plugins = pluggy.PluginManager("onnxplug")
    plugins.add_hookspecs(hookspecs)
    plugins.register(plugin)
    plugins.check_pending()
    return plugins.hook.onnxplug_ep_factories(host=None)


def test_the_plugin_gives_its_one_factory() -> None:
    plugin = SimulatedPlugin()
    assert load(plugin) == [plugin.factory]


def test_loading_fails_on_demand() -> None:
    with pytest.raises(SimulatedFailure, match="told to fail at load"):
        load(SimulatedPlugin(Knobs(fail_at=Stage.LOAD)))


# devices


def test_its_own_devices_are_virtual() -> None:
    factory = SimulatedFactory(Knobs(device_type=DeviceType.GPU, device_count=3))
    pairs = list(factory.supported_devices(GPUS))
    assert [pair.device.device_id for pair in pairs] == [0, 1, 2]
    assert {pair.device.metadata["is_virtual"] for pair in pairs} == {"1"}
    assert {pair.device.type for pair in pairs} == {DeviceType.GPU}
    assert str(pairs[1]) == "SimulatedExecutionProvider on gpu (simulated gpu 1)"


@pytest.mark.parametrize(("count", "expected"), [(1, ["two"]), (9, ["two", "three"])])
def test_it_can_take_devices_of_the_host(count: int, expected: list[str]) -> None:
    knobs = Knobs(device_type=DeviceType.GPU, device_count=count, virtual=False)
    pairs = SimulatedFactory(knobs).supported_devices(GPUS)
    assert [pair.device.vendor for pair in pairs] == expected


def test_it_refuses_devices_of_the_host() -> None:
    knobs = Knobs(
        device_type=DeviceType.GPU,
        virtual=False,
        refused={DeviceType.GPU: ("too small", "buy a larger one")},
    )
    answers = list(SimulatedFactory(knobs).supported_devices(GPUS))
    gpus = [device for device in GPUS if device.type is DeviceType.GPU]
    assert answers == [
        ep.RefusedDevice(device=gpu, reason="too small", remedy="buy a larger one")
        for gpu in gpus
    ]


def test_pairs_carry_metadata_and_costs() -> None:
    costs = ep.Costs(seconds_per_copy=1e-3)
    (pair,) = SimulatedFactory(Knobs(costs=costs)).supported_devices([])
    assert pair.metadata == {"version": "0.1.0", "ordinal": "0"}
    assert pair.costs == costs
    assert pair.ep_vendor == "onnxplug"


def test_looking_for_devices_fails_on_demand() -> None:
    factory = SimulatedFactory(Knobs(fail_at=Stage.DEVICES))
    with pytest.raises(SimulatedFailure, match="fail at devices"):
        factory.supported_devices([])


# EPs


class Session:
    """A session, as far as a factory asks it."""

    def __init__(self, factory: SimulatedFactory) -> None:
        self.context = factory.memory_spaces.create_context


def test_an_ep_works_on_the_first_device_given() -> None:
    factory = SimulatedFactory(Knobs(device_count=3))
    pairs = list(factory.supported_devices([]))
    provider = factory.create(pairs[1:], {"tag": "left"}, Session(factory))
    assert provider.location == ep.MemoryLocation("simulated", 1)
    assert provider.options == {"tag": "left"}
    assert factory.created == [provider]
    assert factory.context(1).location == provider.location


def test_an_ep_can_work_in_the_memory_of_another() -> None:
    owner = SimulatedFactory()
    guest = SimulatedFactory(Knobs(name="GuestExecutionProvider", shares="simulated"))
    assert (owner.memory_spaces.owned, guest.memory_spaces.owned) == (
        {"simulated"},
        frozenset(),
    )
    (pair,) = guest.supported_devices([])
    provider = guest.create([pair], {}, Session(owner))
    assert provider.location == HERE
    with pytest.raises(RuntimeError, match="not in its memory spaces"):
        guest.memory_spaces.create_context(HERE)


def test_creating_fails_on_demand() -> None:
    factory = SimulatedFactory(Knobs(fail_at=Stage.CREATE))
    with pytest.raises(SimulatedFailure, match="fail at create"):
        factory.create(list(factory.supported_devices([])), {}, None)


def test_there_is_an_option_of_each_kind() -> None:
    kinds = {type(option.default) for option in SimulatedFactory.options.values()}
    assert kinds == {bool, float, int, str}


def test_two_simulated_eps_have_two_memories() -> None:
    left = SimulatedFactory(Knobs(name="LeftExecutionProvider"))
    right = SimulatedFactory(Knobs(name="RightExecutionProvider"))
    assert (left.name, right.name) == (
        "LeftExecutionProvider",
        "RightExecutionProvider",
    )
    assert (left.memory_spaces.owned, right.memory_spaces.owned) == (
        {"left"},
        {"right"},
    )
    assert SimulatedFactory.name == "SimulatedExecutionProvider"
    assert not right.transfer.can_copy(ep.MemoryLocation("left", 0), ep.HOST)


@pytest.mark.parametrize(
    ("can", "asked"), list(itertools.product([False, True], repeat=2))
)
def test_captures_are_asked_for_by_an_option(can: bool, asked: bool) -> None:
    factory = SimulatedFactory(Knobs(captures=can))
    pairs, session = list(factory.supported_devices([])), Session(factory)
    options = {"enable_graph_capture": asked}
    if asked and not can:
        with pytest.raises(ep.OptionError, match="cannot capture; see Knobs"):
            factory.create(pairs, options, session)
        return
    provider = factory.create(pairs, options, session)
    assert (provider.capture is not None) is asked
    assert factory.context().captures is can


# what sessions share


def test_a_location_has_one_context_at_a_time() -> None:
    factory = SimulatedFactory(Knobs(device_count=2))
    first, other = (
        factory.memory_spaces.create_context(ep.MemoryLocation("simulated", ordinal))
        for ordinal in (0, 1)
    )
    assert first.transfer is other.transfer is factory.transfer
    assert first.allocator(DEVICE) is first.allocator(DEVICE) is factory.allocator()
    assert other.allocator(DEVICE) is factory.allocator(1)
    with pytest.raises(RuntimeError, match="a second context of simulated:0"):
        factory.memory_spaces.create_context(HERE)
    first.close()
    again = factory.memory_spaces.create_context(HERE)
    assert again is not first
    assert factory.context() is again


def test_there_is_no_context_elsewhere() -> None:
    factory = SimulatedFactory()
    with pytest.raises(LookupError, match="has 1 devices, not simulated:1"):
        factory.memory_spaces.create_context(ep.MemoryLocation("simulated", 1))
    with pytest.raises(RuntimeError, match="context of cuda:0, which is not in"):
        factory.memory_spaces.create_context(ep.MemoryLocation("cuda", 0))


def test_making_a_context_fails_on_demand() -> None:
    with pytest.raises(SimulatedFailure, match="fail at create_context"):
        SimulatedFactory(Knobs(fail_at=Stage.CONTEXT)).memory_spaces.create_context(
            HERE
        )


def test_findings_are_told_to_doctor() -> None:
    finding = ep.Finding(level=ep.Level.ERROR, message="no power", remedy="plug it in")
    assert list(SimulatedFactory(Knobs(findings=(finding,))).diagnose()) == [finding]
    assert list(SimulatedFactory().diagnose()) == []
