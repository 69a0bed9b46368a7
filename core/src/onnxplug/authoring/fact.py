"""Frozen dataclasses whose classes take little time to make.

``dataclasses.dataclass`` writes the methods of each class as text and compiles that,
which is four fifths of the time that the interface of EPs takes to import.  Of these
classes a method is written when it is first called, and most never are.  All else of
them is as of any dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from inspect import Signature

_Class = TypeVar("_Class", bound=type)


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def fact(*, eq: bool = True) -> Callable[[_Class], _Class]:
    """A decorator that makes a class a frozen dataclass with slots, whose fields are
    given by name.

    Args:
        eq: whether equal fields make it equal, and not only identity.
    """
    return lambda cls: _made(cls, eq=eq, kw_only=True)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def ordered_fact() -> Callable[[_Class], _Class]:
    """The same of one whose fields may be given by position."""
    return lambda cls: _made(cls, eq=True, kw_only=False)


def _made(cls: _Class, *, eq: bool, kw_only: bool) -> _Class:
    made: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=True, kw_only=kw_only
    )(cls)
    own = vars(made)
    shared = _SHARED | (_BY_CONTENT if eq else {})
    for name, method in shared.items():
        # as dataclass does, which leaves what the class has itself
        if name not in own or own[name] is None:
            setattr(made, name, method)
    parameters = made.__dataclass_params__
    parameters.init = parameters.repr = parameters.frozen = True
    parameters.eq = eq
    return made  # type: ignore[no-any-return]


def _init(self: Any, *values: Any, **named: Any) -> None:
    """Write the constructor, as somebody wants one, and call it."""
    cls = type(self)
    cls.__init__ = _written(cls)
    cls.__init__(self, *values, **named)


def _written(cls: Any) -> Callable[..., None]:
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"left_out": _LEFT_OUT}
    parameters, lines = ["self"], []
    if any(each.kw_only for each in fields):
        parameters.append("*")
    for each in fields:
        name = each.name
        names[f"put_{name}"] = getattr(cls, name).__set__
        value = name
        if each.default is not dataclasses.MISSING:
            names[f"default_{name}"] = each.default
            parameters.append(f"{name}=default_{name}")
        elif each.default_factory is not dataclasses.MISSING:
            names[f"make_{name}"] = each.default_factory
            parameters.append(f"{name}=left_out")
            value = f"make_{name}() if {name} is left_out else {name}"
        else:
            parameters.append(name)
        lines.append(f"put_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n    ".join(lines or ["pass"])
    exec(f"def __init__({', '.join(parameters)}):\n    {body}", names)
    written: Callable[..., None] = names["__init__"]
    written.__qualname__ = f"{cls.__qualname__}.__init__"
    return written


def _repr(self: Any) -> str:
    shown = [each for each in dataclasses.fields(self) if each.repr]
    parts = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in shown)
    return f"{type(self).__qualname__}({parts})"


def _eq(self: Any, other: object) -> Any:
    _write_comparisons(type(self))
    return self.__eq__(other)


def _hash(self: Any) -> int:
    _write_comparisons(type(self))
    return hash(self)


def _write_comparisons(cls: Any) -> None:
    compared = [each.name for each in dataclasses.fields(cls) if each.compare]
    mine, others = (
        "".join(f"{each}.{name}, " for name in compared) for each in ("self", "other")
    )
    names: dict[str, Any] = {}
    exec(
        "def __eq__(self, other):\n"
        "    if other.__class__ is not self.__class__:\n"
        "        return NotImplemented\n"
        f"    return ({mine}) == ({others})\n"
        "def __hash__(self):\n"
        f"    return hash(({mine}))\n",
        names,
    )
    for name, ours in _BY_CONTENT.items():
        if getattr(cls, name) is ours:  # the class may have one of them itself
            setattr(cls, name, names[name])


def _setattr(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _setstate(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)


class _SignatureOfFields:
    """What ``help`` and documentation say that the fields are."""

    def __get__(self, instance: object, owner: Any) -> Signature:
        from inspect import Parameter, Signature

        return Signature(
            [
                Parameter(
                    each.name,
                    Parameter.KEYWORD_ONLY
                    if each.kw_only
                    else Parameter.POSITIONAL_OR_KEYWORD,
                    default=_default_of(each, Parameter.empty),
                    annotation=each.type,
                )
                for each in dataclasses.fields(owner)
            ]
        )


def _default_of(field: dataclasses.Field[Any], none: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return _LEFT_OUT
    return none


_LEFT_OUT: Any = dataclasses._HAS_DEFAULT_FACTORY  # type: ignore[attr-defined]
"""Stands for a field that is made when it is not given; dataclasses have the same."""

_SHARED: dict[str, Any] = {
    "__init__": _init,
    "__repr__": _repr,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
    "__signature__": _SignatureOfFields(),
}
_BY_CONTENT: dict[str, Any] = {"__eq__": _eq, "__hash__": _hash}
