"""Audit embeddings: which labels are probably wrong, from embeddings of any network.

With embeddings of your own: likewise audit embeddings.npz (x, label), or the two lines below.
"""

import numpy as np
from task_data import BAD, GOOD, chart, parse, start

import likewise


def main(folder: str, quick: bool = False) -> dict:
    rng, classes = np.random.default_rng(0), 12 if quick else 50
    true = np.repeat(np.arange(classes), 30)
    z = rng.normal(size=(classes, 32))[true] + 1.6 * rng.normal(size=(len(true), 32))  # classes overlap
    is_wrong = rng.random(len(true)) < 0.15
    given = np.where(is_wrong, (true + rng.integers(1, classes, len(true))) % classes, true)

    found = likewise.audit_labels(z, given)
    corrected = np.where(found.is_flagged, found.suggested, found.given)

    hit = int(is_wrong[found.issues].sum())
    text = (
        f"{len(true)} labels, {is_wrong.sum()} wrong (estimate: {found.noise_rate * len(true):.0f}); "
        f"{len(found.issues)} flagged, {hit} of them wrong; after correction {(corrected != true).sum()} are wrong"
    )
    return {
        "found": found, "is_wrong": is_wrong, "hit": hit, "left": int((corrected != true).sum()), "text": text,
    }  # fmt: skip


def draw(result: dict, picture: str) -> None:
    score, is_wrong = result["found"].score, result["is_wrong"]
    figure, axes = chart(result["text"], width=8.5)
    axes.hist(
        [score[~is_wrong], score[is_wrong]],
        np.linspace(0, 1, 41),
        stacked=True,
        color=[GOOD, BAD],
        label=["right", "wrong"],
    )
    axes.axvline(0.5, color="#22262e", linewidth=1, linestyle=":")
    axes.set(
        xlabel="probability that the label is right (flagged below 0.5)", ylabel="labels, logarithmic", yscale="log"
    )
    axes.legend(frameon=False, title="given labels")
    figure.savefig(picture)


if __name__ == "__main__":
    start(main, draw, parse())
