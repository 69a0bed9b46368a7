"""Listens to what host and EP say to each other, without standing between them.

The methods are wrapped in the EP's own objects, so that each EP still gets what it made
itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from onnxplug import ep
from onnxplug_testing.conformance.subject import Subject

Listener = Callable[..., None]


class Asked(NamedTuple):
    """A ``get_capability``.

    Attributes:
        graph: which changes afterwards, as the host replaces nodes.
        nodes: those that it had, by their indices.
        report: the answer.
    """

    graph: ep.Graph
    nodes: Mapping[int, ep.Node]
    report: ep.CapabilityReport

    def reasons(self) -> dict[int, ep.Reason | None]:
        """Why each node was refused; ``None`` for those that were claimed."""
        found: dict[int, ep.Reason | None] = {
            refusal.node: refusal.reason for refusal in self.report.refusals
        }
        for claim in self.report.claims:
            found |= dict.fromkeys(claim.nodes, None)
        return found


Then: TypeAlias = Callable[["ep.ExecutionProvider", Asked], None]


class Talk:
    """What was said in sessions of a subject.

    Attributes:
        providers: the EPs that its factory created.
        asked: each ``get_capability``.
        compiled: of each ``compile``, the partition and what was compiled.
        declined: of each ``compile`` that declined, the partition and the reason.
        options: those that ``create`` was given, which know whether they were read.
    """

    def __init__(self) -> None:
        self.providers: list[ep.ExecutionProvider] = []
        self.asked: list[Asked] = []
        self.compiled: list[tuple[ep.Partition, ep.CompiledPartition]] = []
        self.declined: list[tuple[ep.Partition, ep.Declined]] = []
        self.options: list[ReadOptions] = []


class ReadOptions(dict[str, ep.OptionValue]):
    """Options that know which of them were looked at.

    Attributes:
        read: names that were asked for; all, once they are gone through.
    """

    def __init__(self, options: Mapping[str, ep.OptionValue]) -> None:
        super().__init__(options)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> ep.OptionValue:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self.read.update(super().keys())
        return super().__iter__()

    def keys(self) -> Any:
        self.read.update(super().keys())
        return super().keys()

    def items(self) -> Any:
        self.read.update(super().keys())
        return super().items()

    def values(self) -> Any:
        self.read.update(super().keys())
        return super().values()

    def copy(self) -> Any:
        self.read.update(super().keys())
        return super().copy()


class Heard(Exception):
    """Ends the making of a session when the EP has answered what was asked."""


@contextmanager
def listening(
    subject: Subject, *, until_asked: bool = False, then: Then | None = None
) -> Iterator[Talk]:
    """A context in which all that sessions say to the EP is noted.

    Args:
        until_asked: a session ends with the EP's first answer, so that nothing is
            compiled.
        then: is called with the EP and its first answer, before the session ends with
            that.

    Raises:
        TypeError: the factory takes no attributes, so nothing can be heard.
    """
    talk = Talk()
    factory = subject.factory
    create = factory.create

    @functools.wraps(create)
    def created(
        devices: Any, options: Mapping[str, Any], session: Any
    ) -> ep.ExecutionProvider:
        talk.options.append(ReadOptions(options))
        provider = create(devices, talk.options[-1], session)
        talk.providers.append(provider)
        _listen_to(provider, talk, until_asked or then is not None, then)
        return provider

    with replaced(factory, "create", created):
        yield talk


@contextmanager
def ignoring_failures() -> Iterator[None]:
    """A context of which nothing is to be known but what was said in it."""
    try:
        yield
    except (Exception, SystemExit):  # noqa: BLE001 (whatever an EP raises)
        return


@contextmanager
def replaced(target: Any, name: str, value: Any) -> Iterator[None]:
    """A context in which an object has another attribute than its class gives it.

    Raises:
        TypeError: the object takes no attributes.
    """
    own = vars(target) if hasattr(target, "__dict__") else None
    if own is None:
        raise TypeError(f"a {type(target).__name__} takes no attributes")
    had, before = name in own, own.get(name)
    own[name] = value
    try:
        yield
    finally:
        if had:
            own[name] = before
        else:
            own.pop(name, None)


def _listen_to(
    provider: ep.ExecutionProvider,
    talk: Talk,
    until_asked: bool,
    then: Then | None,
) -> None:
    if not hasattr(provider, "__dict__"):
        return
    claim, make = provider.get_capability, provider.compile

    @functools.wraps(claim)
    def claimed(graph: ep.Graph) -> ep.CapabilityReport:
        nodes = {node.index: node for node in graph.nodes}
        report = claim(graph)
        talk.asked.append(Asked(graph, nodes, report))
        if then is not None:
            then(provider, talk.asked[-1])
        if until_asked:
            raise Heard
        return report

    @functools.wraps(make)
    def compiled(partition: ep.Partition) -> ep.CompiledPartition:
        try:
            made = make(partition)
        except ep.Declined as error:
            talk.declined.append((partition, error))
            raise
        talk.compiled.append((partition, made))
        return made

    vars(provider).update(get_capability=claimed, compile=compiled)
