"""Products of matrices."""

from __future__ import annotations

from onnxplug import ep
from onnxplug.authoring.sizes import product
from onnxplug_coreml.lowering.builder import Builder, Refused
from onnxplug_coreml.lowering.call import FLOATS, Call, lowers, numbers
from onnxplug_coreml.lowering.operators.arithmetic import scaled
from onnxplug_coreml.lowering.program import Value


@lowers("MatMul")
def _matmul(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    return multiplied(call.build, call.operand(0), call.operand(1))


def multiplied(build: Builder, x: Value, y: Value) -> Value:
    """numpy.matmul, of vectors too."""
    if 0 in (x.rank, y.rank):
        raise Refused(ep.RefusalCode.RANK, "a product of scalars")
    row, column = x.rank == 1, y.rank == 1
    left = build.reshape(x, (1, *x.shape)) if row else x
    right = build.reshape(y, (*y.shape, 1)) if column else y
    found = build.matmul(left, right)
    shape = list(found.shape)
    if column:
        del shape[-1]
    if row:
        del shape[-1 if column else -2]
    return build.reshape(found, tuple(shape))


@lowers("Gemm")
def _gemm(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    build = call.build
    if call.since < 7:
        call.ignore("broadcast")
    if call.since < 7 and call.shape(2) != call.output_shape():
        raise Refused(ep.RefusalCode.OPSET, "Gemm that broadcasts before version 7")
    x, y = call.operand(0), call.operand(1)
    x = build.transpose(x, (1, 0)) if call.attribute("transA", 0) else x
    y = build.transpose(y, (1, 0)) if call.attribute("transB", 0) else y
    found = scaled(build, build.matmul(x, y), call.attribute("alpha", 1.0))
    bias, beta = call.optional(2), call.attribute("beta", 1.0)
    if bias is None or beta == 0:
        return found
    return build("add", found, scaled(build, bias, beta))


@lowers("Einsum")
def _einsum(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    terms, _, result = call.attribute("equation").replace(" ", "").partition("->")
    names = terms.split(",")
    operands = call.operands()
    supported = (
        "->" in call.attribute("equation")
        and len(operands) <= 2
        and "." not in terms
        and all(len(set(term)) == len(term) for term in (*names, result))
        and set(result) <= set(terms)
    )
    if not supported:
        raise call.refuse_attribute(
            "equation",
            "one or two terms without dots or repeated letters, and a result",
        )
    build = call.build
    if len(operands) == 1:
        return _summed(build, operands[0], names[0], result)
    return _contracted(build, operands, names, result)


def _summed(build: Builder, x: Value, term: str, result: str) -> Value:
    """*x* summed over the letters that the result lacks, in the result's order."""
    gone = tuple(i for i, letter in enumerate(term) if letter not in result)
    if gone:
        x = build("reduce_sum", x, axes=gone, keep=False)
        term = "".join(letter for letter in term if letter in result)
    return build.transpose(x, [term.index(letter) for letter in result])


def _contracted(
    build: Builder, operands: list[Value], names: list[str], result: str
) -> Value:
    """Two terms as one product of matrices for each batch."""
    (x, y), (first, second) = operands, names
    sizes = dict(zip(first + second, (*x.shape, *y.shape), strict=True))
    shared = [letter for letter in first if letter in second]
    batch = [letter for letter in shared if letter in result]
    inner = [letter for letter in shared if letter not in result]
    rows = [letter for letter in first if letter not in second and letter in result]
    columns = [letter for letter in second if letter not in first and letter in result]
    x = _summed(build, x, first, "".join([*batch, *rows, *inner]))
    y = _summed(build, y, second, "".join([*batch, *inner, *columns]))
    outer = tuple(sizes[letter] for letter in batch)

    def size(letters: list[str]) -> int:
        found = numbers(tuple(sizes[letter] for letter in letters))
        total = product(found)
        assert isinstance(total, int)
        return total

    x = build.reshape(x, (*outer, size(rows), size(inner)))
    y = build.reshape(y, (*outer, size(inner), size(columns)))
    found = build.matmul(x, y)
    order = [*batch, *rows, *columns]
    found = build.reshape(found, tuple(sizes[letter] for letter in order))
    return build.transpose(found, [order.index(letter) for letter in result])
