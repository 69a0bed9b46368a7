"""``python -m onnxplug``."""

import sys

from onnxplug.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
