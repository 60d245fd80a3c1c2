"""The wheel is the product: what is in it, and that it runs in an environment that has nothing of the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

import headwater
from tests.base import GUARD

ROOT = Path(__file__).parent.parent
PACKAGES = ("headwater", "pyspark_headwater")
PROGRAM = """
import sys
import headwater as hw

class Level(hw.Event):
    level: float

with hw.Node("lab") as node:
    channel = node.channel("ie.tcd.level", Level)
    loud = []
    sink = channel.subscribe(loud.append, "level > 0.5")
    source = channel.source()
    for level in (0.25, 0.75, 1.5):
        source.publish(Level(level))
    print([event.level for event in loud], sink.counts.evaluated, type(source.publish).__name__)
print(hw.__version__, hw.__file__)
print([path for path in sys.path if "headwater" in path.lower() and path.endswith("src")])
"""


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints; it does not see this process's path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the source distribution, by the ending of their names."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    found = {path.suffix: path for path in folder.iterdir()}
    assert sorted(found) == [".gz", ".whl"]
    return found


@pytest.fixture(scope="module")
def environment(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it, and what it depends on from here; but nothing of Headwater from here."""
    folder = tmp_path_factory.mktemp("environment")
    others = folder / "others"
    others.mkdir()
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not path.name.startswith(("headwater", *PACKAGES, "__editable__")):
            (others / path.name).symlink_to(path)
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", built[".whl"], cwd=folder)
    purelib = run(python, "-I", "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", cwd=folder).strip()
    (Path(purelib) / "others.pth").write_text(f"{others}\n", encoding="utf-8")
    return folder / "env"


def sources() -> dict[str, Path]:
    """The files that make up the package, by where they are in a wheel."""
    found = (path for package in PACKAGES for path in (ROOT / "src" / package).rglob("*") if path.is_file())
    return {path.relative_to(ROOT / "src").as_posix(): path for path in found if "__pycache__" not in path.parts}


def test_the_wheel_has_the_package_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        there = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert there == set(sources())
        assert {"headwater/py.typed", "headwater/spark/log4j2.properties"} <= there
        for name, path in sources().items():
            assert wheel.read(name) == path.read_bytes(), name


def test_the_wheel_says_what_it_is(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        about = Parser().parsestr(wheel.read(name).decode())
        license = wheel.read(name.replace("METADATA", "licenses/LICENSE"))
    assert (about["Name"], about["Version"], about["Requires-Python"]) == ("headwater", headwater.__version__, ">=3.11")
    assert str(about.get_payload()).strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    assert license == (ROOT / "LICENSE").read_bytes()


def test_the_source_distribution_has_all_that_the_wheel_is_made_from(built: dict[str, Path]) -> None:
    with tarfile.open(built[".gz"]) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {f"src/{name}" for name in sources()}
    assert there >= wanted | {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}
    assert not [name for name in there if name.startswith(("tests", "studies", "benchmarks", "build"))]


def test_an_installed_wheel_runs_with_nothing_of_the_source_tree(environment: Path, tmp_path: Path) -> None:
    python = environment / "bin" / "python"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    heard, what, tree = run(python, "-I", program, cwd=tmp_path).splitlines()
    assert heard == f"[0.75, 1.5] 3 {_publisher()}"
    version, where = what.split(" ", 1)
    assert version == headwater.__version__ and Path(where).is_relative_to(environment) and tree == "[]"
    told = run(environment / "bin" / "headwater", "--version", cwd=tmp_path)
    assert told.startswith(f"headwater {headwater.__version__}\non ")
    explained = run(environment / "bin" / "headwater", "explain", "level > 0.5", "--type", "level: f32", cwd=tmp_path)
    assert "level > 0.5" in explained


def _publisher() -> Any:
    from headwater.native.python.interpreter import why_plain

    return "builtin_function_or_method" if why_plain() is None else "function"
