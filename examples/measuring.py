"""What does it cost here? A part of a study from Python: its tables, and how we stand beside others in the same run.
Run it: `python examples/measuring.py` (a short run; leave out `quick` for figures that mean something). It needs
`headwater-studies`: `pip install ./studies`."""

from __future__ import annotations

from headwater_studies.harness.page import text, worst
from headwater_studies.harness.run import study


def main() -> None:
    result = study("filters", only=["code"], quick=True, say=lambda what: print("…", what))
    print(text(result))
    print()
    for name, seconds in sorted(result.costs.items()):
        print(f"{name}: {seconds:.3g}")
    print("behind in", len(worst([result])), "of", len(result.ratios), "comparisons")


if __name__ == "__main__":
    main()
