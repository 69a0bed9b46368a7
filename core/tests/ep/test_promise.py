"""What plugins rely on does not go or change without a new major version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onnxplug import ep
from onnxplug.ep.version import DEPRECATED
from onnxplug.plugins.versions import REMOVED

from . import contract, snapshot

REMEDY = """
Plugins that were written for SPI {released} rely on this.  Keep it, and have it warn
first (DEPRECATED in onnxplug/ep/version.py, a higher minor version); a higher major
version may remove what has warned.  Before 1.0 a higher minor may, if REMOVED in
onnxplug/plugins/versions.py tells EPs what there is instead.  If no EP can notice, say
so in docs/reference/spi-changelog.md, and record what is to be relied on:
python core/tests/ep/snapshot.py released"""


def told() -> set[str]:
    """What EPs are told to be gone when they define it."""
    return {
        f"{kind}.{name}"
        for kinds in REMOVED.values()
        for kind, names in kinds.items()
        for name in names
    }


def test_the_released_interface_is_kept() -> None:
    released = contract.read(snapshot.RELEASED.read_text("utf-8"))
    present = contract.read(snapshot.render())
    assert present.version >= released.version
    found = contract.breaks(released, present)
    if released.version[0] == 0 and present.version > released.version:
        found = [each for each in found if each.split(" ")[0] not in told()]
    if found:
        version = ".".join(map(str, released.version))
        lines = "\n".join(found)
        pytest.fail(
            f"the SPI breaks plugins:\n{lines}\n{REMEDY.format(released=version)}"
        )


def test_what_warns_is_there_and_says_what_to_use() -> None:
    for name, deprecation in DEPRECATED.items():
        first, _, member = name.partition(".")
        assert deprecation.since <= ep.SPI_VERSION
        assert deprecation.since[0] == ep.SPI_VERSION[0], f"{name} is due to be removed"
        assert first in ep.__all__
        assert not member or hasattr(getattr(ep, first), member)


RELEASED = """\
SPI 1.2

class Allocator(ABC)
  @abstract def empty(self, shape: 'Shape', stream: 'Stream | None' = None) -> 'Any'
  def spare(self) -> 'int'
  limit: int = 8

frozen dataclass Costs()
  *seconds: float
  *bytes: int = 1

frozen dataclass Facts()
  dtype: DataType
  shape: tuple[int, ...]

class Level(StrEnum)
  ERROR = 'error'

protocol Host(Protocol)
  logger: Logger
  def log(self, text: 'str') -> 'None'

protocol Policy(Protocol)
  def __call__(self, devices: 'Sequence[EpDevice]', /) -> 'Iterable[EpDevice]'

class Failed(RuntimeError)
  def __init__(self, message: 'str', *, node: 'str' = '') -> 'None'

def status(code: 'int', *, strict: 'bool' = True) -> 'type'

OptionValue: bool | int

SPI_VERSION = (1, 2)

hook def onnxplug_ep_factories(host: 'Host') -> 'Iterable[EpFactory]'

