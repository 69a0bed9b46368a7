"""``onnxplug ops``."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from onnxplug.ep import DataType, EpDevice, EpFactory, OperatorSupport
from onnxplug_cli.ops import types_text

F32 = (DataType.FLOAT32,)


class Telling(EpFactory):
    """An EP that says what it runs, and runs nothing."""

    spi_version = (0, 3)
    name = "TellingExecutionProvider"

    def supported_devices(self, devices) -> Iterable[EpDevice]:
        return []

    def create(self, devices, options, session):
        raise NotImplementedError

    def operators(self) -> Iterable[OperatorSupport]:
        yield OperatorSupport(
            op_type="Add", since=7, until=7, tier="slow", types={"T": F32}
        )
        yield OperatorSupport(op_type="Add", since=13, tier="fast", types={"T": F32})
        yield OperatorSupport(
            op_type="Add", since=13, tier="slow", types={"T": (*F32, DataType.INT8)}
        )
        yield OperatorSupport(op_type="Twice", domain="acme", since=2, until=4)
        yield OperatorSupport(op_type="Celu", since=12)


class Failing(Telling):
    name = "FailingExecutionProvider"

    def operators(self) -> Iterable[OperatorSupport]:
        raise RuntimeError("out of words")


@pytest.fixture
def telling(register) -> str:
    return register(Telling())


def table(out: str, domain: str) -> list[list[str]]:
    """The rows of a domain, each cell by itself."""
    _, _, rest = f"\n{out}".partition(f"\n{domain}\n\n")
    header, *lines = rest.partition("\n\n")[0].splitlines()
    names = ("OPERATOR", "VERSIONS", "EP", "TIER", "TYPES")
    starts = [header.index(name) for name in names]
    ends = [*starts[1:], None]
    return [
        [line[a:b].strip() for a, b in zip(starts, ends, strict=True)] for line in lines
    ]


def test_an_operator_has_a_row_for_each_tier_the_preferred_first(cli, telling) -> None:
    rows = table(cli("ops", "--ep", "telling").out, "ai.onnx")
    place = next(n for n, row in enumerate(rows) if row[0] == "Add")
    assert rows[place : place + 3] == [
        ["Add", "13 14", telling, "fast", "T: float32"],
        ["", "7 13 14", telling, "slow", "T: float32, int8"],
        ["", "1 6", "none", "", ""],
    ]


def test_what_no_ep_takes_is_done_by_onnxplug_itself(cli, telling) -> None:
    rows = table(cli("ops", "--ep", telling).out, "ai.onnx")
    by_name = {row[0]: row[1:4] for row in rows if row[0]}
    assert by_name["If"][1:] == ["onnxplug", "control flow"]
    assert by_name["SequenceMap"] == ["17", "onnxplug", "function"]
    # it has a body too, but version 12 and what follows are the EP's
    assert by_name["Celu"] == ["12 28", telling, ""]
    assert by_name["Conv"][1:] == ["none", ""]


def test_operators_of_other_domains_are_listed_as_eps_name_them(cli, telling) -> None:
    out = cli("ops", "--ep", telling, "--domain", "acme").out
    assert table(out, "acme") == [["Twice", "2", telling, "", ""]]
    assert "ai.onnx" not in out
    assert "1 operator in 1 version;" in out


def test_the_reason_of_a_refusal_is_told(cli, telling) -> None:
    out = cli("ops", "--ep", telling, "--domain", "com.microsoft").out
    refused = [row[0] for row in table(out, "com.microsoft") if row[3] == "refused"]
    assert "BeamSearch" in refused
    assert any(
        line.startswith(", ".join(refused)) and "cannot be run: " in line
        for line in out.splitlines()
    )


def test_as_json_each_version_is_told_by_itself(cli, telling) -> None:
    found = cli("ops", "--ep", telling, "--json").json
    assert list(found) == ["eps", "silent", "versions"]
    assert (found["eps"], found["silent"]) == ([telling], [])
    add = [
        each
        for each in found["versions"]
        if (each["domain"], each["operator"]) == ("ai.onnx", "Add")
    ]
    assert [(each["since"], each["until"]) for each in add] == [
        (1, 5), (6, 6), (7, 12), (13, 13), (14, None),
    ]  # fmt: skip
    assert [len(each["ways"]) for each in add] == [0, 0, 1, 2, 2]
    assert add[-1]["ways"][1] == {
        "ep": telling,
        "tier": "slow",
        "types": {"T": ["float32", "int8"]},
        "reason": "",
    }


def test_deprecated_versions_are_none(cli, telling) -> None:
    found = cli("ops", "--ep", telling, "--json").json["versions"]
    upsample = [
        each
        for each in found
        if (each["domain"], each["operator"]) == ("ai.onnx", "Upsample")
    ]
    assert [(each["since"], each["until"]) for each in upsample][-1] == (9, 9)


def test_an_ep_that_does_not_say_is_named(cli, toy) -> None:
    outcome = cli("ops", "--ep", "toy")
    assert f"{toy} does not say which operators it runs." in outcome.out
    assert cli("ops", "--ep", "toy", "--json").json["silent"] == [toy]


def test_an_ep_that_fails_is_an_error(cli, register) -> None:
    outcome = cli("ops", "--ep", register(Failing()))
    assert outcome.code == 1
    assert "FailingExecutionProvider" in outcome.err and "out of words" in outcome.err


def test_an_unknown_domain_is_an_error_that_names_those_there_are(cli, telling) -> None:
    outcome = cli("ops", "--ep", telling, "--domain", "ai.onix")
    assert outcome.code == 2
    assert "'ai.onix'" in outcome.err and "ai.onnx, acme, ai.onnx.ml" in outcome.err


@pytest.mark.parametrize(
    ("dtypes", "text"),
    [
        ("float32", "float32"),
        ("float32 float16", "float16, float32"),
        ("float64 float32 float16 bfloat16", "float16–64, bfloat16"),
        ("uint8 int8 int16 int32 int64", "int8–64, uint8"),
        ("int2 int4 int16 int32 int64", "int2, int4, int16–64"),
        (
            "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz string",
            "string, float8_*",
        ),
        ("float8_e4m3fn bool", "float8_e4m3fn, bool"),
        ("", ""),
    ],
)
def test_types_are_written_shortly(dtypes: str, text: str) -> None:
    found = tuple(map(DataType, dtypes.split()))
    assert types_text({"T": found}) == f"T: {text}"
