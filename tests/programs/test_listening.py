"""Silero's detector of voices, which is recurrent, and SwiftF0's of pitch."""

from __future__ import annotations

from .conftest import SameOnBoth

# harmonics of a gliding voice, weighted as by a mouth that says "a", in syllables
VOICE = """
rate = 16000
t = np.arange(4 * rate) / rate
pitch = 120 + 20 * np.sin(2 * np.pi * 0.7 * t)
phase = 2 * np.pi * np.cumsum(pitch) / rate
voice = sum(
    np.sin(k * phase) / k * np.exp(-(((k * pitch - 700) / 600) ** 2))
    + np.sin(k * phase) / 2 * np.exp(-(((k * pitch - 1800) / 500) ** 2))
    for k in range(1, 30)
)
speaks = (t > 0.8) & (t < 3.0) & (np.sin(2 * np.pi * 3 * t) > -0.3)
noise = np.random.default_rng(0).standard_normal(t.size)
audio = (0.3 * voice / abs(voice).max() * speaks + 0.002 * noise).astype(np.float32)
"""
SILERO = """
import torch
from silero_vad import get_speech_timestamps, load_silero_vad

for opset, step in ((16, 1), (16, 2), (15, 1)):
    model = load_silero_vad(onnx=True, opset_version=opset)
    sound = torch.from_numpy(audio[::step].copy())
    heard = model.audio_forward(sound, rate // step).numpy()
    results[f"{opset}, {rate // step} Hz"] = heard
    model.reset_states()
    spans = get_speech_timestamps(sound, model, sampling_rate=rate // step)
    results[f"spans {opset} {step}"] = np.array([[s["start"], s["end"]] for s in spans])
results["sequence"] = load_silero_vad(sequence=True).audio_forward(audio)
"""
SWIFT_F0 = """
from swift_f0 import SwiftF0

heard = SwiftF0().detect(audio, rate)
sure = heard.confidence > 0.6
results["sure"] = sure
results["confidence"] = heard.confidence
# of what is no voice, the pitch is the highest of many low scores
results["pitch"] = heard.pitch_hz * sure
"""


def test_silero_hears_the_same_voice(same_on_both: SameOnBoth) -> None:
    """Its model has an input for the state, and one for the rate, which chooses."""
    floats = ["16, 16000 Hz", "16, 8000 Hz", "15, 16000 Hz", "sequence"]
    results = same_on_both("silero_vad", VOICE + SILERO, dict.fromkeys(floats, 1e-4))
    for name in floats:
        assert results[name].min() < 0.1 and results[name].max() > 0.9
    ((start, end),) = results["spans 16 1"]
    assert 0.7 < start / 16000 < 1 and 1.5 < end / 16000 < 3.1


def test_swift_f0_hears_the_same_pitch(same_on_both: SameOnBoth) -> None:
    """Its model has inputs for the lowest and highest pitch."""
    tolerances = {"confidence": 1e-3, "pitch": 1e-3}
    results = same_on_both("swift_f0", VOICE + SWIFT_F0, tolerances)
    heard = results["pitch"][results["sure"]]
    assert len(heard) > 50 and heard.min() > 95 and heard.max() < 145
