"""What counts as a requirement on onnxplug that is not met."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from onnxplug.plugins.requires import unmet_requirement

VERSIONS = ["0.1", "0.1.0", "0.1.9", "0.2", "0.2.0", "1.0", "1.2.3", "1.3", "10.0"]
SPECIFIERS = [
    f"{operator}{version}"
    for operator in (">=", "<=", ">", "<", "==", "!=", "~=")
    for version in ("0.1", "0.1.0", "0.2", "1.2.3", "1.0.0.0")
] + ["==0.1.*", "!=0.1.*", "==1.*", ">=0.1,<0.2", "~=0.1.0,!=0.1.9", ""]


@pytest.mark.parametrize("specifier", SPECIFIERS)
def test_release_numbers_compare_as_the_installer_compares_them(specifier: str) -> None:
    for form in ("onnxplug{}", "Onnxplug[cli] ({})", "onnxplug {}"):
        requirement = form.format(specifier) if specifier else "onnxplug"
        for version in VERSIONS:
            met = Requirement(requirement).specifier.contains(version)
            found = unmet_requirement([requirement], "onnxplug", version)
            assert found == ("" if met else requirement), version


@pytest.mark.parametrize(
    "requirement",
    [
        "onnxplug-cpu>=9",
        "numpy>=9",
        "onnxplug>=9; extra == 'later'",
        "onnxplug @ https://example.org/onnxplug.whl",
        "onnxplug>=9.0rc1",
        "onnxplug===9",
        "onnxplug~=9",
        "onnxplug>=9.*",
        "onnxplug nonsense",
        "",
    ],
)
def test_what_is_not_certain_is_left_to_the_installer(requirement: str) -> None:
    assert unmet_requirement([requirement], "onnxplug", "0.1.0") == ""


def test_a_version_under_development_is_not_judged() -> None:
    assert unmet_requirement(["onnxplug>=9"], "onnxplug", "0.2.dev1") == ""
