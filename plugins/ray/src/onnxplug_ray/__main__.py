"""``python -m onnxplug_ray``: what this machine offers, as ``ray start`` takes it."""

import json
import sys

from onnxplug_ray.resources import node_resources

if __name__ == "__main__":
    sys.stdout.write(json.dumps(node_resources()) + "\n")
