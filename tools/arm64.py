"""Makes a 64-bit ARM device without torch in a folder, to be run on this machine under qemu-user.

    python tools/arm64.py FOLDER
    FOLDER/python -m airprune deploy device KIT

Debian's Python for arm64 is unpacked, nothing is installed on this machine; packages are the wheels of
requirements-device.txt; setup.py builds airprune with the cross compiler. Needs Debian's gcc-aarch64-linux-gnu,
libc6-dev-arm64-cross and qemu-user, apt-get and pip.
"""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITE, PYTHON = "bookworm", (3, 11)
DEBIAN_PACKAGES = ("python3.11", "libstdc++6")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
COMPILER = "aarch64-linux-gnu-gcc"
CPU = "cortex-a53"  # the processor of the Raspberry Pi 3: plain ARMv8, with nothing that came later
# Wheels for the C library of the suite, 2.36, and for older ones.
WHEELS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_31", "manylinux_2_34")


def run(*command: object, **more: str) -> None:
    subprocess.run([str(word) for word in command], check=True, stdout=sys.stderr, env={**os.environ, **more})


def unpack_debian(folder: Path) -> None:
    """Unpacks Python and all that it depends on into `folder/root`, by an apt-get with folders of its own."""
    apt, root = folder / "apt", folder / "root"
    for name in ("state/lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").write_text("")
    source = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {SUITE} main\n"
    (apt / "sources.list").write_text(source)
    settings = {
        "Dir::State": apt / "state",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
    }
    get = ["apt-get", "-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    run(*get, "update")
    run(*get, "--yes", "--no-install-recommends", "--download-only", "install", *DEBIAN_PACKAGES)
    for package in sorted((apt / "cache/archives").glob("*.deb")):
        run("dpkg-deb", "--extract", package, root)
    shutil.rmtree(apt)


def install_packages(folder: Path) -> None:
    """Puts the wheels of a small device for arm64 into `folder/packages`."""
    platforms = [word for name in WHEELS for word in ("--platform", f"{name}_aarch64")]
    version = ["--python-version", ".".join(map(str, PYTHON)), "--implementation", "cp", "--only-binary", ":all:"]
    wanted = ["--constraint", ROOT / "constraints.txt", "--requirement", ROOT / "requirements-device.txt"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    run(*pip, "--target", folder / "packages", *platforms, *version, *wanted)


def build_airprune(folder: Path) -> None:
    """Builds airprune with its native kernel for arm64, from a copy of the sources, into `folder/airprune`."""
    sources = folder / "sources"
    sources.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "MANIFEST.in"):
        shutil.copy(ROOT / name, sources)
    unwanted = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", sources / "src", ignore=unwanted)
    built = folder / "airprune"
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", folder / "build", "--build-lib", built]
    cross = {"CC": COMPILER, "LDSHARED": f"{COMPILER} -shared", "PYTHONWARNINGS": "ignore"}
    subprocess.run(list(map(str, command)), check=True, cwd=sources, stdout=sys.stderr, env={**os.environ, **cross})
    if not list(built.rglob("_paper_cnn*.so")):
        sys.exit("arm64: the native kernel was not built")
    for name in (sources, folder / "build"):
        shutil.rmtree(name)


def write_launcher(folder: Path) -> None:
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        sys.exit("arm64: no qemu-aarch64 (Debian: qemu-user)")
    launcher = folder / "python"
    launcher.write_text(
        "#!/bin/sh\n"
        f"export PYTHONPATH={folder}/airprune:{folder}/packages\n"
        f'exec {emulator} -cpu {CPU} -L {folder}/root {folder}/root/usr/bin/python{PYTHON[0]}.{PYTHON[1]} "$@"\n'
    )
    launcher.chmod(0o755)


def megabytes(folder: Path) -> str:
    return f"{sum(path.lstat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:.0f} MB"


def main() -> None:
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit("usage: python tools/arm64.py FOLDER, which must not exist yet")
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True)
    write_launcher(folder)
    unpack_debian(folder)
    install_packages(folder)
    build_airprune(folder)
    if sys.version_info[:2] == PYTHON:  # else the device compiles what it imports, at its first start
        for name in ("packages", "airprune"):
            compileall.compile_dir(folder / name, quiet=2)
    for name in ("root", "packages", "airprune"):
        sys.stdout.write(f"{name:10}{megabytes(folder / name)}\n")


if __name__ == "__main__":
    main()