deprecated Allocator.spare: Allocator.limit
"""


def changed(old: str, new: str) -> list[str]:
    assert old in RELEASED
    text = RELEASED.replace(old, new)
    return contract.breaks(contract.read(RELEASED), contract.read(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SPI_VERSION = (1, 2)", "SPI_VERSION = (1, 3)"),
        ("OptionValue:", "Option: int\n\nOptionValue:"),
        (
            "class Level",
            "class New(ABC)\n  @abstract def must(self) -> 'int'\n\nclass Level",
        ),
        ("  limit: int = 8", "  limit: int = 8\n  added: int = 0"),
        ("  limit: int = 8", "  limit: int = 8\n  def added(self) -> 'None'"),
        ("@abstract def empty", "def empty"),
        ("  *bytes: int = 1", "  *added: int = 0\n  *bytes: int = 1"),
        ("  *seconds: float", "  *seconds: float = 0.0"),
        ("  shape: tuple[int, ...]", "  shape: tuple[int, ...]\n  content: Any = None"),
        ("  ERROR = 'error'", "  ERROR = 'error'\n  WARNING = 'warning'"),
        ("  logger: Logger", "  logger: Logger\n  added: str"),
        ("text: 'str')", "text: 'str', level: 'int' = 0)"),
        ("node: 'str' = '')", "ep: 'str' = '', node: 'str' = '')"),
        ("strict: 'bool' = True", "strict: 'bool' = True, more: 'int' = 0"),
        ("(host: 'Host')", "(host: 'Host', added: 'int')"),
        ("hook def", "hook def onnxplug_added() -> 'None'\n\nhook def"),
    ],
)
def test_what_is_added_breaks_nobody(old: str, new: str) -> None:
    assert changed(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("def status", "def other", "status is gone"),
        ("class Level(StrEnum)", "class Level(IntEnum)", "Level is something else"),
        ("class Failed(RuntimeError)", "class Failed(OSError)", "Failed is something"),
        ("frozen dataclass Costs", "dataclass Costs", "Costs is something else"),
        ("  limit: int = 8\n", "", "Allocator.limit is gone"),
        ("limit: int = 8", "limit: int = 9", "Allocator.limit has changed"),
        ("  def spare", "  @abstract def spare", "Allocator.spare has changed"),
        ("stream: 'Stream | None' = None", "other: 'int' = 0", "Allocator.empty has"),
        (
            "= None) -> 'Any'",
            "= None, *, added: 'int' = 0) -> 'Any'",
            "Allocator.empty",
        ),
        (
            "  limit",
            "  @abstract def must(self) -> 'int'\n  limit",
            "EPs have to define",
        ),
        ("  *bytes: int = 1", "  *bytes: int = 1\n  *added: int", "has no default"),
        ("*bytes: int = 1", "*bytes: int = 2", "Costs.bytes has changed"),
        ("*seconds: float", "*seconds: int", "Costs.seconds has changed"),
        ("  dtype: DataType", "  added: int = 0\n  dtype: DataType", "another order"),
        ("ERROR = 'error'", "ERROR = 'ERROR'", "Level.ERROR has changed"),
        ("text: 'str')", "words: 'str')", "Host.log has changed"),
        ("text: 'str')", "text: 'str', level: 'int')", "Host.log has changed"),
        ("text: 'str')", "level: 'int' = 0, text: 'str' = '')", "Host.log has changed"),
        (
            "devices: 'Sequence[EpDevice]', /",
            "devices: 'Sequence[EpDevice]'",
            "__call__",
        ),
        (
            "strict: 'bool' = True",
            "strict: 'bool' = False",
            "status is called otherwise",
        ),
        ("code: 'int', *, strict", "code: 'int', strict", "status is called otherwise"),
        ("-> 'type'", "-> 'object'", "status is called otherwise"),
        (
            "OptionValue: bool | int",
            "OptionValue: bool",
            "OptionValue is something else",
        ),
        ("(host: 'Host')", "()", "onnxplug_ep_factories is called otherwise"),
    ],
)
def test_what_goes_or_changes_is_told(old: str, new: str, told: str) -> None:
    (found,) = changed(old, new)
    assert told in found


def test_a_major_version_removes_what_has_warned_and_nothing_else() -> None:
    raised = RELEASED.replace("SPI 1.2", "SPI 2.0")
    released = contract.read(RELEASED)
    gone = raised.replace("  def spare(self) -> 'int'\n", "")
    assert contract.breaks(released, contract.read(gone)) == []
    more = gone.replace("  limit: int = 8\n", "").replace("def status", "def other")
    assert contract.breaks(released, contract.read(more)) == [
        "Allocator.limit is gone, and did not warn in SPI 1.2",
        "status is gone, and did not warn in SPI 1.2",
    ]


def test_the_released_interface_is_read_whole() -> None:
    text = snapshot.RELEASED.read_text("utf-8")
    released = contract.read(text)
    entries = released.entries.values()
    lines = [line for line in text.splitlines()[1:] if line]
    assert len(lines) == len(released.entries) + sum(len(e.members) for e in entries)
    assert {"class", "enum", "protocol", "dataclass", "def", "hook", "value"} == {
        entry.kind for entry in entries
    }


def test_the_list_of_changes_has_this_version() -> None:
    page = Path(__file__).parents[3] / "docs/reference/spi-changelog.md"
    found = re.findall(r"^## (\d+)\.(\d+)$", page.read_text("utf-8"), re.M)
    versions = [(int(major), int(minor)) for major, minor in found]
    assert versions[0] == ep.SPI_VERSION
    assert versions == sorted(set(versions), reverse=True)
    assert versions[-1] == (0, 1)
