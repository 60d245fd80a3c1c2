"""Where tests find Spark: the installed one, without the archive of its Python modules.

Spark puts that archive before everything else that its Python processes import from. What comes from an archive is
compiled anew by every process: 0.7 of the second that one takes to start. Without it they find the same modules where
they are installed, compiled. Tests start hundreds of such processes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

HOME = Path(sys.prefix) / "spark-home"
PARTS = ("bin", "sbin", "jars")


def home() -> Path | None:
    """The folder, made where it is not there; None without Spark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    spark = Path(found.origin).parent
    HOME.mkdir(exist_ok=True)
    for part in PARTS:
        link = HOME / part
        if link.is_symlink() and link.resolve() != (spark / part).resolve():  # of another Python than now
            link.unlink(missing_ok=True)
        with suppress(FileExistsError):  # another process may be at it
            link.symlink_to(spark / part, target_is_directory=True)
    return HOME


def use() -> None:
    """Have Spark started from there by this process and those that it starts, unless it is said where Spark is."""
    found = None if "SPARK_HOME" in os.environ else home()
    if found is not None:
        os.environ["SPARK_HOME"] = str(found)
