"""Named tuples whose classes take little time to make.

Making a session and its first plan takes a hundred of them.  ``typing.NamedTuple``
writes the constructor of each as text, compiles that and every annotation, and gives
each class methods of its own: seven times the time, and more to clear away at the end.
"""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]  # namedtuple's own
from typing import TYPE_CHECKING, Any, Self, dataclass_transform

if TYPE_CHECKING:
    from inspect import Signature


class _RecordType(type):
    """Makes a record of the fields that the body of a class annotates, after those of
    its base."""

    _fields: tuple[str, ...]
    _defaults: dict[str, Any]
    _rest: dict[int, tuple[Any, ...]]
    """What the last fields are, by how many are given before them."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], body: dict[str, Any]
    ) -> _RecordType:
        base: Any = bases[0]
        own = body.get("__annotations__", ())
        fields = tuple(dict.fromkeys((*getattr(base, "_fields", ()), *own)))
        body["_defaults"] = getattr(base, "_defaults", {}) | {
            field: body[field] for field in own if field in body
        }
        body["_fields"] = body["__match_args__"] = fields
        body["_rest"] = rest = dict[int, tuple[Any, ...]]()
        last: tuple[Any, ...] = ()
        for position in range(len(fields) - 1, -2, -1):
            rest[position + 1] = last
            if position < 0 or fields[position] not in body["_defaults"]:
                break
            last = (body["_defaults"][fields[position]], *last)
        body["__slots__"] = ()
        for position, field in enumerate(fields):
            body[field] = _tuplegetter(position, f"Field {position}.")
        return super().__new__(cls, name, bases, body)

    @property
    def __signature__(cls) -> Signature:
        """What ``help`` and documentation say that its fields are."""
        from inspect import Parameter, Signature

        kinds: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            kinds |= vars(base).get("__annotations__", {})
        return Signature(
            [
                Parameter(
                    field,
                    Parameter.POSITIONAL_OR_KEYWORD,
                    default=cls._defaults.get(field, Parameter.empty),
                    annotation=kinds[field],
                )
                for field in cls._fields
            ]
        )


@dataclass_transform(frozen_default=True)
class Record(tuple[Any, ...], metaclass=_RecordType):
    """A tuple with names for its elements, which a subclass annotates.

    Fields are given by position or by name; those that the subclass assigns to have
    defaults.  It cannot be changed, equals any tuple of equal elements, and is hashed
    as one.

    Raises:
        TypeError: a field is missing or given twice, or there is none of that name.
    """

    def __new__(cls, *values: Any, **named: Any) -> Self:
        rest = None if named else cls._rest.get(len(values))
        if rest is None:
            values = cls._completed(values, named)
        elif rest:
            values += rest
        return tuple.__new__(cls, values)

    @classmethod
    def _completed(
        cls, values: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Any, ...]:
        left = cls._fields[len(values) :]
        # as many as are left, of which each is found, are no others
        is_whole = len(named) == len(left)
        found = named if is_whole else cls._defaults | named
        try:
            whole = values + tuple([found[field] for field in left])
        except KeyError:  # neither given nor a default
            whole = ()
        if len(whole) == len(cls._fields) and (is_whole or named.keys() <= set(left)):
            return whole
        raise TypeError(
            f"{cls.__name__} has the fields {', '.join(cls._fields)}; got "
            f"{len(values)} by position, and {', '.join(named) or 'none'} by name"
        )

    def __repr__(self) -> str:
        fields = zip(type(self)._fields, self, strict=True)
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in fields)})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def _replace(self, **changes: Any) -> Self:
        """The same with other values of some fields."""
        return type(self)(**self._asdict() | changes)

    def _asdict(self) -> dict[str, Any]:
        """The values by the names of their fields."""
        return dict(zip(type(self)._fields, self, strict=True))
