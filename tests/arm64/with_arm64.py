"""Runs a command with a Python for aarch64, which an emulator executes.

    python tests/arm64/with_arm64.py [--anew] FOLDER [ARGUMENT …]

The first time, Debian's Python for arm64, with what it needs, and its
``qemu-user-static`` are downloaded by apt-get and unpacked into FOLDER, and wheels for
aarch64 are downloaded by pip, about 450 MB unpacked; nothing is installed, the system's
settings stay as they are, and nobody has to be root.  Sources are those of the
repository.  The arguments are Python's own; ``FOLDER/bin/python`` starts it, too, and
is ``sys.executable`` inside, so that programs that start Python start this one.

On aarch64 the command runs on this very Python: there is nothing to emulate.  Elsewhere
the variable ``QEMU_CPU`` says which processor is emulated, ``max`` by default, and
``ONNXPLUG_HOST_PYTHON`` tells what is emulated of the Python that does not have to be.
With ``--anew`` all is downloaded again; without arguments that is all that is done.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PLUGINS = ("cli", "kernels", "compiler", "microsoft", "training", "cpu", "testing")
TESTS_NEED = ("pytest>=9.0", "hypothesis>=6.100", "pillow>=10")
PACKAGES = ("python3", "libstdc++6")
TRIPLE = "aarch64-linux-gnu"

_LINUX = "which Debian has, and systems made from it"
_NEEDED = {
    "apt-get": f"apt-get, {_LINUX}, to download Python for arm64 and qemu-user-static",
    "dpkg-deb": f"dpkg-deb, {_LINUX}, to unpack them",
}

_SETTINGS = """\
Dir::State "{folder}/state";
Dir::State::status "{folder}/state/status";
Dir::Cache "{folder}/cache";
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "{folder}/sources.list.d";
APT::Get::List-Cleanup "false";
"""

_STARTER = """\
#!/bin/sh
# what this Python imports comes before what else it is told of
export PYTHONHOME={home} PYTHONPATH={path}${{PYTHONPATH:+:$PYTHONPATH}}
exec {qemu} -L {root} -0 "$0" {python} "$@"
"""


def sources() -> list[Path]:
    """The folders of the repository that Python is to import from."""
    return [
        REPOSITORY / "core" / "src",
        *(REPOSITORY / "plugins" / name / "src" for name in PLUGINS),
    ]


def build(folder: Path) -> None:
    """Download and unpack all that is needed."""
    for command, need in _NEEDED.items():
        if shutil.which(command) is None:
            sys.exit(
                f"tests on an emulated ARM64 need {need}; there is no {command}: run "
                "them on Debian, in a container too, or on an ARM64 machine"
            )
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "root"
    root.mkdir(parents=True)
    print(f"unpacking Python for arm64, and an emulator, into {folder} …", flush=True)
    _unpack_packages(folder, root)
    python = _python_of(root)
    print("downloading wheels for aarch64 …", flush=True)
    _install_wheels(folder / "site", python.name.removeprefix("python"))
    _write_starter(folder, root, python)


def _unpack_packages(folder: Path, root: Path) -> None:
    """Unpack the packages for arm64 and, for this machine, the emulator."""
    settings = _settings(folder / "apt")
    environment = os.environ | {"APT_CONFIG": str(settings)}
    _run(["apt-get", "update", "--quiet"], environment, "read Debian's lists for arm64")
    simulated = _run(
        ["apt-get", "install", "--simulate", "--no-install-recommends", *PACKAGES],
        environment,
        "find what Python for arm64 needs",
    )
    names = re.findall(r"^Inst (\S+)", simulated, re.MULTILINE)
    downloads = folder / "packages"
    downloads.mkdir()
    what = "download Python for arm64"
    _run(["apt-get", "download", "--quiet", *names], environment, what, downloads)
    emulator = "qemu-user-static"
    what = f"download {emulator}; apt-get update may help"
    _run(["apt-get", "download", "--quiet", emulator], None, what, downloads)
    for package in sorted(downloads.glob("*.deb")):
        where = folder / "emulator" if package.name.startswith(emulator) else root
        _run(["dpkg-deb", "-x", str(package), str(where)], None, f"unpack {package}")
    (qemu,) = folder.glob("emulator/usr/bin/qemu-aarch64-static")
    qemu.rename(folder / "qemu-aarch64")
    for name in ("packages", "emulator", "apt", "root/usr/share/doc"):
        shutil.rmtree(folder / name)


def _settings(folder: Path) -> Path:
    """Settings by which apt-get knows nothing but packages for arm64, from where the
    system has its own."""
    (folder / "state/lists/partial").mkdir(parents=True)
    (folder / "cache/archives/partial").mkdir(parents=True)
    (folder / "sources.list.d").mkdir()
    (folder / "state/status").touch()
    (folder / "sources.list").touch()
    system = Path("/etc/apt")
    listed = [system / "sources.list", *system.glob("sources.list.d/*")]
    for number, path in enumerate(listed):
        if path.suffix not in (".list", ".sources") or not path.is_file():
            continue
        text = path.read_text("utf-8")
        if "debian" not in text:
            continue  # what else the system takes packages from
        text = re.sub(r"^Architectures:.*\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"\barch=[\w,]+", "arch=arm64", text)
        written = folder / "sources.list.d" / f"{number}-{path.name}"
        written.write_text(text, "utf-8")
    settings = folder / "apt.conf"
    settings.write_text(_SETTINGS.format(folder=folder), "utf-8")
    return settings


def _python_of(root: Path) -> Path:
    """The interpreter that Debian's ``python3`` is."""
    found = sorted(root.glob("usr/bin/python3.*[0-9]"))
    if not found:
        sys.exit(f"Debian's packages for arm64 have no Python in {root}/usr/bin")
    return found[-1]


