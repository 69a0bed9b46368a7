"""``onnxplug doctor``: every state of a plugin, and what is said of it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from onnxplug.ep import Finding, Level
from onnxplug.plugins import GROUP, PluginState, find_plugins, registry
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug_testing.simulated import Stage

X = "XExecutionProvider"
SIMULATED = "SimulatedExecutionProvider"


def check_of(plugin: dict[str, Any], op: str) -> dict[str, str]:
    """The check of *op* on the plugin's first device."""
    checks = plugin["devices"][0]["checks"]
    (check,) = (check for check in checks if check["op"] == op)
    return check


# What all reports have...


def test_json_has_stable_keys(cli, site, monkeypatch) -> None:
    site.install(X)
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "x")
    outcome = cli("doctor", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = outcome.json
    assert list(found) == [
        "onnxplug", "spi", "python", "executable", "platform", "packages", "settings",
        "hints", "hardware", "plugins", "domains", "missing", "isolated", "problems",
    ]  # fmt: skip
    assert found["executable"] == sys.executable
    assert list(found["packages"]) == ["numpy", "onnx"]
    assert all(found["packages"].values())
    assert found["settings"] == {"ONNXPLUG_PLUGINS": "x"}
    assert found["problems"] == []
    assert found["isolated"] is False
    (plugin,) = (plugin for plugin in found["plugins"] if plugin["ep"] == X)
    assert plugin.pop("load_ms") > 0
    assert plugin == {
        "ep": X,
        "state": "ready",
        "distribution": "onnxplug-xexecutionprovider",
        "version": "1.2",
        "reason": "",
        "remedy": "",
        "devices": [
            {
                "device": found["hardware"][0],
                "distinction": "",
                "checks": [
                    {"op": op, "verdict": "ok", "detail": "", "remedy": ""}
                    for op in ("Add", "MatMul")
                ],
                "tried_on": None,
                "families": [],
            }
        ],
        "refused_devices": [],
        "findings": [],
        "works": True,
    }


def test_the_text_tells_versions_settings_hardware_and_plugins(
    cli, site, monkeypatch
) -> None:
    site.install(X, distribution="onnxplug-x")
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "x")
    outcome = cli("doctor")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("onnxplug ")
    lines = outcome.out.splitlines()
    assert "ONNXPLUG_PLUGINS=x" in lines
    assert lines[-1] == "no problems"
    row = next(line.split() for line in lines if line.startswith("x "))
    assert row[1:4] == ["ready", "onnxplug-x", "1.2"]
    assert row[6:8] == ["cpu:0", "Add"]
    table = outcome.out.split("\n\n")[2]
    assert "MatMul ok" in table
    assert max(map(len, table.splitlines())) <= 80


def test_what_a_plugin_prints_goes_to_stderr(cli, site) -> None:
    site.install(X, 'print("hello from x")')
    outcome = cli("doctor", "--json")
    assert outcome.json["problems"] == []
    assert outcome.err == "hello from x\n"


@pytest.mark.parametrize(
    "argv", [["--timeout", "0"], ["--timeout", "soon"], ["--isolated", "x"]]
)
def test_a_command_line_that_does_not_fit_exits_with_2(cli, argv) -> None:
    assert cli("doctor", *argv).code == 2


@pytest.mark.usefixtures("no_others")
def test_no_ep_at_all_is_a_problem(cli) -> None:
    outcome = cli("doctor")
    assert outcome.code == 1
    assert "no EP is installed that works; onnxplug-cpu" in outcome.out
    assert "no working EP for cpu:0: install the distribution onnxplug-cpu" in (
        outcome.out
    )


# Settings...


