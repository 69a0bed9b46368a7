"""What becomes of a session when an EP that it asked for fails."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from onnxplug.ep import EpDevice, Finding, HardwareDevice, Level
from onnxplug.errors import (
    DeviceReset,
    EpError,
    EpWarning,
    OptionError,
    OutOfMemory,
    PluginError,
    PluginLoadError,
    PluginNotFound,
)
from onnxplug.plugins import FoundPlugin, PluginRegistry
from onnxplug.selection import (
    CPU,
    ChosenEp,
    FailedEp,
    Origin,
    ProviderRequest,
    SessionContext,
    do_without,
    ep_devices,
    provider,
)
from onnxplug.selection.choose import choose
from onnxplug_testing import SimulatedFactory, SimulatedFailure, Stage

AddEp = Callable[..., SimulatedFactory]
Choose = Callable[..., tuple[list[ChosenEp], list[FailedEp]]]

BAD = "BadExecutionProvider"
GOOD = "GoodExecutionProvider"


@pytest.fixture
def select(
    registry: PluginRegistry, hardware: list[HardwareDevice], context: SessionContext
) -> Choose:
    """``choose`` with names or requests, on the made-up machine."""

    def select_here(
        *requests: str | ProviderRequest, cpu_fallback: bool = True
    ) -> tuple[list[ChosenEp], list[FailedEp]]:
        long = [provider(r) if isinstance(r, str) else r for r in requests]
        return choose(long, registry, hardware, context, cpu_fallback=cpu_fallback)

    return select_here


def names(chosen: Iterable[ChosenEp]) -> list[str]:
    return [ep.name for ep in chosen]


class MadeUpDistribution:
    """Of the plugin Bad, whose module does not exist."""

    def read_text(self, file: str) -> str:
        return "Name: onnxplug-bad\nVersion: 1.2\n"


@pytest.fixture
def broken(
    add: AddEp, registry: PluginRegistry, installed: list[FoundPlugin]
) -> Callable[[str], ProviderRequest]:
    """Makes the EP Bad, which fails at a stage, and asks for it."""

    def make(stage: str) -> ProviderRequest:
        if stage == "load":
            installed.append(FoundPlugin(BAD, "no_such_module", MadeUpDistribution()))
            registry.refresh()
        elif stage == "no device":
            add("Bad", "npu")
        elif stage != "find":
            add("Bad", "gpu", fail_at=Stage(stage))
        return provider("bad")

    return make


STAGES = {
    "find": (PluginNotFound, "no installed plugin supplies an EP named 'bad'"),
    "load": (
        PluginLoadError,
        r"onnxplug-bad 1.2.* could not be loaded: ModuleNotFound",
    ),
    "devices": (EpError, "told to fail at devices"),
    "no device": (EpError, r"drives none of this machine's devices \(cpu, gpu\)"),
    "create": (EpError, "SimulatedFailure: BadExecutionProvider was told to fail"),
}

stages = pytest.mark.parametrize("stage", STAGES)
usefixtures = pytest.mark.usefixtures


@stages
@usefixtures("cpu")
def test_a_later_one_that_was_named_stands_in(
    stage: str, broken: Callable[[str], ProviderRequest], add: AddEp, select: Choose
) -> None:
    add("Good", "gpu")
    _, text = STAGES[stage]
    told = f"bad was asked for and is not used; {GOOD} is used instead.  .*{text}"
    with pytest.warns(EpWarning, match=told) as caught:
        chosen, failed = select(broken(stage), "good")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert names(chosen) == [GOOD, CPU]
    assert [(failure.request.name, failure.rank) for failure in failed] == [("bad", 0)]
    assert isinstance(failed[0].error, STAGES[stage][0])


@stages
@usefixtures("cpu")
def test_it_is_an_error_when_nothing_that_was_named_works(
    stage: str, broken: Callable[[str], ProviderRequest], select: Choose
) -> None:
    error, text = STAGES[stage]
    with pytest.raises(error, match=text):
        select(broken(stage))


@stages
@usefixtures("cpu")
def test_it_is_an_error_when_the_user_says_so(
    stage: str, broken: Callable[[str], ProviderRequest], add: AddEp, select: Choose
) -> None:
    good = add("Good", "gpu")
    error, text = STAGES[stage]
    request = broken(stage)._replace(error_on_failure=True)
    with pytest.raises(error, match=text):
        select("good", request)
    assert [ep.closed for ep in good.created] == [True]


@usefixtures("cpu")
def test_the_one_that_stands_in_comes_later_in_the_list(
    broken: Callable[[str], ProviderRequest], add: AddEp, select: Choose
) -> None:
    add("Good", "gpu")
    add("Last", "gpu")
    with pytest.warns(EpWarning, match="LastExecutionProvider is used instead"):
        chosen, _ = select("good", broken("create"), "last")
    assert [(ep.name, ep.rank) for ep in chosen][:2] == [
        (GOOD, 0),
        ("LastExecutionProvider", 2),
    ]


@usefixtures("cpu")
def test_with_none_later_the_session_does_without(
    broken: Callable[[str], ProviderRequest], add: AddEp, select: Choose
) -> None:
    add("Good", "gpu")
    with pytest.warns(EpWarning, match="not used; the session does without it"):
        chosen, _ = select("good", broken("create"))
    assert names(chosen) == [GOOD, CPU]


@usefixtures("cpu")
def test_each_failure_is_told_once(
    broken: Callable[[str], ProviderRequest], select: Choose
) -> None:
    with pytest.warns(EpWarning, match="is not used") as caught:
        chosen, failed = select("missing", broken("create"), "cpu")
    assert len(caught) == len(failed) == 2
    assert all(f"{CPU} is used instead" in str(each.message) for each in caught)
    assert chosen[0].request == ProviderRequest("cpu")


def test_when_all_fail_the_first_is_raised_and_the_others_noted(
    broken: Callable[[str], ProviderRequest], select: Choose
) -> None:
    with pytest.raises(PluginNotFound, match="'missing'") as caught:
        select("missing", broken("create"))
    (note,) = caught.value.__notes__
    assert note.startswith("Nor can bad: BadExecutionProvider failed in create")


@usefixtures("cpu")
def test_the_implied_cpu_ep_does_not_stand_in(
    broken: Callable[[str], ProviderRequest], select: Choose
) -> None:
    with pytest.raises(EpError, match="told to fail"):
        select(broken("create"), cpu_fallback=True)


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (Origin.POLICY, "bad was chosen by the policy and is not used; Good"),
        (Origin.GLOBAL, "bad is a default provider and is not used; Good"),
    ],
)
@usefixtures("cpu")
def test_the_warning_says_who_asked(
    origin: Origin,
    words: str,
    broken: Callable[[str], ProviderRequest],
    add: AddEp,
    select: Choose,
) -> None:
    add("Good", "gpu")
    request = broken("create")._replace(origin=origin)
    with pytest.warns(EpWarning, match=words):
        select(request, "good")


def test_a_failure_keeps_its_cause_and_brings_the_eps_own_diagnosis(
    add: AddEp, select: Choose
) -> None:
    driver = Finding(
        level=Level.ERROR, message="the driver is 470", remedy="install 550 or newer"
    )
    fine = Finding(level=Level.OK, message="all is well")
    add("Bad", "gpu", fail_at=Stage.CREATE, findings=(fine, driver))
    with pytest.raises(EpError, match="the driver is 470; install 550") as caught:
        select("bad")
    assert isinstance(caught.value.__cause__, SimulatedFailure)
    assert (caught.value.ep, caught.value.stage) == (BAD, "create")
    assert "all is well" not in str(caught.value)


def test_an_ep_that_would_end_the_process_just_fails(
    registry: PluginRegistry, select: Choose
) -> None:
    class Quitter(SimulatedFactory):
        def create(self, *arguments: Any) -> Any:
            raise SystemExit(3)

        def diagnose(self) -> Any:
            raise SystemExit(4)

    registry.add(Quitter())
    with pytest.raises(EpError, match="failed in create: SystemExit: 3"):
        select("simulated")


class Raising(SimulatedFactory):
    """An EP that cannot be created because of *error*."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def create(self, *arguments: Any) -> Any:
        raise self.error

    def diagnose(self) -> Any:
        return [Finding(level=Level.ERROR, message="a fault", remedy="restart")]


