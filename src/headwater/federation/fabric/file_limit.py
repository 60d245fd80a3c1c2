"""How many connections a process can afford to those who have not said who they are."""

from __future__ import annotations

LEAST = 16


def share_of_files(most: int) -> int:
    """So many, or a quarter of the files that this process may have open, if that is less."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, OSError, ValueError):  # where there is no such limit it is not known
        return max(LEAST, most // 4)
    return most if limit < 0 else max(LEAST, min(most, limit // 4))
