"""Every setting of every command, in one place and without torch: fields are flags, the texts below them are their help."""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from likewise import kinds
from likewise.errors import LikewiseError

Positional = tyro.conf.Positional


def called(name: str):
    """What help calls a positional argument."""
    return tyro.conf.arg(metavar=name)


KEPT_OUT = (
    "root",
    "recipe",
    "device",
    "workers",
    "checkpoint_every",
    "log_every",
    "out",
    "again",
    "evaluate",
    "metrics",
    "skip_bad",
    "data",
    "allow_imports",
    "quiet",
)
"""Settings that do not change what is learned, and so are no part of a run's identity."""


@dataclass(frozen=True)
class Train:
    """Train an embedding, then evaluate it on the test part."""

    data: Annotated[Positional[str], called("DATA")]
    """A folder with one sub-folder per class, a table (.csv, .parquet) with path,label, features (.npz) with x,label, or a name.

    A table may also have split, query, gallery, class_name, group, box and weight; `likewise list data` shows the names."""
    root: str | None = None
    """Where the original download of a named data set was unpacked, or where a table's paths start."""
    recipe: str | None = None
    """Start from a named recipe (see `likewise list recipes`); flags given beside it win."""

    loss: str = "MultiSimilarity()"
    """What is minimised, as a spec: "Triplet(margin=0.1)"; see `likewise list losses`."""
    sampler: str | None = None
    """How batches are made, as a spec; see `likewise list samplers`. By default 4 samples each of up to 28 classes."""
    protocol: str | None = None
    """What trains, validates and tests, as a spec: "UnseenClasses(val=0.2)". By default unseen classes, or marked queries."""
    noise: str | None = None
    """Spoil this share of the training labels on purpose, as a spec: "Uniform(share=0.3)". Never touches test labels."""

    backbone: str | None = None
    """Network: any timm name, googlenet, bn_inception, conv_small. By default resnet50; conv_small for glyphs."""
    pretrained: bool | None = None
    """Start from ImageNet weights. By default yes, where the backbone has any."""
    weights: str | None = None
    """Start from a local weight file instead."""
    dim: int = 128
    """Size of the embedding."""
    head: str = "Linear()"
    """From the pooled feature to the embedding, as a spec: "Linear()" or "MLP(hidden=512)"."""
    pool: Literal["avg", "max", "avg+max"] = "avg"
    """How the last feature map becomes one vector."""
    layer_norm: bool = False
    """Normalise the pooled feature before the head."""
    freeze_bn: bool = False
    """Keep the backbone's BatchNorm statistics as they are (its scale and shift still learn)."""
    size: int | None = None
    """Side of the square picture the network sees, in pixels. By default what the backbone was made for."""
    augment: Literal["crop", "affine", "none"] | None = None
    """What training does to pictures: random crop and flip, a small affine move, nothing. By default crop; affine for glyphs."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Least and largest share of the picture that a random crop keeps."""

    mixup: float | None = None
    """Train on mixtures of two samples, in shares drawn from Beta(mixup, mixup); 2 is a paper's value. By default off."""
    mixup_at: Literal["any", "input"] = "any"
    """Where samples are mixed: at the input or before one of the backbone's first three stages, or at the input only."""

    length: str = "20e"
    """How long to train: steps ("5000") or passes over the training data ("20e")."""
    optimizer: Literal["adam", "adamw", "rmsprop", "sgd"] = "adamw"
    """Optimiser."""
    lr: float = 1e-4
    """Learning rate of the network."""
    backbone_lr: float | None = None
    """Learning rate of the backbone, where it differs from the head's."""
    weight_decay: float = 1e-4
    """Weight decay of the network."""
    momentum: float = 0.9
    """Momentum, for sgd and rmsprop."""
    eps: float = 1e-8
    """The optimiser's epsilon."""
    loss_lr: float | None = None
    """Learning rate of the loss's own parameters (proxies). By default lr times the factor of the loss's paper."""
    loss_eps: float | None = None
    """Epsilon for the loss's own parameters. By default eps."""
    loss_weight_decay: float = 0.0
    """Weight decay of the loss's own parameters."""
    warmup: str = "0"
    """Train only head and loss for so long at first, the backbone frozen ("1e", "100")."""
    schedule: Literal["constant", "step", "cosine", "plateau"] = "constant"
    """Learning rate over time: constant; times factor every so long; half a cosine to 0; times factor when validation stalls."""
    schedule_every: str = "10e"
    """Period of the step schedule."""
    schedule_factor: float = 0.5
    """Factor of the step and plateau schedules."""
    schedule_patience: int = 4
    """Validations without progress before the plateau schedule acts."""
    clip_value: float | None = None
    """Clip every gradient entry to this."""
    clip_norm: float | None = None
    """Clip the gradient's norm to this."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the network; losses are always fp32."""

    select: str = "MAP@R"
    """Metric that picks the best network on the validation part."""
    validate_every: str = "1e"
    """How often to validate, where the protocol has a validation part."""
    patience: int | None = None
    """Stop after so many validations in a row without a new best. By default train to the end."""
    checkpoint_every: str = "1e"
    """How often to save a state that training can go on from."""
    log_every: int = 20
    """Steps between two lines of the log."""
    seed: int = 0
    """Seed of everything random: initial weights, order, augmentation, noise."""

    out: str | None = None
    """Folder of the run. By default runs/DATA-LOSS-IDENTITY: the same settings and data find the same folder."""
    again: bool = False
    """Train anew where a finished run stands; by default it is kept and shown."""
    evaluate: bool = True
    """Evaluate on the test part when done."""
    metrics: tuple[str, ...] = ("R@1", "R@10", "RP", "MAP@R")
    """What to measure; see `likewise list metrics`."""
    device: str | None = None
    """cpu, cuda, cuda:1, mps. By default the GPU if there is one."""
    workers: int = -1
    """Processes that read pictures; -1 chooses."""
    skip_bad: bool = False
    """Decode every picture first and go on without the broken ones, counting them."""
    allow_imports: bool = False
    """Let specs import parts by dotted name (my_lab.losses.Mine()), which runs their code."""
    quiet: bool = False
    """No progress bar, no table."""


