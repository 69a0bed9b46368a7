"""Compares onnxplug with ONNX Runtime and OpenVINO on models of speech, voice and text.

All have random weights.  They are measured as ``compare.py`` says, with the same
arguments.

    python benchmarks/speech.py [--models NAME …] [--threads 1,2] [--repeats 3]
        [--seconds 6] [--peers onnxruntime,openvino] [--option KEY=VALUE …]
        [--against CHECKOUT …] [--clock wall|cpu] [--no-start] [--json FILE]
"""

from __future__ import annotations

from compare import write
from comparison import main
from models.loops import LOOPS
from models.speech import SPEECH

if __name__ == "__main__":
    main(
        __doc__,
        {
            name: lambda folder, name=name, build=build: write(name, build, folder)
            for name, build in {**SPEECH, **LOOPS}.items()
        },
    )
