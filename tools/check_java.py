"""Exits 0 if this machine has Java 17 or newer (JAVA_HOME or `java` on the path), 1 if not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path


def main() -> int:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not shutil.which(java):
        return 1
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    return 0 if version and int(version.group(1)) >= 17 else 1


if __name__ == "__main__":
    sys.exit(main())
