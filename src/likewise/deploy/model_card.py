"""The model card of an export, in Markdown: the network, its scores and its training, from the run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from likewise.core.render.html import TEMPLATES
from likewise.deploy.calibration.threshold_promises import describe_promise
from likewise.runs.calibration import CALIBRATION_FILE, Calibration
from likewise.score.score_table import (
    corrected_notes,
    interval_lines,
    label_lines,
    sample_lines,
    score_heads,
    score_lines,
    tree_lines,
)

SHOWN_SETTINGS = (
    "recipe", "backbone", "head", "pool", "loss", "sampler", "confidence", "terms", "epochs", "steps", "optimizer", "lr",
    "weight_decay", "schedule", "precision", "augment", "mixup", "protocol", "seed",
)  # fmt: skip
"""The settings in a model card, if they are set."""


GALLERY_FILE = "gallery.npz"
"""File of an export: embeddings `z` and class names `label` of the gallery that its calibration is for."""

DECISION_FILES = (CALIBRATION_FILE, GALLERY_FILE)
"""Files of an export of a calibrated run: its thresholds and probabilities, and the gallery that they are for."""


@dataclass(frozen=True)
class Card:
    """The facts of a model card.

    `preprocess`: how an image becomes the input; None for feature vectors. `scores`: content of scores.json; None if this network
    was not scored. `labels`: sentences about label noise. `checkpoint`: "best" on validation, "last" (another one was best),
    "only" (there is one network), or "untrained". `choice`: why its backbone replaces the default one; else "".
    """

    name: str
    folder: str
    to: str  # "onnx" or "safetensors"
    checkpoint: str
    dim: int
    similarity: str
    preprocess: Mapping | None
    boxed: bool
    config: Mapping
    data: Mapping[str, str]
    labels: tuple[str, ...]
    scores: Mapping | None
    checked: str
    made: Mapping[str, str]
    finished: bool
    choice: str = ""
    calibration: Calibration | None = None
    has_gallery: bool = False


def write_card(card: Card) -> str:
    """Return the text of README.md of an export."""
    config = card.config
    settings = {name: as_words(config[name]) for name in SHOWN_SETTINGS if config.get(name) not in (None, (), [])}
    facts = vars(card) | {
        "pictures": card.preprocess is not None,
        "compared": "They have unit length and are compared by their cosine."
        if card.similarity == "cosine"
        else "They are compared by their Euclidean distance, as in their loss.",
        "network": network(card),
        "sees": sees(card),
        "scores": score_lines(card.scores) if card.scores else [],
        "score_heads": score_heads(card.scores)[1:] if card.scores else [],
        "scored": scored(card),
        "settings": settings | {"starts from": start(config)} | ({"choice": card.choice} if card.choice else {}),
        "start": start(config),
        "limits": limits(card),
        "decisions": decisions(card),
    }
    return fill("card.md", facts)


def fill(template: str, facts: Mapping) -> str:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    made.filters |= {"plain": plain, "cell": lambda text: plain(text).replace("|", "\\|"), "quoted": json.dumps}
    return made.get_template(template).render(facts)


def plain(text: object) -> str:
    """Return a text as one line that Markdown shows verbatim: a name of a file or class is no HTML and no link."""
    line = " ".join(str(text).split())
    for sign, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\\", "\\\\"), ("[", "\\["), ("`", "\\`")):
        line = line.replace(sign, instead)
    return line


def code(text: object) -> str:
    """Return a text as Markdown's code, in one line."""
    return "`" + " ".join(str(text).split()).replace("`", "'") + "`"


def as_words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def start(config: Mapping) -> str:
    """Return the source of the weights before training."""
    if config["backbone"] == "features":
        return "random weights"
    if config.get("weights"):
        weights = Path(config["weights"])
        return f"the {'file' if weights.suffix else 'folder'} {weights.name}"
    return f"published weights of {config['backbone']}" if config.get("pretrained") else "random weights"


