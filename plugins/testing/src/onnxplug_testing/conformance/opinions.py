"""What a model gives by those who are trusted, and how far an EP is from all of them.

Nobody is right alone: an EP is blamed where one of them contradicts it and none agrees
with it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.subject import Subject, reference_session
from onnxplug_testing.measuring.variations import Variation

Results: TypeAlias = Sequence[Any]

NEAR: Final = {
    "float64": (1e-8, 1e-9),
    "float32": (1e-3, 1e-5),
    "float16": (1e-2, 2e-3),
    "bfloat16": (4e-2, 1e-2),
}
"""How far results may be, relative and absolute, by the coarsest type in the model; of
others nothing is allowed, but for floats of eight bits and less."""

DRAWN: Final = frozenset({"edge", "mutated", "shape"})
"""Kinds of cases that may be none of ONNX's."""

UNSURE: Final = DRAWN | {"pitfall", "target"}
"""Kinds of cases where ONNX's reference may err."""

_COARSE: Final = (0.26, 0.1)

_QUICKLY: Final = 512
"""Elements of which ONNX's reference computes most operators sooner than a session is
made."""


def difference(found: Results, expected: Results, dtypes: Sequence[str] = ()) -> str:
    """How *found* differs in count, dtype, shape or values; empty if it does not.

    Args:
        dtypes: of inputs, which may be coarser than results.
    """
    if len(found) != len(expected):
        return f"found {len(found)} results, expected {len(expected)}"
    for position, (ours, right) in enumerate(zip(found, expected, strict=True)):
        text = _differs(ours, right, dtypes)
        if text:
            which = f"result {position}" if len(expected) > 1 else "the result"
            return f"{which} {text}"
    return ""


def _differs(ours: Any, right: Any, dtypes: Sequence[str]) -> str:
    if isinstance(right, list):
        if not isinstance(ours, list) or len(ours) != len(right):
            return "is another sequence than expected"
        return next(filter(None, map(_differs, ours, right, [dtypes] * len(right))), "")
    if right is None or ours is None:
        return "" if ours is right else "is there, or absent, other than expected"
    if not isinstance(right, np.ndarray | np.generic):
        return ""  # sparse or of maps: not compared
    right, ours = np.asarray(right), np.asarray(ours)
    if ours.dtype != right.dtype and not (
        ours.dtype.kind in "OUS" and right.dtype.kind in "OUST"
    ):
        return f"is of {ours.dtype}, expected {right.dtype}"
    if ours.shape != right.shape:
        return f"is of shape {list(ours.shape)}, expected {list(right.shape)}"
    return _values_differ(ours, right, dtypes)


def _values_differ(ours: Any, right: Any, dtypes: Sequence[str]) -> str:
    if right.dtype.kind in "OUSTb":
        same = ours == right
        wrong = np.argwhere(~np.asarray(same, bool).reshape(right.shape))
    elif right.dtype.kind in "iu":
        wrong = np.argwhere(ours != right)
    else:
        relative, absolute = _near(right.dtype, dtypes)
        share = max(_OF_LARGEST.get(name, 0.0) for name in (right.dtype.name, *dtypes))
        absolute += share * _largest(right)
        wide = np.complex128 if right.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            near = np.isclose(
                ours.astype(wide),
                right.astype(wide),
                rtol=relative,
                atol=absolute,
                equal_nan=True,
            )
        wrong = np.argwhere(~near)
    if not len(wrong):
        return ""
    place = tuple(int(number) for number in wrong[0])
    return (
        f"is wrong in {len(wrong)} of {right.size} elements of {right.dtype}: at "
        f"{list(place)} {ours[place]}, expected {right[place]}"
    )


_OF_LARGEST: Final = {
    "float64": 1e-12,
    "float32": 2e-6,
    "float16": 8e-3,
    "bfloat16": 4e-2,
}
"""How far results may be relative to the largest of them, which may be summed with
others, by the coarsest type."""


def _near(dtype: Any, dtypes: Sequence[str]) -> tuple[float, float]:
    names = [dtype.name, *dtypes]
    if any(name.startswith(("float8_", "float6_", "float4_")) for name in names):
        return _COARSE
    if dtype.name == "complex128":
        return NEAR["float64"]
    return max((NEAR[name] for name in names if name in NEAR), default=NEAR["float32"])


def _largest(right: Any) -> float:
    """The largest finite number."""
    sizes = np.abs(right.astype(np.complex128 if right.dtype.kind == "c" else float))
    return float(np.max(sizes, where=np.isfinite(sizes), initial=0.0))


def dtypes_of(case: Case) -> list[str]:
    """Names of the element types that *case* is fed."""
    return [str(array.dtype) for array in case.feeds.values()]


