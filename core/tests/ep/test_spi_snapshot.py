"""The SPI changes only together with its version."""

from __future__ import annotations

import difflib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from onnxplug import ep


def load_snapshot() -> ModuleType:
    path = Path(__file__).with_name("snapshot.py")
    spec = importlib.util.spec_from_file_location("spi_snapshot", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


snapshot = load_snapshot()


def test_the_spi_is_that_of_the_snapshot() -> None:
    recorded, present = snapshot.FILE.read_text("utf-8"), snapshot.render()
    if recorded == present:
        return
    diff = "\n".join(
        difflib.unified_diff(
            recorded.splitlines(), present.splitlines(), "snapshot", "SPI", lineterm=""
        )
    )
    same_version = recorded.splitlines()[0] == present.splitlines()[0]
    remedy = (
        "Plugins rely on these signatures.  Raise SPI_VERSION in onnxplug/ep/version.py"
        " (minor: plugins written before still work; else major), say so in\n"
        "docs/reference/spi-changelog.md, and run: python core/tests/ep/snapshot.py"
        if same_version
        else "SPI_VERSION was raised.  Say so in docs/reference/spi-changelog.md, and\n"
        "run: python core/tests/ep/snapshot.py"
    )
    pytest.fail(f"the SPI differs from its snapshot:\n{diff}\n\n{remedy}")


def test_the_snapshot_tells_each_public_name() -> None:
    heads = [
        line for line in snapshot.render().splitlines() if not line.startswith(" ")
    ]
    missing = [
        name
        for name in ep.__all__
        if not any(re.search(rf"(^| ){name}\b", head) for head in heads)
    ]
    assert not missing


@pytest.mark.parametrize(
    "line",
    [
        f"SPI {ep.SPI_VERSION[0]}.{ep.SPI_VERSION[1]}",
        "class DataTransfer(ABC)",
        "  @abstract def synchronize(self) -> 'None'",
        "  BFLOAT16 = 'bfloat16'",
        "frozen dataclass ComputeCapability()",
        "  *atomic: bool = False",
        "protocol Partition(Protocol)",
        "  def __call__(self, ep_devices: 'Sequence[EpDevice]', "
        "model_info: 'ModelInfo', /) -> 'Iterable[EpDevice]'",
        "  @property def fingerprint(self) -> 'str'",
        "  @classmethod def from_onnx(cls, number: 'int') -> 'DataType'",
        "  max_concurrent_runs: int | None = None",
        "  detail: str = ''",
        "OptionValue: bool | int | float | str",
        "hookimpl = HookimplMarker('onnxplug')",
        "HOST = MemoryLocation(space='host', ordinal=0, host_accessible=True)",
    ],
)
def test_the_snapshot_has_each_kind_of_member(line: str) -> None:
    assert line in snapshot.render().splitlines()


def test_public_names_are_sorted_and_exist() -> None:
    ordered = sorted(
        ep.__all__, key=lambda name: (not name.isupper(), name.islower(), name)
    )
    assert ep.__all__ == ordered
    assert all(hasattr(ep, name) for name in ep.__all__)