def network(card: Card) -> str:
    """Return a sentence about the checkpoint that was exported."""
    if card.checkpoint == "untrained":
        return (
            f"It is untrained: {code(card.config['backbone'])} as it was before the first step, from "
            f"{plain(start(card.config))}."
        )
    return {
        "best": "This is the checkpoint of its training that was best on validation.",
        "last": "This is the last network of its training; the one that was best on validation is another file.",
        "only": f"This is the network {'that its training ended with' if card.finished else 'of the last checkpoint'}.",
    }[card.checkpoint]


def sees(card: Card) -> str:
    """Return sentences about the input of the network."""
    see = card.preprocess
    if see is None:
        return "It takes float vectors, of the same kind as those it was trained on."
    how = (
        f"resized until the short side has {see['short_side']} pixels, and the middle {see['size']} x {see['size']} cut out"
        if see["short_side"]
        else f"resized to {see['size']} x {see['size']}, whatever its shape"
    )
    first = f"shrunk to a short side of {see['shrink_first']} where it is longer, then " if see["shrink_first"] else ""
    return (
        f"An image is turned upright, put on white where it is transparent, {first}{how} (bilinear, by Pillow, along rows and "
        "then columns), with RGB values in 0..1. The network subtracts the mean and divides by the deviation itself. "
        + ("`preprocess.json` has this in numbers." if card.to == "onnx" else "`likewise.load` does all of it.")
    )


def scored(card: Card) -> list[str]:
    scores = card.scores
    if not scores:
        return ["This network was not scored."]
    split, similarity = scores.get("split", "test"), scores["similarity"]
    lines = [plain(f"{scores['queries']} queries of the {split} split, {similarity} similarity.")]
    lines += [plain(f"{line[0].upper()}{line[1:]}.") for line in [*sample_lines(scores), *interval_lines(scores)]]
    if card.config.get("protocol"):
        lines.append(f"Queries and gallery: {code(card.config['protocol'])}.")
    if scores.get("unscored"):
        lines.append(plain(f"{scores['unscored']} more queries have no relevant gallery row and are not included."))
    lines += [
        plain(f"{line[0].upper()}{line[1:]}.")
        for line in [*tree_lines(scores), *corrected_notes(scores), *label_lines(scores)]
    ]
    leaks = plain(scores.get("leaks") or "")
    return [*lines, f"{leaks[0].upper()}{leaks[1:]}."] if leaks else lines


def decisions(card: Card) -> list[str]:
    """Return sentences about the thresholds of the calibration; [] without one."""
    calibration = card.calibration
    if calibration is None:
        return []
    lines = []
    for name, threshold, kind in (
        ("Same class", calibration.pair, "pair"),
        ("Known class", calibration.unknown, "unknown"),
    ):
        at = "" if threshold.value is None else f" from similarity {threshold.value:.4g} on"
        lines.append(plain(f"{name}{at}: {describe_promise(threshold, kind)}"))
    of = calibration.gallery
    size = f" of {of['rows']} rows of {of['classes']} classes" if {"rows", "classes"} <= of.keys() else ""
    where = "`gallery.npz`, the gallery" if card.has_gallery else "the validation gallery"
    return [
        *lines,
        f"The second threshold and the probability are for {where}{size}; another gallery needs a calibration of its own.",
        "The promise holds for new classes that are drawn like the validation classes, not for images of another kind.",
    ]


def limits(card: Card) -> list[str]:
    lines = (
        []
        if card.finished or card.checkpoint == "untrained"
        else ["Its training was not finished when this was written."]
    )
    if card.preprocess:
        size = card.preprocess["size"]
        lines.append(f"Images have {size} x {size} pixels; details that are lost at this size cannot be used.")
    if card.scores:
        lines.append("The scores are those of one training, on one data set; another seed or other data give others.")
    return [*lines, "Classes, people or places that its data lacks were not measured; nor was fairness among groups."]
