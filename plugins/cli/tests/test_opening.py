"""Which EPs a command line chooses, for all commands that open a session."""

from __future__ import annotations

import pytest

from onnxplug_testing import Knobs, SimulatedFactory

COMMANDS = {
    "run": ["random", "--repeat", "0"],
    "bench": ["--repeat", "1"],
    "explain": [],
}


@pytest.fixture(params=COMMANDS)
def command(request, cli, save_model):
    """Runs a command on a model that multiplies."""
    model = save_model(["Mul"], {"a": [4], "b": [4]})
    words = [request.param, model, *COMMANDS[request.param]]
    return lambda *argv: cli(*words, *argv)


def eps_of(outcome) -> set[str]:
    """The EPs that ran, or would run, something."""
    found = outcome.json
    if "results" in found:
        return set(found["results"][0]["nodes"])
    return {part["ep"] for part in found["partitions"]}


def test_a_policy_chooses(command, simulated) -> None:
    outcome = command("--policy", "prefer_npu", "--json")
    assert outcome.code == 0
    assert eps_of(outcome) == {simulated}


def test_an_unknown_policy_names_those_there_are(command, simulated) -> None:
    outcome = command("--policy", "prefer_gpo")
    assert (outcome.code, outcome.out) == (2, "")
    assert "no selection policy 'prefer_gpo'; did you mean 'prefer_gpu'?" in outcome.err
    assert "The policies: default, prefer_cpu, prefer_npu" in outcome.err


def test_a_policy_and_eps_exclude_each_other(command) -> None:
    outcome = command("--policy", "default", "--ep", "cpu")
    assert outcome.code == 2
    assert "not allowed with argument" in outcome.err


@pytest.mark.parametrize(
    "choice", [["--ep", "simulated"], ["--policy", "prefer_npu"]], ids=lambda c: c[0]
)
def test_options_reach_the_ep_whoever_chose_it(command, register, choice) -> None:
    factory = SimulatedFactory(Knobs(ops=frozenset({"Mul"})))
    register(factory)
    given = []
    create = factory.create

    def noting(devices, options, session):
        given.append(options)
        return create(devices, options, session)

    factory.create = noting  # type: ignore[method-assign]
    options = ["--ep-option", "simulated.tag=a=b", "--ep-option", "simulated.level=2"]
    assert command(*choice, *options).code == 0
    assert (given[0]["tag"], given[0]["level"]) == ("a=b", 2)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("simulated.levl=2", "no option or config entry 'levl'; did you mean 'level'?"),
        ("simulated.level=7", "option 'level' of SimulatedExecutionProvider is '7'"),
        ("other.level=2", "'ep.other.level' is for no EP: no installed plugin"),
        ("simulated=2", "'simulated=2' is not of the form EP.KEY=VALUE"),
        ("simulated.level", "'simulated.level' is not of the form NAME=VALUE"),
    ],
)
def test_options_that_do_not_fit_exit_with_2(command, simulated, option, text) -> None:
    outcome = command("--ep", simulated, "--ep-option", option)
    assert (outcome.code, outcome.out) == (2, "")
    assert text in outcome.err


def test_an_option_of_an_ep_that_is_not_used_exits_with_2(
    command, simulated, register
) -> None:
    register(SimulatedFactory(Knobs(name="OtherExecutionProvider")))
    outcome = command("--ep", simulated, "--ep-option", "other.level=2")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--ep-option other.level is for other, which is not used" in outcome.err


def test_a_wrong_variable_is_not_the_command_lines_fault(
    command, site, monkeypatch
) -> None:
    monkeypatch.setenv("ONNXPLUG_STRICT", "perhaps")
    outcome = command("--policy", "default")
    assert outcome.code == 1
    assert "ONNXPLUG_STRICT is 'perhaps'" in outcome.err


@pytest.mark.parametrize("name", ["run", "bench"])
def test_a_size_of_no_dimension_lists_those_there_are(
    cli, save_model, toy, name
) -> None:
    model = save_model(["Add"], {"a": ["N", 3], "b": ["N", "K"]})
    argv = [name, model, *COMMANDS[name], "--ep", toy]
    outcome = cli(*argv, "--dim", "M=2")
    assert (outcome.code, outcome.out) == (2, "")
    assert (
        "--dim M=2: the inputs have no free dimension 'M'; "
        "those they have: 'N' (of 'a', 'b'), 'K' (of 'b')"
    ) in outcome.err
    assert cli(*argv, "--dim", "N=2", "--dim", "K=3").code == 0


def test_a_size_where_none_is_free_says_so(cli, save_model, toy) -> None:
    model = save_model(["Relu"], {"x": [4]})
    outcome = cli("run", model, "random", "--ep", toy, "--dim", "N=2")
    assert outcome.code == 2
    assert "those they have: none, all sizes are fixed" in outcome.err


def test_an_option_by_two_of_its_names_exits_with_2(command, simulated) -> None:
    options = ["--ep-option", "simulated.level=1"]
    options += ["--ep-option", "simulated.optimization_level=2"]
    outcome = command("--ep", simulated, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert "is given twice, as 'level' ('1') and as 'optimization_level'" in outcome.err


def test_an_empty_name_of_an_ep_exits_with_2(command) -> None:
    assert command("--ep", "cpu,").code == 2