@pytest.mark.parametrize("said", ["lost", "on Simulated the device is lost"])
def test_errors_of_onnxplug_keep_their_class(
    said: str, registry: PluginRegistry, select: Choose
) -> None:
    error = DeviceReset(said)
    registry.add(Raising(error))
    for _ in range(2):  # its text does not grow
        with pytest.raises(DeviceReset) as caught:
            select("simulated")
        assert caught.value is error and caught.value.__cause__ is None
        assert str(error) == (
            f"SimulatedExecutionProvider failed in create: {said}\na fault; restart"
        )


@usefixtures("cpu")
def test_errors_of_onnxplug_are_failures_of_the_ep_alone(
    registry: PluginRegistry, select: Choose
) -> None:
    registry.add(Raising(DeviceReset("lost")))
    with pytest.warns(EpWarning, match=rf"{CPU} is used instead.*lost"):
        chosen, failed = select("simulated", "cpu")
    assert names(chosen) == [CPU]
    assert [type(each.error) for each in failed] == [DeviceReset]


def test_too_little_memory_for_an_ep_is_told_as_in_runs(
    registry: PluginRegistry, select: Choose
) -> None:
    registry.add(Raising(MemoryError("8 GiB")))
    with pytest.raises(OutOfMemory, match=r"Simulated.*in create.*: 8 GiB") as caught:
        select("simulated")
    assert caught.value.ep == "SimulatedExecutionProvider"


