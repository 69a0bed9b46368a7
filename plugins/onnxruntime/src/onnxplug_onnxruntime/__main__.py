"""``python -m onnxplug_onnxruntime program.py …``: run a program on onnxplug.

As with ``python`` itself, ``-m module …`` runs a module, and ``-c code …`` code.
"""

from __future__ import annotations

import os
import runpy
import sys

from onnxplug_onnxruntime.stand_in import install

USAGE = """\
usage: python -m onnxplug_onnxruntime (program.py | -m module | -c code) [argument …]

Runs a Python program in which `import onnxruntime` gives onnxplug.
"""


def main() -> None:
    """Run what the command line says."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        sys.exit(USAGE if not words else print(USAGE))
    install()
    flag = words.pop(0) if words[0] in ("-m", "-c") else ""
    if not words:
        sys.exit(USAGE)
    sys.argv = words if not flag else [flag, *words[1:]]
    if flag == "-c":
        sys.path[0] = ""
        exec(compile(words[0], "<string>", "exec"), {"__name__": "__main__"})
    elif flag == "-m":
        sys.path[0] = os.getcwd()
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
