"""Finds the kernel of an operator at an opset version, importing one family at most.

A kernel is a plain function ``kernel(xp, *inputs, **attributes)``: *xp* is the
namespace of an array library (:mod:`onnxplug_kernels.namespaces`), inputs are
positional in the order of the ONNX operator with ``None`` for one that is left out, and
attributes are keyword-only parameters whose defaults are ONNX's.  So a signature *is*
the operator's schema.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

from onnxplug.authoring.number_list import NumberList
from onnxplug.authoring.operators import flags
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType, Graph, Node, Reason, RefusalCode
from onnxplug_kernels.families import FAMILIES
from onnxplug_kernels.namespaces import namespace_of

FLOATS: Final = frozenset(
    {DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64}
)
PORTABLE: Final = FLOATS | {DataType.INT32, DataType.INT64, DataType.BOOL}
"""What most kernels that say so are portable in: floats, sizes and indices, truths."""

Function = TypeVar("Function", bound=Callable[..., Any])

OUTPUT_COUNT: Final = "output_count"


class UnsupportedAttribute(NotImplementedError):
    """An attribute that the kernel of this operator version does not know, or lacks."""


class WrongInputs(ValueError):
    """More or fewer inputs than the operator has."""


class Kernel(Record):
    """One implementation of one operator.

    Attributes:
        since: first opset version of *domain* that the function is right for.
        until: last such version; ``None`` when it holds for all later ones.
        host_only: needs numpy arrays, and gives them: strings, images and maps.  Labels
            that are strings others take and give as numpy arrays, too.
        allowed: the values of attributes of which the function knows some only.
        check: looks at the attributes of a node, and raises UnsupportedAttribute.
        data_dependent: the shape of an output depends on elements of an input that are
            no sizes, such as how many are not zero: to find it out, they are looked at.
        portable: the element types of inputs for which the function gives on a GPU's
            arrays, too, what it gives on numpy's: tests compare it on torch's, and it
            names no element by an index of an input that it has not checked.  Empty:
            nothing is said.
        flags: attributes that are 0 or 1, beside those of ONNX.
    """

    domain: str
    op_type: str
    since: int
    until: int | None
    host_only: bool
    function: Callable[..., Any]
    allowed: Mapping[str, Collection[object]] = MappingProxyType({})
    check: Callable[[Mapping[str, Any]], None] | None = None
    data_dependent: bool = False
    portable: frozenset[DataType] = frozenset()
    flags: frozenset[str] = frozenset()

    def bind(
        self,
        xp: Any,
        attributes: Mapping[str, object],
        *,
        output_count: int,
        inputs: Sequence[object] | None = None,
    ) -> Callable[..., Any]:
        """A function of the inputs alone, returning one value or a tuple of them.

        *output_count* is how many outputs the node asks for, counted to the last one
        that is used; a kernel that can save work takes a parameter of that name.
        More values than asked for may come back.  *xp* is an array library, or its
        :func:`~onnxplug_kernels.namespaces.namespace_of`.  *inputs* are the names of
        the node's, ``None`` for one that is left out, which are checked when given.

        Raises:
            UnsupportedAttribute: the kernel has no parameter for an attribute, does not
                know its value, takes one of another type, or needs one that is not set.
            WrongInputs: the kernel takes fewer inputs, or needs more.
        """
        return self.bind_to(
            namespace_of(xp), attributes, output_count=output_count, inputs=inputs
        )

    def bind_to(
        self,
        first: Any,
        attributes: Mapping[str, object],
        *,
        output_count: int,
        inputs: Sequence[object] | None = None,
    ) -> Callable[..., Any]:
        """As :meth:`bind`, of a function whose first argument is *first* as it is.

        For EPs that declare functions of their own as kernels are declared, over a
        module that is no namespace of :mod:`onnxplug_kernels.namespaces`.

        Raises:
            UnsupportedAttribute: as :meth:`bind`.
            WrongInputs: likewise.
        """
        form = _form(self.function)
        self._check_attributes(attributes, form)
        if inputs is not None:
            self._check_inputs(inputs, form)
        for name, value in attributes.items():
            is_flag = name in self.flags or name in flags()
            if is_flag and value not in (0, 1):
                return functools.partial(_refuse, self.op_type, name, value)
        if form.counts_outputs:
            attributes = {**attributes, OUTPUT_COUNT: output_count}
        return functools.partial(self.function, first, **attributes)

    def _check_inputs(self, inputs: Sequence[object], form: _Form) -> None:
        if not form.fewest <= len(inputs) <= form.most:
            most = "" if form.most == form.fewest else f" to {form.most:.0f}"
            raise WrongInputs(
                f"{self.op_type} since version {self.since} has {form.fewest}{most} "
                f"inputs, and not {len(inputs)}"
            )
        for position, name in enumerate(inputs):
            if name is None and form.needs(position):
                raise WrongInputs(
                    f"{self.op_type} since version {self.since} needs input "
                    f"{position}, which is left out"
                )

    def _check_attributes(self, attributes: Mapping[str, object], form: _Form) -> None:
        given = attributes.keys()
        for what, names in (
            ("has no", given - form.attributes),
            ("needs the", form.required - given),
        ):
            if names:
                raise UnsupportedAttribute(
                    f"{self.op_type} since version {self.since} {what} attribute "
                    f"{', '.join(map(repr, sorted(names)))}; its attributes: "
                    f"{', '.join(sorted(form.attributes)) or 'none'}"
                )
        for name, value in attributes.items():
            wanted = form.types.get(name)
            if wanted is not None and not wanted.holds(value):
                raise UnsupportedAttribute(
                    f"{self.op_type} since version {self.since} has {name} "
                    f"{value!r:.60}; expected {wanted.words}"
                )
        for name, values in self.allowed.items():
            if name in attributes and attributes[name] not in values:
                raise UnsupportedAttribute(
                    f"{self.op_type} since version {self.since} has {name} "
                    f"{attributes[name]!r}; supported: {', '.join(map(repr, values))}"
                )
        if self.check is not None:
            self.check(attributes)


class Registry:
    """Kernels by operator, as the modules of a package declare them.

    Args:
        domain: of operators for which a declaration states none.
        flags: their attributes that are 0 or 1, beside those of ONNX's operators; of
            others a kernel is not asked for a result.
    """

    def __init__(self, domain: str = "", flags: frozenset[str] = frozenset()) -> None:
        self._domain = domain
        self._flags = flags
        self._kernels: dict[tuple[str, str], list[Kernel]] = {}

    def operator(
        self,
        op_type: str,
        *,
        since: int,
        until: int | None = None,
        domain: str | None = None,
        host_only: bool = False,
        allowed: Mapping[str, Collection[object]] = MappingProxyType({}),
        check: Callable[[Mapping[str, Any]], None] | None = None,
        data_dependent: bool = False,
        portable: frozenset[DataType] = frozenset(),
    ) -> Callable[[Function], Function]:
        """Declare the decorated function a kernel of *op_type*.

        A function may carry several declarations.
        """
        domain = self._domain if domain is None else domain

        def declare(function: Function) -> Function:
            kernels = self._kernels.setdefault((domain, op_type), [])
            kernels.append(
                Kernel(
                    domain,
                    op_type,
                    since,
                    until,
                    host_only,
                    function,
                    allowed,
                    check,
                    data_dependent,
                    portable,
                    self._flags,
                )
            )
            kernels.sort(key=lambda kernel: kernel.since, reverse=True)
            return function

        return declare

    def declared(self) -> Collection[tuple[str, str]]:
        """The domain and the name of every operator with a kernel."""
        return self._kernels.keys()

    def versions(self, domain: str, op_type: str) -> Sequence[Kernel]:
        """The kernels of all versions of an operator, the newest first."""
        return self._kernels.get((domain, op_type), ())

    def function_of(
        self, graph: Graph, node: Node, xp: Any
    ) -> Callable[..., Any] | Reason:
        """The function of *node* on arrays of *xp*, or why there is none.

        For ``onnxplug.ep.Operator.kernel``.
        """
        version = graph.opset(node.domain) or math.inf  # of no version: the newest
        kernel = _at(self.versions(node.domain, node.op_type), version)
        if kernel is None:
            return Reason(RefusalCode.OPSET, "no kernel of this version")
        return function_of(kernel, node, xp)


def function_of(kernel: Kernel, node: Node, xp: Any) -> Callable[..., Any] | Reason:
    """As :meth:`Kernel.bind` to what *node* sets, or why that cannot be."""
    wanted = [position for position, name in enumerate(node.outputs, 1) if name]
    try:
        return kernel.bind(
            xp,
            node.attributes,
            output_count=wanted[-1] if wanted else 0,
            inputs=node.inputs,
        )
    except UnsupportedAttribute as error:
        return Reason(RefusalCode.ATTRIBUTE, str(error))
    except WrongInputs as error:
        return Reason(RefusalCode.OTHER, str(error))


_OWN: Final = Registry()

operator: Final = _OWN.operator
"""Declares a kernel of this package; see :meth:`Registry.operator`."""


def find_kernel(domain: str, op_type: str, version: int) -> Kernel | None:
    """The kernel of an operator at opset *version* of *domain*, if there is one."""
    return _at(kernels_of(domain, op_type), version)


def _at(kernels: Sequence[Kernel], version: float) -> Kernel | None:
    for kernel in kernels:
        if kernel.since <= version:
            return kernel if kernel.until is None or version <= kernel.until else None
    return None


def kernels_of(domain: str, op_type: str) -> Sequence[Kernel]:
    """The kernels of all versions of an operator, the newest first."""
    family = FAMILIES.get((domain, op_type))
    if family is None:
        return ()
    if family not in _imported:
        importlib.import_module(f"onnxplug_kernels.{family}")
        _imported.add(family)
    return _OWN.versions(domain, op_type)


def all_operators() -> Iterable[tuple[str, str]]:
    """The domain and the name of every operator that has kernels."""
    return FAMILIES.keys()


def is_refusal(function: object) -> bool:
    """Whether what :meth:`Kernel.bind` gave only raises an error."""
    return isinstance(function, functools.partial) and function.func is _refuse


def _refuse(op_type: str, name: str, value: object, *inputs: Any) -> None:
    # at a run rather than at once: a node without a kernel would become its function
    # body, which takes the number for one or the other
    raise ValueError(f"{op_type} has {name} {value!r}; expected 0 or 1")


_imported: Final[set[str]] = set()


class _AttributeType(Record):
    """ONNX's type of an attribute: one *element*, or a list of them."""

    element: type | tuple[type, ...]
    is_list: bool
    words: str

    def holds(self, value: object) -> bool:
        """Whether *value* is of the type."""
        if not self.is_list:
            return isinstance(value, self.element)
        if isinstance(value, NumberList):
            return issubclass(value.element, self.element)
        # of each type once, as there may be a million elements
        return isinstance(value, tuple | list) and all(
            issubclass(each, self.element) for each in set(map(type, value))
        )


