"""The README's program prints what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_first_program_prints_what_is_shown(tmp_path: Path) -> None:
    blocks = re.findall(r"```(\w*)\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (kind, program), (_, output) = blocks[:2]
    assert kind == "python"
    script = tmp_path / "readme.py"  # a lambda's source is read from its file
    script.write_text(program, encoding="utf-8")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == output
