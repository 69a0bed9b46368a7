"""The command ``onnxplug``: prints what the library knows, and decides nothing.

Results go to stdout, all else to stderr.  Modules import the standard library only;
what a command needs is imported when it runs.
"""

from typing import Final

__version__: Final = "0.1.0"