_NUMBER: Final = (float, int)
"""What a parameter for a float takes; some attributes were floats once, and are now
integers."""

_TYPES: Final = {
    "int": _AttributeType(int, False, "an integer"),
    "float": _AttributeType(_NUMBER, False, "a number"),
    "str": _AttributeType(str, False, "a string"),
    "[int": _AttributeType(int, True, "a list of integers"),
    "[float": _AttributeType(_NUMBER, True, "a list of numbers"),
    "[str": _AttributeType(str, True, "a list of strings"),
}


def _core(annotation: object) -> str:
    """What an annotation says of elements: ``[int`` for ``Sequence[int] | None``."""
    outer, bracket, inner = str(annotation).removesuffix(" | None").partition("[")
    return outer if not bracket else "[" + inner.rstrip("]").split(",")[0]


class _Form(Record):
    """What a kernel's signature says of its operator.

    Attributes:
        attributes: their names.
        required: those without a default.
        counts_outputs: it receives how many outputs are wanted.
        types: of the attributes that a parameter's annotation states the type of.
        fewest, most: how many inputs it takes.
        needed: positions of inputs that are not to be left out.
        needs_rest: neither are those of an argument list.
    """

    attributes: frozenset[str]
    required: frozenset[str]
    counts_outputs: bool
    types: Mapping[str, _AttributeType]
    fewest: int
    most: float
    needed: frozenset[int]
    needs_rest: bool

    def needs(self, position: int) -> bool:
        """Whether the input at *position* is not to be left out."""
        return position in self.needed or (self.needs_rest and position >= self.fewest)


@functools.cache
def _form(function: Callable[..., Any]) -> _Form:
    keywords, required = set(), set()
    types: dict[str, _AttributeType] = {}
    fewest, most = -1, -1.0  # the first parameter is the array namespace
    needed: set[int] = set()
    needs_rest = False
    for name, parameter in inspect.signature(function).parameters.items():
        is_optional = str(parameter.annotation).endswith("| None")
        match parameter.kind:
            case parameter.KEYWORD_ONLY:
                keywords.add(name)
                if (stated := _TYPES.get(_core(parameter.annotation))) is not None:
                    types[name] = stated
                if parameter.default is parameter.empty:
                    required.add(name)
            case parameter.VAR_POSITIONAL:
                most = math.inf
                needs_rest = not is_optional
            case parameter.POSITIONAL_ONLY | parameter.POSITIONAL_OR_KEYWORD:
                if parameter.default is parameter.empty:
                    if not is_optional:
                        needed.add(fewest)
                    fewest += 1
                most += 1
    return _Form(
        frozenset(keywords - {OUTPUT_COUNT}),
        frozenset(required - {OUTPUT_COUNT}),
        OUTPUT_COUNT in keywords,
        types,
        fewest,
        most,
        frozenset(needed),
        needs_rest,
    )
