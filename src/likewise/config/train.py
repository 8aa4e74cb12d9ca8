"""The settings of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from likewise.config.cli_types import Duration, Positional, Spec, called, spec_fields

KEPT_OUT = (
    "root",
    "recipe",
    "device",
    "workers",
    "checkpoint_every",
    "log_every",
    "loggers",
    "record_losses",
    "out",
    "restart",
    "evaluate",
    "cache",
    "cache_memory",
    "execution",
    "recompute",
    "gpus",
    "shard_proxies",
    "metrics",
    "skip_bad",
    "data",
    "allow_imports",
    "quiet",
)
"""Settings that do not change what is learned, and so are no part of a run's identity."""


@dataclass(frozen=True)
class Train:
    """Train an embedding, then evaluate it on the test split."""

    data: Annotated[Positional[str], called("DATA")]
    """A folder with one sub-folder per class, a table (.csv, .parquet) with path,label, features (.npz) with x,label, or a name.

    A table may also have split, query, gallery, class_name, group, box and weight; `likewise list data` shows the names. With
    --allow-imports, also a reader of your own: "my_lab.readers.boats()"."""
    root: str | None = None
    """Where the original download of a named data set was unpacked, or where a table's paths start."""
    recipe: str | None = None
    """Start from a named recipe (see `likewise list recipes`); flags given beside it win. `--robust`, for labels that may be
    wrong, is short for `--recipe robust` and may stand beside another recipe."""

    loss: Spec = "MultiSimilarity()"
    """What is minimised, as a spec: "Triplet(margin=0.1)"; see `likewise list losses`."""
    batch_size: int | None = None
    """Samples in a batch; takes precedence over the `batch` of --sampler. By default
    4 samples of up to 28 classes."""
    sampler: Spec | None = None
    """How batches are made, as a spec; see `likewise list samplers`. By default 4 samples each of up to 28 classes."""
    protocol: Spec | None = None
    """What trains, validates and tests, as a spec: "UnseenClasses(val=0.2)". By default unseen classes, or marked queries."""
    confidence: Spec | None = None
    """How far to believe each label while training, as a spec: "LabelPosterior()"; see `likewise list confidence`. By default all
    labels are believed. `--robust` chooses for you."""
    terms: tuple[Spec, ...] = ()
    """What the objective adds beside the loss, as specs: "LanguageGuidance(weight=10)"; see `likewise list terms`."""
    loss_weight: float = 1.0
    """Weight of the loss beside the terms."""
    noise: Spec | None = None
    """Spoil this share of the training labels on purpose, as a spec: "Uniform(share=0.3)". Never touches test labels."""

    backbone: str | None = None
    """Network: any timm name, googlenet, bn_inception, conv_small. By default resnet50; conv_small for glyphs."""
    pretrained: bool | None = None
    """Start from ImageNet weights. By default yes, where the backbone has any."""
    weights: str | None = None
    """Start from a local weight file instead."""
    dim: int = 128
    """Size of the embedding."""
    head: Spec = "Linear()"
    """From the pooled feature to the embedding, as a spec: "Linear()" or "MLP(hidden=512)"."""
    pool: Literal["avg", "max", "avg+max"] = "avg"
    """How the last feature map becomes one vector."""
    layer_norm: bool = False
    """Normalise the pooled feature before the head."""
    freeze_bn: bool | None = None
    """Keep the backbone's BatchNorm statistics as they are (its scale and shift still learn). By default yes, where the network
    does not start from random weights: batches of few classes would spoil what it knows."""
    size: int | None = None
    """Side of the square picture the network sees, in pixels. By default what the backbone was made for."""
    augment: Literal["crop", "affine", "none"] | None = None
    """What training does to pictures: random crop and flip, a small affine move, nothing. By default crop; affine for glyphs."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Least and largest share of the picture that a random crop keeps."""

    views: int = 1
    """How often every picture stands in a batch, each time with an augmentation of its own."""
    color_jitter: tuple[float, float, float] | None = None
    """How much training may change brightness, contrast and saturation: 0.4 0.4 0.4 are factors from 0.6 to 1.4. By default not
    at all."""
    cache: Literal["auto", "files", "disk", "host", "device"] = "auto"
    """Where decoded pictures are kept: nowhere (files: read every time), on disk, in memory (host), on the device; auto: wherever
    they fit. It changes nothing but the time."""
    cache_memory: str | None = None
    """Memory of the device that --cache auto may take ("20GB"). By default half of what is free."""
    short_side: int | None = None
    """Short side to shrink larger pictures to, before anything else. By default they stay whole."""

    mixup: float | None = None
    """Train on mixtures of two samples, in shares drawn from Beta(mixup, mixup); 2 is a paper's value. By default off."""
    mixup_at: Literal["any", "input"] = "any"
    """Where samples are mixed: at the input or before one of the backbone's first three stages, or at the input only."""

    epochs: float = 20
    """How long to train, in passes over the training data."""
    steps: int | None = None
    """How long to train, in optimiser steps; takes precedence over --epochs."""
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
    warmup: Duration = "0"
    """Train only head and loss for so long at first, the backbone frozen ("1e", "100")."""
    schedule: Literal["constant", "step", "cosine", "plateau"] = "constant"
    """Learning rate over time: constant; times factor every so long; half a cosine to 0; times factor when validation stalls."""
    schedule_every: Duration = "10e"
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
    execution: Literal["auto", "eager", "graph", "compile"] = "auto"
    """How a GPU runs the network: kernel by kernel, as one CUDA graph, or compiled and then as one. By default the fastest, found
    by trying at the start; compiling, which takes a minute, is tried where a long training can win that back."""
    chunk_size: int | None = None
    """Pictures that go through the network at once; the loss sees the whole batch all the same. For batches of thousands on a
    small card, at the price of a second forward pass. BatchNorm then sees a chunk at a time."""
    recompute: bool = False
    """Work activations out again on the way back instead of keeping them: less memory, slower, the same numbers."""

    select: str = "MAP@R"
    """Metric that picks the best network on the validation split."""
    validate_every: Duration = "1e"
    """How often to validate, where the protocol has a validation split."""
    patience: int | None = None
    """Stop after so many validations in a row without a new best. By default train to the end."""
    test_every: Duration | None = None
    """Also score the test split this often, and report the best of each metric apart as "best test epoch": chosen by test
    labels, only to compare with papers that do so. It never decides which network counts. By default it is not looked at."""
    checkpoint_every: Duration = "30s"
    """How often to save a state that training can go on from: seconds ("30s"), passes ("1e") or steps ("500"). By seconds, saving
    never takes more than a twentieth of the time."""
    log_every: int = 20
    """Steps between two lines of the log."""
    loggers: tuple[Spec, ...] = ()
    """Where the log also goes, as specs: "TensorBoard()" "WandB(project='birds')" "MLflow()"; see `likewise list loggers`."""
    record_losses: bool = False
    """Keep the loss of every training sample in every pass (losses.npz), for audits: labels that are learned late are suspect.

    It is the loss of the label trained with, unweighted, where a confidence changes labels or weighs them. Nothing learns from
    it. A training that goes on with this set keeps them from there on, and one that began with it goes on with it."""
    seed: int = 0
    """Seed of everything random: initial weights, order, augmentation, noise."""

    out: str | None = None
    """Folder of the run. By default runs/DATA-LOSS-IDENTITY: the same settings and data find the same folder."""
    restart: bool = False
    """Train anew where a finished run stands; by default it is kept and shown."""
    evaluate: bool = True
    """Evaluate on the test split when done."""
    metrics: tuple[str, ...] = ("R@1", "R@10", "RP", "MAP@R")
    """What to measure; see `likewise list metrics`."""
    device: str | None = None
    """cpu, cuda, cuda:1, mps. By default the GPU if there is one."""
    gpus: int | None = None
    """Train on so many GPUs of this machine (with --device cpu: in so many processes), each with a share of the batch; the
    gradient is the same. By default one. Over several machines: torchrun ... -m likewise train ..."""
    shard_proxies: bool = False
    """With --gpus, share the loss's proxies out among them, for very many classes; exact. For ArcFace, CosFace, NormSoftmax and
    ProxyNCA."""
    workers: int = -1
    """Processes that read pictures from files, or threads that decode them once; -1 chooses."""
    skip_bad: bool = False
    """Decode every picture first and go on without the broken ones, counting them."""
    allow_imports: bool = False
    """Let specs, metrics and data import components by dotted name (my_lab.losses.Mine()), which runs their code."""
    quiet: bool = False
    """No progress bar, no table."""


def merged_settings(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return `base` updated with `given`. A given `epochs` removes the `steps` of `base`, which would take precedence over it."""
    superseded = {"steps"} if "epochs" in given and "steps" not in given else set()
    return {key: value for key, value in base.items() if key not in superseded} | given


SPECS = tuple(name for name in spec_fields(Train) if name not in KEPT_OUT)
"""Settings that are specs of components and change what is learned."""