def test_a_wrong_setting_is_a_problem(cli, site, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_STRICT", "perhaps")
    outcome = cli("doctor", "--json")
    assert outcome.code == 1
    assert outcome.json["plugins"] == []
    assert "ONNXPLUG_STRICT is 'perhaps'" in outcome.json["problems"][0]


def test_a_variable_that_is_misspelt_is_pointed_out(cli, site, monkeypatch) -> None:
    site.install(X)
    monkeypatch.setenv("ONNXPLUG_BLOCKED", "cuda")
    monkeypatch.setenv("ONNXPLUG_X_THREADS", "3")
    monkeypatch.setenv("ONNXPLUG_CACHE_SIZE", "1G")
    outcome = cli("doctor", "--json")
    assert outcome.code == 0
    assert outcome.json["hints"] == [
        "ONNXPLUG_BLOCKED has no meaning; did you mean ONNXPLUG_BLOCK?"
    ]


@pytest.mark.parametrize("setting", ["ONNXPLUG_STRICT=1", "ONNXPLUG_AUTOLOAD=0"])
def test_settings_for_others_keep_the_doctor_from_nothing(
    doctor, site, monkeypatch, setting: str
) -> None:
    site.install(X)
    site.install("YExecutionProvider", code="import no_such_module")
    monkeypatch.setenv(*setting.split("="))
    code, plugin = doctor(X)
    assert code == 1
    assert plugin["works"]


@pytest.mark.parametrize("name", ["numpy", "onnx"])
def test_a_package_that_cannot_be_imported_is_a_problem(
    cli, site, monkeypatch, name: str
) -> None:
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "nothing")
    monkeypatch.setitem(sys.modules, name, None)
    outcome = cli("doctor", "--json")
    assert outcome.code == 1
    assert outcome.json["packages"][name] == ""
    assert outcome.json["problems"][0].startswith(f"{name} cannot be imported: ")


# States...