def test_what_was_created_and_is_no_use_is_closed(
    registry: PluginRegistry, select: Choose
) -> None:
    closed = []

    class Wrong(SimulatedFactory):
        def create(self, *arguments: Any) -> Any:
            made = super().create(*arguments)
            made.specialiser = 8  # type: ignore[assignment]
            made.close = lambda: closed.append(made)  # type: ignore[method-assign]
            return made

    registry.add(Wrong())
    with pytest.raises(EpError, match=r"specialiser of Simulated.* is 8"):
        select("simulated")
    assert len(closed) == 1


def test_wrong_options_are_the_users_error_whatever_else_works(
    add: AddEp, select: Choose
) -> None:
    add("Bad", "npu")
    good = add("Good", "gpu")
    with pytest.raises(OptionError, match="did you mean 'level'"):
        select("good", provider("bad", options={"levle": 1}))
    assert [ep.closed for ep in good.created] == [True]


def test_options_that_the_ep_itself_refuses_are_the_users_error_as_well(
    registry: PluginRegistry, add: AddEp, select: Choose
) -> None:
    class Picky(SimulatedFactory):
        def create(self, *arguments: Any) -> Any:
            raise OptionError("option 'level' does not go with this device")

    good = add("Good", "gpu")
    registry.add(Picky())
    with pytest.raises(OptionError, match="does not go with this device"):
        select("good", "simulated")
    assert [ep.closed for ep in good.created] == [True]


