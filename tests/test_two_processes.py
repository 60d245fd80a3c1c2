"""README's two processes, as two files."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.ports import free_port

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "two_processes"
GUARD = 240.0


def test_what_readme_shows_is_what_the_files_say() -> None:
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    for name in ("hall.py", "desk.py"):
        assert (FOLDER / name).read_text(encoding="utf-8") in shown


def test_what_passes_at_one_is_printed_by_the_other_until_they_are_told_to_end(tmp_path: Path) -> None:
    port = free_port()
    processes = []
    try:
        for name in ("desk.py", "hall.py"):  # who connects may come first
            text = (FOLDER / name).read_text(encoding="utf-8").replace("7447", str(port))
            (tmp_path / name).write_text(text, encoding="utf-8")
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-u", str(tmp_path / name)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        desk, hall = processes
        assert desk.stdout is not None
        for _ in range(3):
            said = re.fullmatch(r"Sighting\(badge='0a1b2c', level=(.*)\)\n", desk.stdout.readline())
            assert said is not None and float(said[1]) > 0.5
        desk.send_signal(signal.SIGINT)
        hall.send_signal(signal.SIGTERM)
        for process in processes:
            _, err = process.communicate(timeout=GUARD)
            assert process.returncode == 0 and "Traceback" not in err, err
    finally:
        for process in processes:
            process.kill()
            process.communicate()
