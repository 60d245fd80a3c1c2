"""An environment in which some packages are not installed, for programs that are run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Without:
    """Everything that is installed here, but these packages: links to the others, in a folder of its own."""

    def __init__(self, folder: Path, *packages: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        absent = {*packages, "headwater"}  # which is taken from the source tree
        for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            for path in Path(place).iterdir():
                name = path.name.partition(".")[0].partition("-")[0].lower()
                if name not in absent and not (folder / path.name).exists():
                    (folder / path.name).symlink_to(path)

    def python(self, *args: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        """Run Python there."""
        path = os.pathsep.join((str(ROOT / "src"), str(self.folder)))
        command = [sys.executable, "-S", *args]  # -S: else the packages of this environment are there again
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={**os.environ, "PYTHONPATH": path},
            cwd=self.folder,
        )

    def headwater(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run the command there."""
        return self.python("-m", "headwater.cli", *args)