def contradiction(
    found: Results,
    case: Case,
    subject: Subject,
    expected: Results | None = None,
    *,
    is_old: bool = False,
) -> tuple[str, bool]:
    """How *found* is contradicted, empty if it is not; and whether anybody had an
    opinion.

    Args:
        expected: what those say who wrote the case, if they do.
        is_old: the operators are of a version that ONNX's reference may not know: it
            has the newest of most only.
    """
    against: list[tuple[int, str]] = []
    asked = False
    for weight, opinion in _opinions(case, subject, expected, is_old):
        asked = True
        text = difference(found, opinion, dtypes_of(case))
        if not text:
            return "", True
        against.append((weight, text))
    return max(against, default=(0, ""))[1], asked


def is_agreed(case: Case, subject: Subject) -> bool:
    """Whether two that are independent of the EP compute *case*, and alike: then it is
    right, and no error."""
    if subject.is_reference:
        return False
    try:
        opinions = by_cpu(case), by_reference(case)
    except Exception:  # noqa: BLE001 (whoever cannot compute it has no opinion)
        return False
    return not difference(*opinions, dtypes_of(case))


def is_computed(case: Case) -> bool:
    """Whether the CPU EP, which looks at what it is fed, computes *case* at all."""
    try:
        by_cpu(case)
    except Exception:  # noqa: BLE001 (whatever is wrong with the case)
        return False
    return True


def may_be_blamed(subject: Subject, tried: Variation, case: Case) -> bool:
    """Whether what an EP raises of *case* is wrong, and not the case."""
    if tried.expected is not None:
        return True
    if tried.kind in DRAWN:
        return is_agreed(case, subject)
    is_old = tried.kind == "version"
    return contradiction([], case, subject, is_old=is_old)[1]


def _opinions(
    case: Case, subject: Subject, expected: Results | None, is_old: bool
) -> Iterator[tuple[int, Results]]:
    """What is said of *case*, and how much weight that has where nobody agrees with an
    EP; whoever is asked sooner says it in less time."""
    if expected is not None:
        yield 3, expected
    by: list[tuple[int, Callable[[Case], Results]]] = []
    if not subject.is_reference:
        by.append((2, by_cpu))
    if not is_old:
        # which goes through windows in Python, and through little in no time
        place = 0 if _elements(case) <= _QUICKLY else len(by)
        by.insert(place, (1, by_reference))
        by.append((0, by_function))
    for weight, ask in by:
        try:
            opinion = ask(case)
        except Exception:  # noqa: BLE001 (whoever cannot compute it has no opinion)
            continue
        if _of_declared_types(opinion, case):
            yield weight, opinion


def _elements(case: Case) -> int:
    return sum(int(np.size(array)) for array in case.feeds.values())


def _of_declared_types(opinion: Results, case: Case) -> bool:
    """Whether results are of the types that the model says; the reference may err."""
    outputs = onnx.load_model_from_string(case.model).graph.output
    for result, output in zip(opinion, outputs, strict=True):
        element = output.type.tensor_type.elem_type
        if element in (0, onnx.TensorProto.STRING) or not hasattr(result, "dtype"):
            continue
        if result.dtype != onnx.helper.tensor_dtype_to_np_dtype(element):
            return False
    return True


def by_cpu(case: Case) -> Results:
    """What the CPU EP gives."""
    with reference_session(case.model) as session:
        results: Results = session.run(None, dict(case.feeds))
        return results


def by_function(case: Case) -> Results:
    """What the function gives that ONNX expands the only node to.

    It may be of other numbers than the operator's formula, where ONNX contradicts
    itself; an EP may be given the one as well as the other.

    Raises:
        ValueError: there are several nodes, or the operator is no function.
    """
    model = onnx.load_model_from_string(case.model)
    (node,) = model.graph.node
    (opset,) = (each.version for each in model.opset_import if not each.domain)
    schema: Any = onnx.defs.get_schema(node.op_type, opset, node.domain)
    body = onnx.FunctionProto()
    if schema.has_function:
        body.CopyFrom(schema.function_body)
    elif schema.has_context_dependent_function:
        types = {value.name: value.type for value in model.graph.input}
        given = [types[name].SerializeToString() for name in node.input if name]
        text = schema.get_context_dependent_function(node.SerializeToString(), given)
        body.ParseFromString(text)
    else:
        raise ValueError(f"{node.op_type} is no function")
    node.domain = body.domain = "expanded"
    known = {attribute.name for attribute in node.attribute}
    for name in set(body.attribute) - known:
        node.attribute.append(schema.attributes[name].default_value)
    model.functions.append(body)
    model.opset_import.append(onnx.helper.make_opsetid("expanded", 1))
    return by_reference(Case(model.SerializeToString(), case.feeds, case.name))


def by_reference(case: Case) -> Results:
    """What ONNX's own implementation gives."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        evaluator = ReferenceEvaluator(onnx.load_model_from_string(case.model))
        results = evaluator.run(None, dict(case.feeds))
    return [
        np.asarray(each) if isinstance(each, np.generic) else each for each in results
    ]
