"""Runs a command where WebGPU finds Mesa's software Vulkan, if it finds no adapter.

    python tools/with_lavapipe.py FOLDER COMMAND …

The first time Debian's packages ``libvulkan1`` and ``mesa-vulkan-drivers``, and what
they need that the system has not, are downloaded by apt-get and unpacked into FOLDER,
about 210 MB; nothing is installed, and nobody has to be root.  Elsewhere install the
packages of that name, or a driver of your GPU, and the command runs as it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("libvulkan1", "mesa-vulkan-drivers")

_PROBE = (
    "from onnxplug_webgpu.adapters import find_adapters, import_wgpu\n"
    "raise SystemExit(not find_adapters(import_wgpu()))"
)


def has_adapter(environment: dict[str, str]) -> bool:
    """Whether a process finds one; another one, as libraries are loaded once."""
    command = [sys.executable, "-c", _PROBE]
    return not subprocess.run(
        command, env=environment, check=False, capture_output=True
    ).returncode


def unpack(folder: Path) -> None:
    """Download and unpack the packages."""
    for needed in ("apt-get", "dpkg-deb"):
        if shutil.which(needed) is None:
            sys.exit(
                f"WebGPU finds no adapter, and there is no {needed} to download "
                f"{' and '.join(PACKAGES)} with; install these, or the Vulkan driver "
                "of your GPU, as your system has it"
            )
    simulated = subprocess.run(
        ["apt-get", "install", "--simulate", "--no-install-recommends", *PACKAGES],
        capture_output=True,
        text=True,
        check=False,
    )
    missing = re.findall(r"^Inst (\S+)", simulated.stdout, re.MULTILINE)
    if not missing:
        sys.exit(
            f"WebGPU finds no adapter, and apt-get has none to add: "
            f"{simulated.stderr.strip() or 'all packages are installed'}; "
            "run apt-get update, or install the Vulkan driver of your GPU"
        )
    downloads = folder / "packages"
    downloads.mkdir(parents=True, exist_ok=True)
    print(f"downloading {', '.join(missing)} …", flush=True)
    subprocess.run(
        ["apt-get", "download", "--quiet", *missing],
        cwd=downloads,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for package in sorted(downloads.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)
    shutil.rmtree(downloads)


def environment_of(folder: Path) -> dict[str, str]:
    """The environment in which the unpacked driver is found."""
    root = folder / "root"
    (library,) = root.rglob("libvulkan_lvp.so")
    (described,) = root.rglob("lvp_icd.*.json")
    manifest = json.loads(described.read_text("utf-8"))
    manifest["ICD"]["library_path"] = str(library)
    written = folder / "lvp_icd.json"
    partial = folder / f"lvp_icd.{os.getpid()}.part"
    partial.write_text(json.dumps(manifest), "utf-8")
    partial.replace(written)  # as other processes may be reading it
    folders = sorted({str(path.parent) for path in root.rglob("*.so*")})
    paths = [*folders, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return os.environ | {
        "LD_LIBRARY_PATH": os.pathsep.join(paths),
        # the first for newer loaders, the second for older ones
        "VK_DRIVER_FILES": str(written),
        "VK_ICD_FILENAMES": str(written),
    }


def main(folder: Path, command: list[str]) -> int:
    """Run *command*; the status that it ends with."""
    environment = dict(os.environ)
    if not has_adapter(environment):
        if not list(folder.glob("root/**/libvulkan_lvp.so")):
            unpack(folder)
        environment = environment_of(folder)
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
