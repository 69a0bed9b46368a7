"""Diacritics in 8 bits, names letter by letter, and kinds of files."""

from __future__ import annotations

from .conftest import SameOnBoth

TASHKEEL = """
from text2tashkeel import Diacritizer

sentences = [
    "بسم الله الرحمن الرحيم",
    "ذهب الولد إلى المدرسة في الصباح الباكر، ثم عاد إلى البيت.",
    "إن العلم نور والجهل ظلام",
]
# the models that the wheel has, and one that combines two
for name in (
    "bilstm-int8", "rawi-int8", "rawi-v2-int8", "rawi-v3-int8", "rawi-ensemble",
    "bilstm-int8+rawi-int8",
):
    model = Diacritizer(name)
    results[name] = np.array([model.diacritize(sentence) for sentence in sentences])
"""
NAMES = """
from arabic_name_romanizer import Transliterator

names = ["محمد الأحمدي", "خديجة بنت يوسف", "زرقاوستيل مهنازدار", "فاطمة الزهراء"]
names = [
    name for batch in Transliterator().transliterate_many(names, top_k=3)
    for name in batch
]
results["names"] = np.array([name.text for name in names])
results["scores"] = np.array([name.score for name in names])
"""
MAGIKA = """
from magika import Magika

contents = {
    "python": b"import os\\n\\ndef main():\\n    print('hello', os.getcwd())\\n" * 5,
    "html": b"<!DOCTYPE html><html><head><title>x</title></head><body/></html>" * 5,
    "csv": b"name,size\\nfirst,2\\nsecond,35\\n" * 20,
    "c": b"#include <stdio.h>\\nint main(void) { puts(\\"hi\\"); return 0; }\\n" * 5,
    "unknown": bytes(range(256)) * 8,
}
found = Magika().identify_bytes
found = [found(content) for content in contents.values()]
results["wanted"] = np.array(list(contents))
results["found"] = np.array([str(each.output.label) for each in found])
results["guessed"] = np.array([str(each.dl.label) for each in found])
results["scores"] = np.array([each.score for each in found])
"""


def test_text2tashkeel_writes_the_same_diacritics(same_on_both: SameOnBoth) -> None:
    """Its LSTMs and products have weights of int8, and activations made so in a run."""
    results = same_on_both("text2tashkeel", TASHKEEL)
    assert results["rawi-ensemble"][0] == "بِسْمِ اللَّهِ الرَّحْمَنِ الرَّحِيمِ"


def test_arabic_name_romanizer_finds_the_same_names(same_on_both: SameOnBoth) -> None:
    """GRUs, and a search in which what a run leaves is reordered and fed again."""
    results = same_on_both("arabic_name_romanizer", NAMES, {"scores": 1e-4})
    assert "Zergaoustil Mehnazdar" in results["names"]  # which no dictionary has


def test_magika_sees_the_same_kinds_of_files(same_on_both: SameOnBoth) -> None:
    results = same_on_both("magika", MAGIKA, {"scores": 1e-4})
    assert results["found"].tolist() == results["wanted"].tolist()
