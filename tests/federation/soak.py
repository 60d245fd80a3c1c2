"""The long version of test_faults.py: `python -m tests.federation.soak [faults] [seed]`. A seed replays a failure."""

from __future__ import annotations

import sys
from time import monotonic, time_ns

from tests.federation.faults import run


def main() -> None:
    faults = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time_ns() % 1_000_000
    begun = monotonic()
    print(f"{faults} faults, seed {seed}", flush=True)
    seen = run(faults, seed, lambda text: print(f"{monotonic() - begun:7.1f} s  {text}", flush=True))
    print(f"{faults} faults, {seen:,} events seen, none missing, none twice: {monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