@dataclass(frozen=True)
class Evaluate:
    """Score an embedding by retrieval: every test sample asks, all others may answer."""

    target: Annotated[Positional[str], called("TARGET")]
    """A run folder; or embeddings: .npz or .parquet with x,label[,split,query,gallery,group], .npy with --labels."""
    labels: str | None = None
    """Labels for embeddings that bring none: .csv with a column `label`, .npy, or .txt with one a line."""
    data: str | None = None
    """Where the run's data stands now, if it has moved."""
    root: str | None = None
    """Where the pictures of a table or a named data set stand now, if they have moved."""
    metrics: tuple[str, ...] = ("R@1", "R@10", "RP", "MAP@R")
    """What to measure; see `likewise list metrics`."""
    part: Literal["train", "val", "test"] = "test"
    """Which part of the data to score. Labels are the data's own, without noise that training added on purpose."""
    which: Literal["best", "last", "untrained"] = "best"
    """Which network of a run: best on validation (the last where there was none), last, or untrained: as it was at the start."""
    similarity: Literal["cosine", "euclidean"] | None = None
    """How to compare. By default what the run's loss trained for; cosine for embeddings."""
    device: str | None = None
    """cpu, cuda, mps. By default the GPU if there is one."""
    workers: int = -1
    """Processes that read pictures; -1 chooses."""
    skip_bad: bool = False
    """Decode every picture first and go on without the broken ones, counting them."""
    allow_imports: bool = False
    """Let the run's specs import parts by dotted name, which runs their code."""
    quiet: bool = False
    """No progress bar, no table."""


