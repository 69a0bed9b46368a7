"""Searches for the best sequence, which run whole models many times; refused."""

from __future__ import annotations

from onnxplug.functions.operators import refuse

refuse(
    "BeamSearch GreedySearch Sampling WhisperBeamSearch",
    "it runs the decoder in its attributes once for each token, which is a loop of the "
    "application's: export the encoder and the decoder as models of their own, and "
    "choose tokens between runs, as Optimum, transformers and onnxruntime-genai do",
)
