"""What importing the SPI brings in."""

from __future__ import annotations

import subprocess
import sys


def test_the_spi_imports_the_standard_library_only() -> None:
    script = (
        "import sys; before = set(sys.modules); import onnxplug.ep;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    foreign = set(result.stdout.split()) - sys.stdlib_module_names
    assert foreign == {"onnxplug"}


def test_a_dtype_is_not_needed_to_name_an_element_type() -> None:
    script = (
        "import sys; from onnxplug.ep import DataType; DataType.from_onnx(16).bits;"
        "assert not {'numpy', 'ml_dtypes', 'onnx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
