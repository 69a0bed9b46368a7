"""``python -m onnxplug``, which the distribution ``onnxplug-cli`` answers."""

import sys

try:
    from onnxplug_cli.main import main
except ModuleNotFoundError as error:
    if error.name != "onnxplug_cli":
        raise
    sys.exit(
        "onnxplug: the command line is the distribution onnxplug-cli, which is not "
        "installed.\nInstall it: python -m pip install 'onnxplug[cli]'"
    )

if __name__ == "__main__":
    sys.exit(main())