def test_a_warning_made_an_error_leaves_nothing_open(
    broken: Callable[[str], ProviderRequest], add: AddEp, select: Choose
) -> None:
    good = add("Good", "gpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(EpWarning):
            select(broken("create"), "good")
    assert [ep.closed for ep in good.created] == [True]


# remedies


def test_a_missing_ep_brings_the_distribution_to_install(select: Choose) -> None:
    with pytest.raises(PluginNotFound) as caught:
        select("openvino")
    assert str(caught.value) == (
        "no installed plugin supplies OpenVINOExecutionProvider; install the "
        "distribution onnxplug-openvino\n"
        "Installed EPs: none."
    )
    assert caught.value.plugin == "OpenVINOExecutionProvider"


@usefixtures("cpu")
def test_a_misspelled_ep_that_is_not_installed_brings_its_name(select: Choose) -> None:
    with pytest.raises(PluginNotFound, match="Did you mean 'openvino'") as caught:
        select("openvin")
    assert "`onnxplug eps` lists the installed EPs" in str(caught.value)


@usefixtures("cpu")
def test_an_engine_that_is_missing_comes_first_in_the_error(
    add: AddEp, select: Choose, monkeypatch
) -> None:
    factory = add("Good", "npu")
    fault = Finding(
        level=Level.ERROR, message="torch is not installed", remedy="pip install torch"
    )
    monkeypatch.setattr(factory, "diagnose", lambda: [fault])
    with pytest.raises(EpError) as caught:
        select("good")
    assert str(caught.value) == (
        "GoodExecutionProvider cannot be used: torch is not installed; "
        "pip install torch"
    )
    assert (caught.value.ep, caught.value.stage) == (factory.name, "devices")


# what is created


def test_an_ep_is_created_once_on_all_its_devices(
    add: AddEp, select: Choose, hardware: list[HardwareDevice]
) -> None:
    factory = add("Good", "gpu")
    (ep,), _ = select("good", cpu_fallback=False)
    assert [pair.device for pair in ep.devices] == hardware[1:]
    assert ep.device == "gpu"
    assert len(factory.created) == 1


def test_picked_devices_are_those_it_is_created_on(
    add: AddEp,
    select: Choose,
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
) -> None:
    add("Good", "gpu")
    first, second = ep_devices(registry, hardware)
    request = ProviderRequest(GOOD, devices=(second, first))
    (ep,), _ = select(request, cpu_fallback=False)
    assert ep.devices == (second, first)


def test_an_ep_named_twice_is_created_once(add: AddEp, select: Choose) -> None:
    factory = add("Good", "gpu")
    chosen, _ = select("good", GOOD, cpu_fallback=False)
    assert names(chosen) == [GOOD]
    assert len(factory.created) == 1


def test_options_of_the_user_beat_config_entries_and_those_the_devices(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Other", "gpu")

    class Suggesting(SimulatedFactory):
        def supported_devices(self, devices: Any) -> Iterable[EpDevice]:
            for number, device in enumerate(devices[:2]):
                suggested = {"tag": f"device {number}", "level": "2", "share": "0.5"}
                if number:
                    suggested["verbose"] = "1"
                yield EpDevice(
                    ep_name=self.name,
                    device=device,
                    metadata={"ordinal": str(number)},
                    default_options=suggested,
                )

    registry.add(Suggesting())
    config = {"ep.simulatedexecutionprovider.share": "0.25", "ep.other.share": "0"}
    config["ep.simulatedexecutionprovider.level"] = "0"
    context = SessionContext(None, 0, config, registry)
    request = provider("simulated", options={"optimization_level": 1})
    (ep,), _ = choose([request], registry, hardware, context, cpu_fallback=False)
    assert ep.options == {
        "tag": "device 0",  # the first device wins over the second
        "level": 1,  # the user's, by its alias
        "share": 0.25,  # the config entry's
        "verbose": True,
        "enable_graph_capture": False,
        "user_compute_stream": 0,
    }


@pytest.mark.parametrize("written", ["level", "optimization_level"])
def test_an_option_of_the_user_beats_that_of_a_device_by_any_name(
    written: str, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    class Suggesting(SimulatedFactory):
        def supported_devices(self, devices: Any) -> Iterable[EpDevice]:
            for number, name in enumerate(("optimization_level", "level")):
                yield EpDevice(
                    ep_name=self.name,
                    device=devices[number],
                    metadata={"ordinal": str(number)},
                    default_options={name: str(1 + number)},
                )

    registry.add(Suggesting())

    def level(options: dict[str, Any], config: dict[str, str]) -> Any:
        request = provider("simulated", options=options)
        context = SessionContext(None, 0, config, registry)
        (ep,), _ = choose([request], registry, hardware, context, cpu_fallback=False)
        return ep.options["level"]

    prefix = "ep.simulatedexecutionprovider."
    assert level({}, {}) == 1  # the first device's
    assert level({}, {prefix + written: "0"}) == 0
    assert level({written: 0}, {prefix + "level": "2"}) == 0
    both = {prefix + "level": "0", prefix + "optimization_level": "1"}
    with pytest.raises(OptionError, match=r"as 'level' .* and as 'optimization_level'"):
        level({}, both)


# the CPU EP that nobody named


@usefixtures("cpu")
def test_nothing_asked_for_means_the_cpu_ep(select: Choose) -> None:
    (ep,), failed = select()
    assert (ep.name, ep.request, failed) == (CPU, None, [])


@usefixtures("cpu")
def test_the_cpu_ep_is_added_last_unless_it_is_named_or_forbidden(
    add: AddEp, select: Choose
) -> None:
    add("Good", "gpu")
    chosen, _ = select("good")
    assert [(ep.name, ep.rank) for ep in chosen] == [(GOOD, 0), (CPU, 1)]
    assert chosen[1].request is None
    assert names(select("cpu", "good")[0]) == [CPU, GOOD]
    assert names(select("good", cpu_fallback=False)[0]) == [GOOD]


def test_with_no_cpu_ep_installed_the_error_names_the_distribution(
    select: Choose,
) -> None:
    with pytest.raises(PluginNotFound, match="install the distribution onnxplug-cpu"):
        select()


def test_other_eps_may_do_without_a_cpu_ep(add: AddEp, select: Choose) -> None:
    add("Good", "gpu")
    chosen, failed = select("good")
    assert names(chosen) == [GOOD]
    # no warning: the EP may take every node; the report has it all the same
    assert [failure.request.origin for failure in failed] == [Origin.IMPLIED]
    assert isinstance(failed[0].error, PluginError)


def test_a_cpu_ep_that_is_broken_is_told(add: AddEp, select: Choose) -> None:
    add("Good", "gpu")
    add("CPU", "cpu", fail_at=Stage.CREATE)
    with pytest.warns(EpWarning, match=f"{CPU} is the last resort and is not used"):
        chosen, failed = select("good")
    assert (names(chosen), len(failed)) == ([GOOD], 1)
    with pytest.raises(EpError, match="told to fail"):
        select()


def test_a_named_cpu_ep_that_failed_is_not_tried_again(
    add: AddEp, select: Choose
) -> None:
    add("Good", "gpu")
    with pytest.warns(EpWarning, match="cpu was asked for") as caught:
        chosen, failed = select("good", "cpu")
    assert (names(chosen), len(failed), len(caught)) == ([GOOD], 1, 1)


# failures after creation


@usefixtures("cpu")
def test_a_session_may_do_without_an_ep_that_fails_later(
    add: AddEp, select: Choose
) -> None:
    add("Bad", "gpu")
    add("Good", "gpu")
    error = EpError("BadExecutionProvider failed in compile", ep=BAD, stage="compile")
    chosen, _ = select("bad", "good")
    request = chosen[0].request
    assert request is not None
    failure = FailedEp(request, error, chosen[0].rank)
    with pytest.warns(EpWarning, match=f"{GOOD} is used instead.  Bad.* in compile"):
        do_without(failure, chosen[1:])
    with pytest.raises(EpError, match="in compile"):
        do_without(failure, chosen[2:])  # the implied CPU EP
    strict = failure._replace(request=request._replace(error_on_failure=True))
    with pytest.raises(EpError, match="in compile"):
        do_without(strict, chosen[1:])


@usefixtures("cpu")
def test_sessions_may_be_made_in_many_threads(add: AddEp, select: Choose) -> None:
    factory = add("Good", "gpu")
    results: list[list[str]] = []

    def work() -> None:
        for _ in range(20):
            results.append(names(select("good", "cpu")[0]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[GOOD, CPU]] * 80
    assert len(factory.created) == 80