@dataclass(frozen=True)
class Embed:
    """Turn data into embeddings with a trained network, as a file every other command reads."""

    run: Annotated[Positional[str], called("RUN")]
    """A run folder."""
    data: Annotated[Positional[str], called("DATA")]
    """Anything `likewise train` takes, or a folder of pictures without classes."""
    out: str
    """File to write: .npz with x, label, class_name, path, split."""
    root: str | None = None
    """Where the data's paths start, as in train."""
    which: Literal["best", "last", "untrained"] = "best"
    """Which network of the run."""
    device: str | None = None
    """cpu, cuda, mps. By default the GPU if there is one."""
    workers: int = -1
    """Processes that read pictures; -1 chooses."""
    skip_bad: bool = False
    """Decode every picture first and go on without the broken ones, counting them."""
    allow_imports: bool = False
    """Let the run's specs import parts by dotted name, which runs their code."""
    quiet: bool = False
    """No progress bar."""


@dataclass(frozen=True)
class Search:
    """Find the nearest neighbours of a picture."""

    target: Annotated[Positional[str], called("TARGET")]
    """Where to look: a run folder (its test part), or embeddings made by `likewise embed`."""
    query: str
    """A picture file, or a row of the data (as in per_query.parquet and in the answers)."""
    model: str | None = None
    """Run whose network embeds the query picture, for embeddings that do not say which made them."""
    k: int = 5
    """How many neighbours."""
    out: str | None = None
    """Save a picture of query and neighbours here (.png)."""
    device: str | None = None
    """cpu, cuda, mps. By default the GPU if there is one."""
    workers: int = -1
    """Processes that read pictures; -1 chooses."""
    allow_imports: bool = False
    """Let the run's specs import parts by dotted name, which runs their code."""
    quiet: bool = False
    """No progress bar."""


@dataclass(frozen=True)
class Demo:
    """Train on the built-in glyphs with wrong labels among them, and show what was learned."""

    out: str | None = None
    """Folder of the run."""
    share: float = 0.3
    """Share of the training labels that are spoiled."""
    length: str = "12e"
    """How long to train, in passes ("12e") or steps ("550")."""
    data: str = "glyphs"
    """The glyphs to use, with arguments if wanted: "glyphs(classes=60)"."""
    seed: int = 0
    """Seed of everything random."""
    again: bool = False
    """Train anew although the demo has been run before."""


@dataclass(frozen=True)
class List:
    """Show the parts on a shelf: losses, miners, samplers, noise, protocols, heads, metrics, data, recipes, backbones."""

    shelf: Annotated[Positional[str], called("SHELF")] = "all"
    """Which shelf."""


@dataclass(frozen=True)
class RecipeShow:
    """Print a recipe: every value, where it comes from, and the command it stands for."""

    name: Annotated[Positional[str], called("NAME")]
    """The recipe; see `likewise list recipes`."""
    data: str | None = None
    """Show the values for this data set."""


def to_dict(config) -> dict:
    """A config as JSON takes it."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(config).items()}


SMALLEST = {
    "dim": 1, "size": 1, "lr": 0, "backbone_lr": 0, "loss_lr": 0, "weight_decay": 0, "loss_weight_decay": 0, "eps": 0,
    "loss_eps": 0, "momentum": 0, "schedule_factor": 0, "schedule_patience": 0, "clip_value": 1e-12, "clip_norm": 1e-12,
    "patience": 1, "log_every": 1, "seed": 0, "workers": -1, "k": 1, "share": 0,
    "mixup": 0.01,
}  # fmt: skip
LARGEST = {"momentum": 0.999999, "schedule_factor": 1, "share": 1, "seed": 2**31 - 1}


def check(config) -> None:
    """Every setting is of its kind and in its range, or an error that says which is not. The first thing a stage does."""
    name = type(config).__name__.lower()
    hints = typing.get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not kinds.fits(value, hints[field.name]):
            raise LikewiseError(f"{name}: {field.name} must be {kinds.words(hints[field.name])}, got {value!r}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = SMALLEST.get(field.name, -math.inf), LARGEST.get(field.name, math.inf)
            if not low <= value <= high or not math.isfinite(value):
                bounds = f"{low:g} or more" if high == math.inf else f"between {low:g} and {high:g}"
                raise LikewiseError(f"{name}: {field.name} must be {bounds}, got {value}")