BROKEN = {
    "import": (
        "import no_such_module",
        "ModuleNotFoundError: No module named 'no_such_module'",
        "install onnxplug-xexecutionprovider again, with all that it needs; "
        "ONNXPLUG_BLOCK=x leaves it out",
    ),
    "exception": (
        "raise ValueError('no luck')",
        "ValueError: no luck",
        "tell the makers of onnxplug-xexecutionprovider; "
        "ONNXPLUG_BLOCK=x leaves it out",
    ),
    "exit": (
        "raise SystemExit(3)",
        "SystemExit: 3",
        "tell the makers of onnxplug-xexecutionprovider; "
        "ONNXPLUG_BLOCK=x leaves it out",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", BROKEN)
def test_a_plugin_that_cannot_be_loaded_failed(doctor, site, kind: str) -> None:
    code, reason, remedy = BROKEN[kind]
    site.install(X, code=code)
    exit_code, plugin = doctor(X)
    assert exit_code == 1
    assert plugin["state"] == PluginState.FAILED
    assert plugin["load_ms"] > 0
    assert (plugin["reason"], plugin["remedy"]) == (reason, remedy)
    assert plugin["devices"] == []


def test_a_plugin_of_another_spi_is_incompatible(doctor, site) -> None:
    site.install(X, "Factory.spi_version = (1, 99)")
    code, plugin = doctor(X)
    assert code == 1
    assert plugin["state"] == PluginState.INCOMPATIBLE
    assert plugin["reason"].startswith("written for SPI 1.99, and this onnxplug speaks")
    assert plugin["remedy"] == "upgrade onnxplug"


def test_a_plugin_that_relies_on_what_is_gone_is_incompatible(doctor, site) -> None:
    site.install(X, "Factory.create_stream = lambda self, location: None")
    code, plugin = doctor(X)
    assert code == 1
    assert plugin["state"] == PluginState.INCOMPATIBLE
    assert plugin["reason"] == (
        "written for SPI 0.1, it defines EpFactory.create_stream, which SPI 0.4 "
        "replaced by EpFactory.memory_spaces"
    )
    assert plugin["remedy"] == (
        "upgrade the plugin to a release for SPI 0.4, or ask its makers for one"
    )


def test_a_plugin_for_another_onnxplug_is_incompatible(doctor, site) -> None:
    site.install(X, requires="onnxplug>=9000,<9001")
    code, plugin = doctor(X)
    assert code == 1
    assert plugin["state"] == PluginState.INCOMPATIBLE
    assert "needs 'onnxplug>=9000,<9001', and this is" in plugin["reason"]
    assert plugin["remedy"] == "install versions of the two that fit"


def test_two_distributions_of_one_ep_are_a_conflict(doctor, site) -> None:
    site.install(X, distribution="first")
    site.install(X, distribution="second")
    code, plugin = doctor(X)
    assert code == 1
    assert plugin["state"] == PluginState.CONFLICT
    assert plugin["distribution"] == "first and second"
    assert plugin["reason"] == f"first and second both supply {X}, so neither is loaded"
    assert plugin["remedy"].startswith("uninstall one of them, or list the one")
    assert plugin["load_ms"] is None


@pytest.mark.parametrize(
    ("setting", "reason", "remedy"),
    [
        ("ONNXPLUG_BLOCK=x", "ONNXPLUG_BLOCK has it", "take it out there to use it"),
        (
            "ONNXPLUG_PLUGINS=y",
            "ONNXPLUG_PLUGINS lists the EPs to be used, and it is not among them (y)",
            "add 'x' there to use it",
        ),
        (
            "ONNXPLUG_PLUGINS=x@other,y",
            "ONNXPLUG_PLUGINS wants it from other, and onnxplug-xexecutionprovider "
            "supplies it",
            "install the one or write the other",
        ),
    ],
)
def test_a_blocked_plugin_is_not_loaded_and_no_problem(
    doctor, site, monkeypatch, setting: str, reason: str, remedy: str
) -> None:
    site.install(X, code="raise SystemExit")
    site.install("YExecutionProvider")
    monkeypatch.setenv(*setting.split("="))
    code, plugin = doctor(X)
    assert code == 0
    assert plugin["state"] == PluginState.BLOCKED
    assert (plugin["reason"], plugin["remedy"]) == (reason, remedy)
    assert not plugin["works"]


def test_reason_and_remedy_are_shown_below_the_table(cli, site) -> None:
    site.install(X, code="import no_such_module")
    outcome = cli("doctor")
    assert outcome.code == 1
    details = outcome.out.split(f"\n\n{X}\n")[1].splitlines()
    assert details[0] == (
        "  failed: ModuleNotFoundError: No module named 'no_such_module'"
    )
    assert details[1].startswith("  → install onnxplug-xexecutionprovider again")
    assert outcome.out.endswith(f"1 problem:\n  {X}: failed\n")


# Devices and findings...


def test_a_plugin_without_devices_is_no_problem_and_says_so(doctor, register) -> None:
    register(SimulatedFactory(Knobs(device_count=0)))
    _, plugin = doctor(SIMULATED)
    assert plugin["state"] == PluginState.READY
    assert plugin["devices"] == []
    (finding,) = plugin["findings"]
    assert finding["level"] == Level.WARNING
    assert "drives none of this machine's devices" in finding["message"]
    assert "onnxplug devices" in finding["remedy"]
    assert not plugin["works"]


def test_a_plugin_that_fails_to_tell_its_devices_is_a_problem(doctor, register) -> None:
    register(SimulatedFactory(Knobs(fail_at=Stage.DEVICES)))
    code, plugin = doctor(SIMULATED)
    assert code == 1
    (finding,) = plugin["findings"]
    assert finding["level"] == Level.ERROR
    assert "failed in supported_devices: SimulatedFailure" in finding["message"]
    expected = "tell the makers of the library that was registered"
    assert finding["remedy"] == expected


@pytest.mark.parametrize(("level", "code"), [("ok", 0), ("warning", 0), ("error", 1)])
def test_what_a_plugin_says_of_itself_is_told(
    cli, doctor, site, level: str, code: int
) -> None:
    finding = f"ep.Finding(level=ep.Level.{level.upper()}, message='m', remedy='r')"
    site.install(X, f"Factory.diagnose = lambda self: [{finding}]")
    found, plugin = doctor(X)
    assert found == code
    assert plugin["findings"] == [{"level": level, "message": "m", "remedy": "r"}]
    assert plugin["works"] == (code == 0)
    shown = "m" if level == "ok" else f"{level}: m"
    assert f"\n{X}\n  {shown}\n  → r\n" in cli("doctor").out


@pytest.mark.parametrize("diagnosis", ["1 / 0", "[3]", "3"])
def test_a_diagnosis_that_fails_is_a_warning(doctor, site, diagnosis: str) -> None:
    site.install(X, f"Factory.diagnose = lambda self: {diagnosis}")
    code, plugin = doctor(X)
    assert code == 0
    (finding,) = plugin["findings"]
    assert finding["level"] == Level.WARNING
    assert finding["message"].startswith("it cannot diagnose itself: ")
    assert plugin["works"]


def test_an_optional_hook_that_fails_is_a_warning(doctor, site) -> None:
    site.install(X, "@ep.hookimpl\ndef onnxplug_probe_hardware(host): 1 / 0")
    code, plugin = doctor(X)
    assert code == 0
    (finding,) = plugin["findings"]
    assert finding["level"] == Level.WARNING
    assert "onnxplug_probe_hardware" in finding["message"]
    assert plugin["works"]


# Computing...


def test_wrong_numbers_are_found(cli, doctor, site) -> None:
    site.install(X, "Provider.kernels['Add'] = lambda a, b: a + b + (b == 40)")
    code, plugin = doctor(X)
    assert code == 1
    assert check_of(plugin, "Add") == {
        "op": "Add",
        "verdict": "wrong",
        "detail": "found [11, 22, 33, 45], expected [11, 22, 33, 44]",
        "remedy": "tell the makers of onnxplug-xexecutionprovider",
    }
    assert check_of(plugin, "MatMul")["verdict"] == "ok"
    assert not plugin["works"]
    out = cli("doctor").out
    assert "Add wrong," in out
    assert "  Add on cpu:0 wrong: found [11, 22, 33, 45], expected" in out


@pytest.mark.parametrize("numbers", ["a * np.nan", "a[:1]"])
def test_no_number_and_another_shape_are_wrong(doctor, site, numbers: str) -> None:
    site.install(X, f"Provider.kernels['Add'] = lambda a, b: {numbers}")
    code, plugin = doctor(X)
    assert code == 1
    assert check_of(plugin, "Add")["verdict"] in ("wrong", "failed")


@pytest.mark.parametrize("stage", [Stage.CREATE, Stage.COMPILE, Stage.RUN])
def test_an_ep_that_raises_failed(doctor, register, stage: Stage) -> None:
    register(SimulatedFactory(Knobs(fail_at=stage)))
    code, plugin = doctor(SIMULATED)
    assert code == 1
    check = check_of(plugin, "Add")
    assert check["verdict"] == "failed"
    assert f"was told to fail at {stage}" in check["detail"]


def test_an_ep_that_says_what_it_lacks_has_no_other_remedy(doctor, register) -> None:
    lacks = Finding(level=Level.ERROR, message="no driver", remedy="install one")
    register(SimulatedFactory(Knobs(fail_at=Stage.CREATE, findings=(lacks,))))
    code, plugin = doctor(SIMULATED)
    assert code == 1
    check = check_of(plugin, "Add")
    assert (check["verdict"], check["remedy"]) == (
        "failed",
        "first mend what is said above",
    )


def test_a_library_that_is_missing_when_it_is_needed_is_to_be_installed(
    doctor, site
) -> None:
    create = "def create(self, *rest):\n    import no_such_module"
    site.install(X, f"{create}\nFactory.create = create")
    code, plugin = doctor(X)
    assert code == 1
    check = check_of(plugin, "Add")
    assert check["verdict"] == "failed"
    assert "No module named 'no_such_module'" in check["detail"]
    assert check["remedy"] == (
        "install onnxplug-xexecutionprovider again, with all that it needs"
    )


def test_an_operator_that_is_refused_is_no_problem(doctor, site) -> None:
    site.install(X, "del Provider.kernels['MatMul']")
    code, plugin = doctor(X)
    assert code == 0
    assert check_of(plugin, "Add")["verdict"] == "ok"
    check = check_of(plugin, "MatMul")
    assert check["verdict"] == "refused"
    assert "MatMul is beyond it" in check["detail"]
    assert check["remedy"] == ""


def test_the_cpu_ep_does_not_compute_for_others(doctor, site) -> None:
    site.install(X, "Provider.kernels.clear()")
    code, plugin = doctor(X)
    assert code == 0
    assert check_of(plugin, "Add")["verdict"] == "refused"


def test_each_device_is_computed_on(doctor, register) -> None:
    register(SimulatedFactory(Knobs(device_count=2)))
    code, plugin = doctor(SIMULATED)
    assert code == 0
    assert [d["device"]["device_id"] for d in plugin["devices"]] == [0, 1]
    for driven in plugin["devices"]:
        assert {check["verdict"] for check in driven["checks"]} <= {"ok", "refused"}


# Hardware that nothing drives...

GPU = """
@ep.hookimpl
def onnxplug_probe_hardware(host):
    return [ep.HardwareDevice(type=ep.DeviceType.GPU, vendor="NVIDIA",
                              vendor_id={vendor}, device_id=7)]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere other EPs drive GPUs")
@pytest.mark.parametrize("isolate", [False, True])
def test_hardware_without_an_ep_names_what_would_drive_it(
    cli, site, monkeypatch, isolate: bool
) -> None:
    site.install(X, GPU.format(vendor=0x10DE))
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "x")
    argv = ["--isolate"] if isolate else []
    outcome = cli("doctor", "--json", *argv)
    assert outcome.code == 0
    (missing,) = outcome.json["missing"]
    assert missing["device"]["type"] == "gpu"
    assert missing["device"] in outcome.json["hardware"]
    assert missing["ep"] == "CUDAExecutionProvider"
    assert missing["distribution"] == "onnxplug-cuda"
    assert missing["remedy"] == "install the distribution onnxplug-cuda"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere other EPs drive GPUs")
def test_hardware_without_an_ep_names_the_distribution_to_install(
    cli, site, monkeypatch
) -> None:
    site.install(X, GPU.format(vendor=0x8086))
    found = [plugin for plugin in find_plugins(GROUP) if plugin.name == X]
    monkeypatch.setattr(registry.table, "_find", lambda: found)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    (missing,) = cli("doctor", "--json").json["missing"]
    assert missing["distribution"] == "onnxplug-openvino"
    assert missing["remedy"] == "install the distribution onnxplug-openvino"


def test_hardware_that_nothing_known_drives_says_so(cli, site) -> None:
    site.install(X, GPU.format(vendor=0x1234).replace("GPU", "NPU"))
    (missing,) = cli("doctor", "--json").json["missing"][-1:]
    assert (missing["ep"], missing["distribution"]) == ("", "")
    assert missing["remedy"] == "no distribution of onnxplug drives it"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere other EPs drive GPUs")
def test_an_installed_ep_that_is_broken_is_not_to_be_installed(cli, site) -> None:
    site.install(X, GPU.format(vendor=0x10DE))
    site.install(
        "CUDAExecutionProvider",
        code="import no_such_module",
        distribution="onnxplug-cuda",
    )
    outcome = cli("doctor")
    assert outcome.code == 1
    assert (
        "no working EP for gpu:0: CUDAExecutionProvider would drive it; "
        "it is installed and failed, see above"
    ) in outcome.out


def test_a_device_whose_ep_computes_wrong_numbers_has_no_working_ep(
    cli, site, monkeypatch
) -> None:
    site.install(X, "Provider.kernels['Add'] = np.subtract")
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "x")
    (missing,) = cli("doctor", "--json").json["missing"]
    assert missing["device"]["type"] == "cpu"
