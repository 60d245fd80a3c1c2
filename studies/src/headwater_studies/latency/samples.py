"""Many times of the same thing: what they amount to, and their histogram."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headwater_studies.latency.pairs import Samples

BINS = 80


@dataclass(frozen=True, slots=True)
class Summary:
    """Of samples, in seconds. `one` and `two`: percent that are below the average and one or two times the jitter."""

    count: int
    average: float
    least: float
    most: float
    jitter: float  # the standard deviation
    p50: float
    p99: float
    p999: float
    one: float
    two: float


def summary(samples: Samples) -> Summary:
    average, jitter = float(np.mean(samples)), float(np.std(samples))
    p50, p99, p999 = (float(each) for each in np.quantile(samples, (0.5, 0.99, 0.999)))
    one, two = (float(np.mean(samples <= average + times * jitter)) * 100.0 for times in (1, 2))
    return Summary(len(samples), average, float(samples.min()), float(samples.max()), jitter, p50, p99, p999, one, two)


def bins(everything: Iterable[Samples], count: int = BINS) -> Samples:
    """Edges of bins, each wider than the one before by the same factor, from the least sample of all to the longest
    99.9th percentile."""
    found = list(everything)
    least = min(float(each.min()) for each in found)
    most = max(float(np.quantile(each, 0.999)) for each in found)
    return np.geomspace(least * 0.999, max(most, least * 1.01), count + 1)


def histogram(samples: Samples, edges: Samples) -> tuple[list[int], int]:
    """How many samples are in each bin, and how many are beyond the last."""
    counts, _ = np.histogram(samples, edges)
    return [int(count) for count in counts], int(np.count_nonzero(samples > edges[-1]))


def multiples(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours is so many times theirs, in each round."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]
