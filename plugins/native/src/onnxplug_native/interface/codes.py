"""The codes of statuses, and what is raised in an entry of ours to return one."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """The codes of statuses."""

    OK = 0
    FAIL = 1
    INVALID_ARGUMENT = 2
    NO_SUCHFILE = 3
    NO_MODEL = 4
    ENGINE_ERROR = 5
    RUNTIME_EXCEPTION = 6
    INVALID_PROTOBUF = 7
    MODEL_LOADED = 8
    NOT_IMPLEMENTED = 9
    INVALID_GRAPH = 10
    EP_FAIL = 11
    MODEL_LOAD_CANCELED = 12
    MODEL_REQUIRES_COMPILATION = 13
    NOT_FOUND = 14


class InterfaceError(Exception):
    """What an entry of ours answers a library that asked for what cannot be.

    Attributes:
        code: the status's.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
