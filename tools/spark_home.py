"""Where tests find Spark: the installed one, without the archive of its Python modules, and with one change in how it
starts Java.

Spark puts that archive before everything else that its Python processes import from. What comes from an archive is
compiled anew by every process: 0.7 of the second that one takes to start. Without it they find the same modules where
they are installed, compiled. Tests start hundreds of such processes.

Spark has the folder of its settings before its jars on the path of Java's classes. Java then does without what
tools/java_archive.py has written down, which was for the jars alone. After them it makes no difference: the settings
are files that Spark finds by the folder's name."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

HOME = Path(sys.prefix) / "spark-home"
PARTS = ("sbin", "jars")
STARTS = "spark-class"
EXECUTE = 'exec "${CMD[@]}"'  # the last line of Spark's script: a command, its words in an array
SETTINGS_LAST = """for at in "${!CMD[@]}"; do
  if [[ "${CMD[$at]}" == -cp ]]; then
    classes="${CMD[$((at + 1))]}"
    first="${classes%%:*}"
    [[ "${first%/}" == "${SPARK_CONF_DIR%/}" ]] && CMD[$((at + 1))]="${classes#*:}:${first}"
    break
  fi
done
"""


def home() -> Path | None:
    """The folder, made where it is not there; None without Spark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    spark = Path(found.origin).parent
    HOME.mkdir(exist_ok=True)
    for part in PARTS:
        _link(HOME / part, spark / part)
    _scripts(HOME / "bin", spark / "bin")
    return HOME


def _link(link: Path, to: Path) -> None:
    if link.is_symlink() and link.resolve() != to.resolve():  # of another Python than now
        link.unlink(missing_ok=True)
    with suppress(FileExistsError):  # another process may be at it
        link.symlink_to(to)


def _scripts(folder: Path, spark: Path) -> None:
    """Spark's, but for the one that starts Java."""
    if folder.is_symlink():
        with suppress(OSError):  # another process may be at it
            folder.unlink()
    folder.mkdir(exist_ok=True)
    for script in spark.iterdir():
        if script.name != STARTS:
            _link(folder / script.name, script)
    text = (spark / STARTS).read_text(encoding="utf-8").replace(EXECUTE, SETTINGS_LAST + EXECUTE)
    ours = folder / STARTS
    if not ours.exists() or ours.read_text(encoding="utf-8") != text:
        made = ours.with_name(f"{STARTS}.{os.getpid()}")  # beside its place: another process may be starting it
        made.write_text(text, encoding="utf-8")
        made.chmod(0o755)
        made.replace(ours)


def use() -> None:
    """Have Spark started from there by this process and those that it starts, unless it is said where Spark is."""
    found = None if "SPARK_HOME" in os.environ else home()
    if found is not None:
        os.environ["SPARK_HOME"] = str(found)
