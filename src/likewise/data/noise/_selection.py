"""Helpers that noise models share: the selection of the samples that get a wrong label."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from likewise.core.errors import LikewiseError


def several_labels_error(owner: str) -> LikewiseError:
    """Return the error of a noise model that only changes sets of labels, for data with one label per sample."""
    return LikewiseError(
        f"{owner}: it needs samples with several labels, and this data has one label per sample; use Uniform, or a table with a "
        "column `labels`"
    )


def choose(count: int, share: float, exact: bool, rng: np.random.Generator) -> Int[np.ndarray, "n"]:
    """Return the positions of samples that get a wrong label: exactly round(share * count), or each with probability `share`."""
    if exact:
        return rng.permutation(count)[: round(share * count)]
    return np.flatnonzero(rng.random(count) < share)


def number_classes(
    owner: str, y: Int[np.ndarray, "N"], share: float
) -> tuple[Int[np.ndarray, "C"], Int[np.ndarray, "N"]]:
    """Return the distinct classes, and the position of each label among them. Raise if `share` > 0 and there is one class."""
    classes, place = np.unique(y, return_inverse=True)
    if share and len(classes) < 2:
        raise LikewiseError(
            f"{owner}: wrong labels need at least two classes, got {len(classes)}; use data with more classes, or share=0"
        )
    return classes, place


def draw_absent(
    sample: Int[np.ndarray, "n"],
    taken: tuple[Int[np.ndarray, "P"], Int[np.ndarray, "P"]],
    labels: Int[np.ndarray, "L"],
    rng: np.random.Generator,
) -> Int[np.ndarray, "n"]:
    """Return a random label for every sample that it does not have, all with the same probability.

    Args:
        sample: samples that get a label; one that is listed twice gets two different labels. Each must lack enough labels.
        taken: pairs (sample, label) that exist.
        labels: the labels to draw from, ascending.
    """
    drawn, open_places = np.full(len(sample), -1), np.arange(len(sample))
    known = np.sort(taken[0] * len(labels) + np.searchsorted(labels, taken[1]))  # one number per pair
    while len(open_places):
        pair = sample[open_places] * len(labels) + rng.integers(0, len(labels), len(open_places))
        fresh = ~np.isin(pair, known)
        fresh[fresh] = first_of(pair[fresh])
        drawn[open_places[fresh]] = pair[fresh] % len(labels)
        known = np.concatenate([known, pair[fresh]])
        open_places = open_places[~fresh]
    return labels[drawn]


def choose_absent(
    owner: str,
    sample: Int[np.ndarray, "P"],
    label: Int[np.ndarray, "P"],
    share: float,
    exact: bool,
    rng: np.random.Generator,
) -> Int[np.ndarray, "n"]:
    """Return the positions of pairs (sample, label) whose sample gets another label, as `choose`; of none more than it lacks."""
    has = np.bincount(sample)
    lacks = len(np.unique(label)) - has
    if (has <= lacks).all():
        return choose(len(label), share, exact, rng)
    order = rng.permutation(len(sample))
    order = order[np.argsort(sample[order], kind="stable")]  # by sample, its labels in random order
    number = np.arange(len(sample)) - (np.cumsum(has) - has)[sample[order]]
    free = order[number < lacks[sample[order]]]
    if share * len(label) > len(free):
        raise LikewiseError(
            f"{owner}: share={share} is {round(share * len(label))} labels, but only {len(free)} can be drawn, because no sample "
            "gets more labels than it lacks; lower share, or use DropLabels"
        )
    return free[choose(len(free), share * len(label) / max(1, len(free)), exact, rng)]


def first_of(values: Int[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """Return a mask of the first occurrence of every value."""
    mask = np.zeros(len(values), bool)
    mask[np.unique(values, return_index=True)[1]] = True
    return mask
