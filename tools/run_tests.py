"""Runs all tests as two pytest processes side by side: those that start Spark, and all others. Exits 1 if any fails.

A core that waits for Java would else do nothing. The second report is printed when the first is done; arguments are for
both.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

SPARK = ("tests/spark", "tests/studies", "tests/study", "tests/test_examples.py")


def main(arguments: list[str]) -> int:
    pytest = [sys.executable, "-m", "pytest", *arguments]
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as aside:
        print(f"beside these tests: {', '.join(SPARK)}, reported at the end", flush=True)
        beside = subprocess.Popen(
            [*pytest, "-o", "cache_dir=.pytest_cache/spark", *SPARK], stdout=aside, stderr=subprocess.STDOUT
        )
        try:
            here = subprocess.run([*pytest, *(f"--ignore={path}" for path in SPARK)], check=False).returncode
            print(f"these took {_minutes(started)}; waiting for those beside them", flush=True)
            there = beside.wait()
        finally:
            if beside.poll() is None:
                beside.terminate()
                beside.wait()
        aside.seek(0)
        sys.stdout.write(aside.read())
    print(f"all tests: {_minutes(started)}, {'passed' if not (here or there) else 'FAILED'}")
    return 1 if here or there else 0


def _minutes(started: float) -> str:
    spent = round(time.monotonic() - started)
    return f"{spent // 60}:{spent % 60:02} minutes"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
