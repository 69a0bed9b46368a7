"""Paths that a program gives, before a system is asked about them."""

from __future__ import annotations

import os


def why_no_path(path: str) -> str:
    """Why no system takes *path*, in words that follow it; empty if they may."""
    if "\0" in path:
        return "which has a NUL character, at which systems end a path"
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        character = path[error.start]
        return f"which has {character!r}, a character that systems do not encode"
    return ""
