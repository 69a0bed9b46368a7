"""Requests to run a model as JSON with raw tensors behind it, and their answers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson

from onnxplug_serve.datatypes import datatype_of_array
from onnxplug_serve.errors import BadRequest, TooLarge
from onnxplug_serve.requests import InferRequest, InferResponse
from onnxplug_serve.settings import Limits
from onnxplug_serve.tensors import (
    check_head,
    from_numbers,
    from_raw,
    memory_of,
    to_numbers,
    to_raw,
)

_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_SUBCLASS


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How outputs are to be written.

    Attributes:
        raw: by output: as raw bytes behind the JSON.
        default: for outputs that are not in *raw*.
    """

    raw: Mapping[str, bool] = field(default_factory=dict)
    default: bool = False


def read_request(
    body: bytearray, header_length: str | None, limits: Limits
) -> tuple[InferRequest, AnswerForm]:
    """What *body* asks for, and how the answer is to be written.

    Args:
        header_length: the header that says how much of it is JSON; ``None``: all.

    Raises:
        BadRequest, TooLarge: it is not of the protocol, or beyond *limits*.
    """
    length = _length(header_length, len(body))
    asked = read_json(memoryview(body)[:length], limits)
    inputs = _list(asked, "inputs", limits)
    outputs = _list(asked, "outputs", limits)
    parameters = _parameters(asked, "the request")
    identity = asked.get("id", "")
    if not isinstance(identity, str):
        raise BadRequest("the id of the request is no text")
    feeds = _feeds(inputs, memoryview(body)[length:], limits)
    names, form = _outputs(outputs, parameters)
    timeout = timeout_of(parameters.get("timeout"))
    size = max(len(body), sum(map(memory_of, feeds.values())))
    return InferRequest(feeds, names, identity, timeout, size), form


def read_json(body: bytearray | memoryview, limits: Limits) -> dict[str, Any]:
    """The object that *body* is.

    Raises:
        BadRequest, TooLarge: it is none, or beyond *limits*.
    """
    if len(body) > limits.json_bytes:
        raise TooLarge(
            f"the request has {len(body)} bytes of JSON; expected {limits.json_bytes} "
            "or less: send tensors as binary data"
        )
    text = bytes(body)
    # each takes many times the memory and the time that its brackets do
    if text.count(b"[") + text.count(b"{") > limits.json_containers:
        raise TooLarge(
            f"the JSON has more than {limits.json_containers} lists and objects: send "
            "data as one list, or tensors as binary data"
        )
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = _loads_leniently(text)
    if not isinstance(found, dict):
        raise BadRequest("the request is no JSON object")
    return found


def _loads_leniently(text: bytes) -> Any:
    """What *text* is as Python reads JSON: with NaN and infinities, which Python's
    clients write, and with halves of characters of UTF-16."""
    try:
        return json.loads(text, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the request is no JSON: {error}") from error


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _length(stated: str | None, size: int) -> int:
    if stated is None:
        return size
    if not (stated.isascii() and stated.isdecimal()) or len(stated) > 19:
        raise BadRequest("the length of the inference header is no number")
    if int(stated) > size:
        raise BadRequest(
            f"the inference header is to have {stated} bytes; the body has {size}"
        )
    return int(stated)


def timeout_of(given: Any) -> float:
    """The seconds that a request has by its parameter, which is in microseconds.

    Raises:
        BadRequest: it is no such number.
    """
    if given is None:
        return 0.0
    if isinstance(given, str) and given.isascii() and given.isdecimal():
        given = int(given[:20])
    if type(given) is not int or not 0 <= given < 1 << 63:
        raise BadRequest("the parameter timeout is no number of microseconds")
    return float(given) / 1e6


def _list(asked: Mapping[str, Any], what: str, limits: Limits) -> list[dict[str, Any]]:
    found = asked.get(what, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BadRequest(f"the {what} are no list of objects")
    if len(found) > limits.inputs:
        raise TooLarge(
            f"there are {len(found)} {what}; expected {limits.inputs} or less"
        )
    return found


def _parameters(within: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    found = within.get("parameters", {})
    if not isinstance(found, dict):
        raise BadRequest(f"the parameters of {what} are no object")
    return found


def _feeds(
    inputs: Sequence[Mapping[str, Any]], raw: memoryview, limits: Limits
) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    at = 0
    for each in inputs:
        name, datatype, shape = check_head(each, limits)
        if name in feeds:
            raise BadRequest(f"input {name!r} is there twice")
        size = _parameters(each, f"input {name!r}").get("binary_data_size")
        if size is None:
            data: Any = each.get("data")
            feeds[name] = from_numbers(name, datatype, shape, data)
            continue
        if "data" in each:
            raise BadRequest(f"input {name!r} has both data and binary data")
        if type(size) is not int or not 0 <= size <= len(raw) - at:
            raise BadRequest(
                f"input {name!r} is to have binary data of a size that is not there: "
                f"{len(raw) - at} bytes are left"
            )
        feeds[name] = from_raw(name, datatype, shape, raw[at : at + size], limits)
        at += size
    if at != len(raw):
        raise BadRequest(f"there are {len(raw) - at} bytes that belong to no input")
    return feeds


def _outputs(
    outputs: Sequence[Mapping[str, Any]], parameters: Mapping[str, Any]
) -> tuple[list[str], AnswerForm]:
    default = parameters.get("binary_data_output", False)
    raw = {}
    names: list[str] = []
    for each in outputs:
        name = each.get("name")
        if not isinstance(name, str):
            raise BadRequest("an output's name is no text")
        if name in names:
            raise BadRequest(f"output {name!r} is asked for twice")
        own = _parameters(each, f"output {name!r}")
        if own.get("classification"):
            raise BadRequest("classification is not supported; ask for the numbers")
        names.append(name)
        raw[name] = bool(own.get("binary_data", default))
    return names, AnswerForm(raw, bool(default))


def written(response: InferResponse, form: AnswerForm) -> tuple[bytes, list[Any]]:
    """The JSON of *response*, and the raw tensors behind it."""
    outputs, raw = [], []
    for name, array in response.results.items():
        told: dict[str, Any] = {
            "name": name,
            "datatype": datatype_of_array(array),
            "shape": list(array.shape),
        }
        if form.raw.get(name, form.default):
            raw.append(to_raw(array))
            told["parameters"] = {"binary_data_size": len(raw[-1])}
        else:
            told["data"] = to_numbers(array)
        outputs.append(told)
    answer: dict[str, Any] = {
        "model_name": response.model,
        "model_version": response.version,
        "outputs": outputs,
    }
    if response.id:
        answer["id"] = response.id
    if response.parameters:
        answer["parameters"] = dict(response.parameters)
    return _dumps(answer), raw


def _dumps(answer: dict[str, Any]) -> bytes:
    """The JSON of *answer*, whose arrays are lists in it."""
    try:
        return bytes(orjson.dumps(answer, option=_OPTIONS))
    except orjson.JSONEncodeError:
        # numbers that are not finite, and halves of characters of UTF-16
        return json.dumps(answer, default=np.ndarray.tolist).encode()
