"""Every public signature of the SPI, as text.

``python core/tests/ep/snapshot.py`` writes it to ``spi_snapshot.txt`` beside this file.
Do so after a change of the SPI, together with a higher ``SPI_VERSION``.  With
``released`` after it, it writes ``spi_released.txt``, to which later ones are held: do
so when a version is released, or to decide that a change breaks nobody.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pluggy

from onnxplug import ep
from onnxplug.ep.version import DEPRECATED
from onnxplug.plugins import hookspecs

FILE = Path(__file__).with_name("spi_snapshot.txt")

RELEASED = Path(__file__).with_name("spi_released.txt")


def render() -> str:
    """The SPI's version, then each public name with all that plugins may rely on."""
    lines = [f"SPI {'.'.join(map(str, ep.SPI_VERSION))}"]
    for name in sorted(ep.__all__):
        lines += ["", *_described(name, getattr(ep, name))]
    for name, hook in sorted(vars(hookspecs).items()):
        if name.startswith("onnxplug_"):
            lines += ["", f"hook def {name}{inspect.signature(hook)}"]
    for name, deprecation in sorted(DEPRECATED.items()):
        lines += ["", f"deprecated {name}: {deprecation.instead}"]
    return "\n".join(lines) + "\n"


def _described(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, pluggy.HookimplMarker):
        yield f"{name} = HookimplMarker({value.project_name!r})"
    elif _is_alias(value):
        yield f"{name}: {str(value).replace(f'{ep.__name__}.types.', '')}"
    elif inspect.isclass(value):
        yield f"{_kind(value)} {name}({', '.join(_bases(value))})"
        yield from (f"  {line}" for line in _members(value))
    elif inspect.isfunction(value):
        yield f"def {name}{inspect.signature(value)}"
    else:
        yield f"{name} = {value!r}"


def _is_alias(value: Any) -> bool:
    return value is Any or isinstance(value, types.UnionType)


def _kind(cls: type) -> str:
    if dataclasses.is_dataclass(cls):
        frozen = "frozen " if cls.__dataclass_params__.frozen else ""
        return f"{frozen}dataclass"
    return "protocol" if _is_protocol(cls) else "class"


def _is_protocol(cls: type) -> bool:
    return typing.Protocol in cls.__bases__


def _bases(cls: type) -> list[str]:
    if issubclass(cls, BaseException):
        # what plugins rely on is which builtin error it is
        kinds = [kind for kind in cls.__mro__ if kind.__module__ == "builtins"]
        return [
            kind.__name__
            for kind in kinds
            if not any(other is not kind and issubclass(other, kind) for other in kinds)
        ]
    return [base.__name__ for base in cls.__bases__ if base is not object]


def _members(cls: type) -> Iterator[str]:
    if issubclass(cls, enum.Enum):
        yield from (f"{member.name} = {member.value!r}" for member in cls)
    if _has_own_constructor(cls):
        yield f"def __init__{inspect.signature(cls.__init__)}"
    if dataclasses.is_dataclass(cls):
        yield from map(_field, dataclasses.fields(cls))
    else:
        yield from _annotated(cls)
    for name, value in sorted(vars(cls).items()):
        if name == "__call__" or not name.startswith("_"):
            yield from _method(name, value)


def _has_own_constructor(cls: type) -> bool:
    return "__init__" in vars(cls) and not (
        dataclasses.is_dataclass(cls) or _is_protocol(cls)
    )


def _field(field: dataclasses.Field[Any]) -> str:
    keyword = "*" if field.kw_only else ""
    text = f"{keyword}{field.name}: {field.type}"
    if field.default is not dataclasses.MISSING:
        return f"{text} = {field.default!r}"
    if field.default_factory is not dataclasses.MISSING:
        return f"{text} = {field.default_factory.__name__}()"
    return text


def _annotated(cls: type) -> Iterator[str]:
    defaults = getattr(cls, "_defaults", vars(cls))
    for name, annotation in inspect.get_annotations(cls).items():
        if not name.startswith("_"):
            default = f" = {defaults[name]!r}" if name in defaults else ""
            yield f"{name}: {annotation}{default}"


def _method(name: str, value: Any) -> Iterator[str]:
    function = (
        value.__func__ if isinstance(value, classmethod | staticmethod) else value
    )
    decorators = [type(value).__name__] if function is not value else []
    if isinstance(value, property):
        decorators, function = ["property"], value.fget
    if not inspect.isfunction(function):
        return  # an annotated attribute, a field or an enum's member: told above
    if getattr(function, "__isabstractmethod__", False):
        decorators.append("abstract")
    prefix = "".join(f"@{decorator} " for decorator in decorators)
    yield f"{prefix}def {name}{inspect.signature(function)}"


if __name__ == "__main__":
    target = RELEASED if sys.argv[1:] == ["released"] else FILE
    target.write_text(render(), "utf-8")
    print(f"wrote {target}")
