"""A kernel's key tells all that its code depends on."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

import onnxplug_cpu.compiler
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_cpu.compiler.codegen.emit import Module
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel
from onnxplug_cpu.compiler.machine.isa import Isa
from onnxplug_cpu.compiler.runtime import driver, pool

from ..differential import session
from ..random_graphs import RandomGraph
from ..random_nodes import MAKERS
from ..rarely import first
from ..reachable import Reach


def generators() -> list[type[Generator]]:
    """All classes that write kernels."""
    package = onnxplug_cpu.compiler
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(found.name)
    classes = [Generator]
    for class_ in classes:
        classes.extend(class_.__subclasses__())
    return [
        class_
        for class_ in classes
        if class_.__module__.startswith(package.__name__)
        and class_.write is not Generator.write
    ]


def test_generators_know_their_fields_and_the_processor_only() -> None:
    reach = Reach()
    for class_ in generators():
        parameters = list(inspect.signature(class_.write).parameters)
        assert parameters == ["self", "module", "name", "isa"]
        reach.follow(class_.write)
        if isinstance(class_.words, property):
            assert class_.words.fget
            reach.follow(class_.words.fget)
    assert not reach.wrong
    assert reach.functions > 300


class OfTheEnvironment(Generator):
    def write(self, module: Module, name: str, isa: Isa) -> None:
        module.add(os.curdir)


class OfTheSystem(Generator):
    def write(self, module: Module, name: str, isa: Isa) -> None:
        module.add(indirectly())


class OfAList(Generator):
    def write(self, module: Module, name: str, isa: Isa) -> None:
        module.add(str(COLLECTED))


class OfTheInterpreter(Generator):
    def write(self, module: Module, name: str, isa: Isa) -> None:
        module.add(str(HEAD))


class OfAnIdentity(Generator):
    def write(self, module: Module, name: str, isa: Isa) -> None:
        module.add(str(id(module)))


def indirectly() -> str:
    return PLATFORM


PLATFORM = sys.platform
COLLECTED = [1]
HEAD = 8 + object.__basicsize__


@pytest.mark.parametrize(
    "class_",
    [OfTheEnvironment, OfTheSystem, OfAList, OfTheInterpreter, OfAnIdentity],
)
def test_what_else_a_generator_knows_is_found(class_: type[Generator]) -> None:
    reach = Reach(__name__)
    reach.follow(class_.write)
    assert len(reach.wrong) == 1


def test_a_generator_is_not_made_within_a_function() -> None:
    with pytest.raises(TypeError, match="could depend on what is around it"):

        class Local(Generator):
            pass


def test_generators_have_keys_of_their_own() -> None:
    names = [class_.name for class_ in generators()]
    assert len(set(names)) == len(names)
    for class_ in generators():
        assert getattr(sys.modules[class_.__module__], class_.__name__) is class_


def made(graphs: int) -> list[Generator]:
    """Generators with parameters that plans of random graphs need."""
    found: dict[str, Generator] = {}
    make = Kernel.__init__

    def noted(kernel: Kernel, generator: Generator) -> None:
        make(kernel, generator)
        found[kernel.key] = generator

    with mock.patch.object(Kernel, "__init__", noted):
        for seed in range(graphs):
            graph = RandomGraph(seed).make(30, MAKERS)
            session(graph.model, compiled=True, threads=2).run(None, graph.feeds)
    return [
        *found.values(),
        driver.ENTRY.generator,
        pool.WORKER.generator,
        pool.WAKE_ALL.generator,
    ]


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        assert type(value) is tuple or isinstance(value, Parameters)
        for each in value:
            yield from leaves(each)
    else:
        yield value


def others(value: Any) -> list[Any]:
    """Values that are hard to tell from *value*."""
    match value:
        case bool():
            return [not value, int(value), str(value)]
        case int():
            return [value + 1, -value - 1, float(value), str(value)]
        case float():
            return [math.nextafter(value, 9.5), -value, str(value)]
        case str():
            return [f"{value}x", f"{value}'", None]
        case None:
            return ["None", 0, ()]
        case tuple():
            changed = [
                (*value[:place], other, *value[place + 1 :])
                for place in range(len(value))
                for other in others(value[place])
            ]
            return [(*value, None), (tuple(value),), *changed]
    raise AssertionError(value)


@pytest.mark.parametrize("graphs", first(1, [3, 8]))
def test_another_value_of_any_field_gives_another_key(graphs: int) -> None:
    tried = set()
    for generator in made(graphs):
        assert {*map(type, leaves(generator))} <= {str, int, bool, float, type(None)}
        key = Kernel(generator).key
        assert Kernel(type(generator)(*generator)).key == key
        for field, value in generator._asdict().items():
            tried.add((type(generator), field))
            for other in others(value):
                changed = generator._replace(**{field: other})
                assert changed.key != key
    assert len(tried) > 50
