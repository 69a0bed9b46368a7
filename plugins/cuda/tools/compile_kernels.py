"""Compiles kernels in CUDA C++ for GPUs of all generations, and counts what they take.

    python tools/compile_kernels.py [--every N] [--jobs N] [--json FILE] FOLDER

The texts are the files of FOLDER that end with .cu, which ``run_suite.py --texts`` and
others write.  No GPU and no driver is needed, but NVRTC, of nvidia-cuda-nvrtc or as
--nvrtc FILE.  The status is 1 if one is not compiled, or takes more memory than a block
has, or more registers, which are spilled then.  ptxas spills some by itself, for more
blocks to run at once; these are listed.  With --every each is compiled for some of the
architectures.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from onnxplug_testing.nvrtc import Nvrtc, find_nvrtc

LANES = re.compile(r"__launch_bounds__\((\d+)")


def look(path: Path, library: Path | None, every: int) -> Mapping[str, Any]:
    """What a text takes, by architectures, of which *every* leaves out some."""
    nvrtc = Nvrtc(library) if library else find_nvrtc()
    assert nvrtc is not None
    text = path.read_text("utf-8")
    lanes = max(map(int, LANES.findall(text)), default=1024)
    found = {}
    known = nvrtc.architectures()
    first = int(path.stem[:8], 16) if every > 1 else 0
    for architecture in known[first % every :: every]:
        try:
            made = nvrtc.compile(text, architecture)
        except ValueError as error:
            found[architecture] = {"wrong": str(error).splitlines()[0]}
            continue
        found[architecture] = {
            "registers": made.registers,
            "spilled": made.spilled,
            "stack": made.stack,
            "shared": made.shared,
            "wrong": made.beyond(lanes),
        }
    return found


def main() -> int:
    """Compile, print, and write JSON if that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--nvrtc", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    nvrtc = Nvrtc(given.nvrtc) if given.nvrtc else find_nvrtc()
    if nvrtc is None:
        parser.error("NVRTC is not installed; pip install nvidia-cuda-nvrtc")
    paths = sorted(given.folder.glob("*.cu"))
    if not paths:
        parser.error(f"{given.folder} has no kernels")
    with ProcessPoolExecutor(given.jobs) as pool:
        todo = partial(look, library=given.nvrtc, every=given.every)
        found = dict(
            zip((path.name for path in paths), pool.map(todo, paths), strict=True)
        )
    counts = {
        architecture: counted(
            [each[architecture] for each in found.values() if architecture in each]
        )
        for architecture in nvrtc.architectures()
    }
    wrong = {
        f"{name} {architecture}": one["wrong"]
        for name, each in found.items()
        for architecture, one in each.items()
        if one["wrong"]
    }
    spilled = {
        f"{name} {architecture}": f"{one['spilled']} B by {one['registers']} registers"
        for name, each in found.items()
        for architecture, one in each.items()
        if one.get("spilled") and not one["wrong"]
    }
    result = {
        "NVRTC": nvrtc.version,
        "kernels": len(paths),
        "architectures": counts,
        "spilled though there are more registers": spilled,
        "wrong": wrong,
    }
    text = json.dumps(result, indent=2)
    if given.json:
        given.json.write_text(f"{text}\n", "utf-8")
    print(text)
    return 1 if wrong else 0


def counted(each: list[Mapping[str, Any]]) -> Mapping[str, int]:
    """The most that a kernel takes, and how many have something in local memory."""
    return {
        "kernels": len(each),
        **{
            f"most {name}": max((one.get(name, 0) for one in each), default=0)
            for name in ("registers", "shared", "stack")
        },
        "with a stack": sum(one.get("stack", 0) > 0 for one in each),
        "with spilled registers": sum(one.get("spilled", 0) > 0 for one in each),
    }


if __name__ == "__main__":
    sys.exit(main())