def _install_wheels(site: Path, version: str) -> None:
    """Install what the repository's distributions need, and what says what they are,
    their entry points; their modules come from the sources."""
    projects = [path.parent for path in sources()]
    needed = {*TESTS_NEED}
    for project in projects:
        described = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
        needed.update(described["project"]["dependencies"])
    foreign = sorted(name for name in needed if not name.startswith("onnxplug"))
    # the code that this machine's makes is to be that of the emulated one
    foreign.append(f"llvmlite=={metadata.version('llvmlite')}")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site)]
    platforms = [
        f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 26, 27, 28)
    ]
    only = ["--only-binary=:all:", f"--python-version={version}"]
    _run([*pip, *only, *platforms, *foreign], None, "install wheels for aarch64")
    ours = [str(project) for project in projects]
    _run([*pip, "--no-deps", *ours], None, "install the repository's distributions")


def _write_starter(folder: Path, root: Path, python: Path) -> None:
    path = ":".join(map(str, [*sources(), folder / "site"]))
    text = _STARTER.format(
        home=shlex.quote(str(root / "usr")),
        path=shlex.quote(path),
        qemu=shlex.quote(str(folder / "qemu-aarch64")),
        root=shlex.quote(str(root)),
        python=shlex.quote(str(python)),
    )
    starter = folder / "bin" / "python"
    starter.parent.mkdir()
    starter.write_text(text, "utf-8")
    starter.chmod(0o755)


def _run(
    command: list[str],
    environment: dict[str, str] | None,
    what: str,
    folder: Path | None = None,
) -> str:
    """What a command writes; the end, with what it was for, if it fails."""
    done = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        sys.exit(f"could not {what}: {shlex.join(command[:4])} … says: {said}")
    return done.stdout


def main(folder: Path, arguments: list[str], *, anew: bool = False) -> int:
    """Run Python; the status that it ends with."""
    starter: str | Path = sys.executable
    environment = dict(os.environ)
    if platform.machine() not in ("aarch64", "arm64"):
        starter = folder / "bin" / "python"
        environment["ONNXPLUG_HOST_PYTHON"] = sys.executable
        if anew or not starter.exists():
            build(folder)
    if not arguments:
        return 0
    command = [starter, *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    given = sys.argv[1:]
    anew = given[:1] == ["--anew"]
    if anew:
        given = given[1:]
    if not given:
        sys.exit(__doc__)
    sys.exit(main(Path(given[0]).resolve(), given[1:], anew=anew))
