"""The settings of a training, and the metrics that an evaluation computes by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Interval

from likewise.core.argument_checks import Count, CountOrZero, NotNegative, Share
from likewise.core.settings.field_types import (
    Device,
    Duration,
    File,
    Folder,
    Location,
    Memory,
    Name,
    Positional,
    Processes,
    Seed,
    Spec,
    Workers,
    called,
    spec_fields,
)

Momentum = Annotated[float, Interval(ge=0, le=0.999999)]
MixupAlpha = Annotated[float, Ge(0.01)]
ClipBound = Annotated[float, Ge(1e-12)]

SETTINGS_OUTSIDE_IDENTITY = (
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
    "strict",
    "data",
    "allow_imports",
    "quiet",
)
"""Settings that do not change what is learned. The identity of a run does not depend on them."""

COMMON_FLAGS = ("robust", "epochs", "batch_size", "lr", "loss", "backbone", "size", "recipe", "out", "device")
"""The flags that `likewise train --help` shows, in this order. `--help-all` shows all flags."""

ROBUST_FLAG_HELP = (
    "Find and correct wrong labels during training; short for `--recipe robust`, and may be combined with "
    "another recipe."
)
"""Help of `--robust`, which is a flag of the command line and no setting."""

FLAG_GROUPS = {
    "Data": (
        "data", "root", "protocol", "augment", "crop_scale", "views", "color_jitter", "short_side", "mixup", "mixup_at",
        "strict", "allow_imports",
    ),
    "Network": (
        "backbone", "pretrained", "weights", "size", "dim", "head", "pool", "layer_norm", "freeze_bn",
        "freeze_backbone", "lora",
    ),
    "Loss": (
        "loss", "recipe", "relevance", "loss_weight", "terms", "batch_size", "sampler", "loss_lr", "loss_eps",
        "loss_weight_decay",
    ),
    "Noise": ("robust", "confidence", "votes", "noise", "record_losses"),
    "Schedule": (
        "epochs", "steps", "optimizer", "lr", "backbone_lr", "weight_decay", "momentum", "eps", "warmup", "schedule",
        "schedule_every", "schedule_factor", "schedule_patience", "average", "clip_value", "clip_norm", "select",
        "validate_every", "patience", "test_every", "seed",
    ),
    "Speed": (
        "device", "gpus", "shard_proxies", "workers", "cache", "cache_memory", "precision", "execution", "chunk_size",
        "recompute",
    ),
    "Output": ("out", "restart", "evaluate", "metrics", "checkpoint_every", "log_every", "loggers", "quiet"),
}  # fmt: skip
"""Heading of `likewise train --help-all` -> its flags. Every setting of Train belongs to one group."""


DEFAULT_METRICS = ("R@1", "R@10", "RP", "MAP@R")
"""Metrics of an evaluation that names none."""


def default_metrics(metrics: Sequence[str], gives: Sequence[str] | None) -> tuple[str, ...]:
    """Return the metrics; in place of the default ones, those that a relevance decides.

    Args:
        gives: `Relevance.gives`; None: there is no relevance.
    """
    if gives is None or tuple(metrics) != DEFAULT_METRICS:
        return tuple(metrics)
    return (*metrics, "NDCG@10") if "pairs" in gives else ("triplet-agreement",)


def default_select(select: str, gives: Sequence[str] | None) -> str:
    """Return the metric that selects a checkpoint: in place of the default one, of classes, that of judged triplets only."""
    only_triplets = gives is not None and "pairs" not in gives
    return "triplet-agreement" if only_triplets and select == "MAP@R" else select


@dataclass(frozen=True)
class Train:
    """Train an embedding on DATA, then evaluate it on the test split."""

    data: Annotated[Positional[str], called("DATA")]
    """A folder with one sub-folder per class, a table (.csv, .parquet) with path,label, features (.npz) with x,label, or the
    name of a data set such as cub200.

    A table may also have the columns split, query, gallery, class_name, group, camera, junk, box and weight. `likewise list data`
    shows the names. With --allow-imports, DATA may also be a reader of your own: "my_lab.readers.boats()"."""
    root: Folder | None = None
    """Folder with the original download of a named data set (required for most of them), or the folder that the paths of a table
    start from. By default the folder of the table."""
    recipe: Name | None = None
    """Start from the settings of a recipe, such as a paper's; other flags override it; `likewise list recipes` shows all.
    With :print after the name, the values of the paper's text where its code differs. By default none."""

    loss: Spec = "MultiSimilarity()"
    """The loss: a name and arguments, such as "Triplet(margin=0.1)"; `likewise list losses` shows all."""
    relevance: Spec | None = None
    """Which samples are relevant to each other, in place of equal labels, such as "TreeDepth()"; `likewise list
    relevance` shows all. By default SharedLabels() if samples have several labels, otherwise none: equal labels are relevant."""
    batch_size: Count | None = None
    """Samples per batch; overrides the `batch` of --sampler, and is lowered if there are too few classes. By default 4 samples
    from each of up to 28 classes."""
    sampler: Spec | None = None
    """The batch sampler; `likewise list samplers` shows all. By default SamplesPerClass, with 4 samples from each of
    up to 28 classes."""
    protocol: Spec | None = None
    """The rule that assigns rows to the train, val and test splits, such as "UnseenClasses(val=0.2)". By default
    UnseenClasses(), QueryGallery() if the data marks queries, or StratifiedLabels() if samples have several labels."""
    confidence: Spec | None = None
    """The confidence that computes sample weights and may relabel, such as "LabelPosterior()"; `likewise list
    confidence` shows all. By default none: every label is used as given. --robust chooses one."""
    votes: File | None = None
    """Labels by several workers: a table (.csv, .parquet) with one line per vote and the columns sample (the path, or the row of
    features), worker and label. --robust then trains with the consensus of votes and features. By default the column `votes` of
    the data, if it has one."""
    terms: tuple[Spec, ...] = ()
    """Terms added to the loss, such as "LanguageGuidance(weight=10)"; `likewise list terms` shows all. By default
    none."""
    loss_weight: NotNegative = 1.0
    """Factor of the loss in the objective; terms have their own weights."""
    noise: Spec | None = None
    """Noise model that makes training labels wrong on purpose, such as "Uniform(share=0.3)"; test labels never change.
    By default none."""

    backbone: Name | None = None
    """The network: a foundation model such as dinov2-small, siglip-base or clip-base-16, any timm name, or resnet50_v1,
    mobilenet_v2, googlenet, bn_inception, conv_small (`likewise list backbones`). By default resnet50; without a hub and without
    its weights on this disk, the best backbone whose weights are installed (`likewise doctor` shows it); conv_small for the data
    set glyphs."""
    pretrained: bool | None = None
    """Start from ImageNet weights. By default on if the backbone has such weights and --weights is not given."""
    weights: Location | None = None
    """Weight file to start from, in place of ImageNet weights; for resnet50_v1 also a TensorFlow.js folder. By default none."""
    dim: Count = 128
    """Number of dimensions of the embedding."""
    head: Spec = "Linear()"
    """Layers between the pooled feature and the embedding: "Linear()" or "MLP(hidden=512)"; `likewise list heads`
    shows all."""
    pool: Literal["avg", "max", "avg+max", "own"] | None = None
    """Pooling of the last feature map into one vector: its average, its maximum, the sum of both, or the network's own pooling,
    such as the class token. By default avg; own for a foundation model."""
    layer_norm: bool = False
    """Apply layer normalisation to the pooled feature before the head."""
    freeze_bn: bool | None = None
    """Keep the BatchNorm statistics of the backbone fixed; its scale and shift still learn. By default on, unless the network
    starts from random weights: statistics of batches with few classes would damage pretrained weights."""
    freeze_backbone: bool | None = None
    """Train only the head: the backbone keeps its weights. By default on for a foundation model (dinov2-small, ...) and with
    --lora; off for other backbones."""
    lora: Count | None = None
    """Rank of LoRA: train changes of this rank to the attention layers of a frozen transformer, such as 8. By default none."""
    size: Count | None = None
    """Side of the square input image of the network, in pixels; for a transformer a multiple of its patch. By default the input
    size of the backbone."""
    augment: Literal["crop", "affine", "none"] | None = None
    """Augmentation of training images: random crop and flip, a small affine transform, or none. By default crop; affine for
    glyphs."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Smallest and largest share of the image area that a random crop keeps, from 0 to 1."""

    views: Count = 1
    """Number of times that each image appears in a batch, every time with a different augmentation."""
    color_jitter: tuple[float, float, float] | None = None
    """Largest relative change of brightness, contrast and saturation: 0.4 0.4 0.4 means factors from 0.6 to 1.4. By default no
    change."""
    cache: Literal["auto", "files", "disk", "host", "device"] = "auto"
    """Where decoded images are kept between epochs: not at all (files), on disk (disk), in host memory (host), in device memory
    (device), or the fastest place where they fit (auto). It changes only the speed."""
    cache_memory: Memory | None = None
    """Device memory that --cache auto may use, such as "20GB". By default half of the free memory."""
    short_side: Count | None = None
    """Shrink larger images to this short side, in pixels, before any other step. By default images keep their size."""

    mixup: MixupAlpha | None = None
    """Train on mixtures of two samples with proportions drawn from Beta(mixup, mixup), such as 2. By default off."""
    mixup_at: Literal["any", "input"] = "any"
    """Where --mixup mixes samples: at the input or before one of the first three stages of the backbone (any), or at the input
    only."""

    epochs: NotNegative = 20
    """Length of the training, in epochs (passes over the training data)."""
    steps: CountOrZero | None = None
    """Length of the training, in optimiser steps; overrides --epochs. By default --epochs decides."""
    optimizer: Literal["adam", "adamw", "rmsprop", "sgd"] = "adamw"
    """The optimiser."""
    lr: NotNegative = 1e-4
    """Learning rate of the network."""
    backbone_lr: NotNegative | None = None
    """Learning rate of the backbone, if it differs from the learning rate of the head. By default --lr."""
    weight_decay: NotNegative = 1e-4
    """Weight decay of the network, biases and norms included; --loss-weight-decay is that of the loss."""
    momentum: Momentum = 0.9
    """Momentum of sgd and rmsprop; other optimisers ignore it."""
    eps: NotNegative = 1e-8
    """Epsilon of the optimiser."""
    loss_lr: NotNegative | None = None
    """Learning rate of the parameters of the loss, such as proxies. By default --lr times the factor in the loss's paper."""
    loss_eps: NotNegative | None = None
    """Epsilon of the optimiser for the parameters of the loss. By default --eps."""
    loss_weight_decay: NotNegative = 0.0
    """Weight decay of the parameters of the loss."""
    warmup: Duration = "0"
    """Initial time in which the backbone is frozen and only head and loss train: epochs ("1e") or steps ("100")."""
    schedule: Literal["constant", "step", "cosine", "plateau"] = "constant"
    """Learning rate over time: constant; multiplied by --schedule-factor every --schedule-every (step); half a cosine down to 0;
    multiplied by --schedule-factor when validation stops improving (plateau)."""
    schedule_every: Duration = "10e"
    """Period of the step schedule: epochs ("10e") or steps ("500")."""
    schedule_factor: Share = 0.5
    """Factor of the learning rate in the step and plateau schedules."""
    schedule_patience: CountOrZero = 4
    """Number of validations without improvement before the plateau schedule lowers the learning rate."""
    average: Share = 0.2
    """Share of the steps so far over which the weights of the network are averaged. The averaged network is validated, evaluated
    and exported. 0: the last weights, as in papers; recipes of papers have 0."""
    clip_value: ClipBound | None = None
    """Clip every entry of the gradient to this absolute value. By default no clipping."""
    clip_norm: ClipBound | None = None
    """Clip the norm of the gradient to this value. By default no clipping."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of the network's arithmetic; losses are always computed in fp32."""
    execution: Literal["auto", "eager", "graph", "compile"] = "auto"
    """How a GPU runs the network: kernel by kernel (eager), as a CUDA graph, or compiled and captured as a CUDA graph. auto
    measures at the start and takes the fastest; it tries compiling, which takes a minute, only for a long training."""
    chunk_size: Count | None = None
    """Images per forward pass, for batches that do not fit in memory; the loss still uses the whole batch. It costs a second
    forward pass, and BatchNorm uses the statistics of one chunk. By default the whole batch; on a CPU with frozen BatchNorm, as
    many as fit into the free memory."""
    recompute: bool = False
    """Recompute activations in the backward pass in place of storing them: less memory, slower, same results."""

    select: str = "MAP@R"
    """Metric on the validation split that selects the best checkpoint. With judged triplets only, MAP@R means
    triplet-agreement."""
    validate_every: Duration = "1e"
    """Period of validation, if there is a validation split: epochs ("1e") or steps ("500")."""
    patience: Count | None = None
    """Stop after this number of consecutive validations without a new best. By default training never stops early."""
    test_every: Duration | None = None
    """Period of additional scoring on the test split: epochs ("1e") or steps ("500"). By default never.

    The best value of each metric is reported separately as "best test epoch", for comparison with papers that select by test
    labels. It never selects a checkpoint."""
    checkpoint_every: Duration = "30s"
    """Period of saving the state from which an interrupted training resumes: seconds ("30s"), epochs ("1e") or steps ("500"). If
    saving is slow, a period in seconds grows, so that saving takes at most a twentieth of the time."""
    log_every: Count | None = None
    """Number of steps between two lines of the log. By default 20, or fewer in a short training, so that it has 50 lines."""
    loggers: tuple[Spec, ...] = ()
    """Loggers that also receive the log: "TensorBoard()" "WandB(project='birds')" "MLflow()"; `likewise list loggers`
    shows all. By default none."""
    record_losses: bool = False
    """Store the loss of every training sample in every epoch in losses.npz, for audits: a label that is learned late is suspect.

    The stored loss is unweighted and belongs to the label trained with. It does not change the training. A training that resumes
    with this flag records from there on; a training that started with it continues to record."""
    seed: Seed = 0
    """Seed of all random choices: initial weights, order of samples, augmentation, noise."""

    out: Folder | None = None
    """Folder of the run. By default runs/DATA-LOSS-IDENTITY: the same settings and data use the same folder."""
    restart: bool = False
    """Discard the finished run in the folder and train again; otherwise the finished run is kept and shown."""
    evaluate: bool = True
    """Evaluate the best checkpoint on the test split after training."""
    metrics: tuple[str, ...] = DEFAULT_METRICS
    """Metrics of the evaluation; `likewise list metrics` explains all."""
    device: Device | None = None
    """Device that trains: cpu, cuda, cuda:1 or mps. By default the GPU if there is one."""
    gpus: Processes | None = None
    """Number of GPUs of this machine to train on (with --device cpu: processes); each takes a share of the batch, with the same
    gradient. By default one. For several machines: torchrun ... --no-python likewise train ..."""
    shard_proxies: bool = False
    """With --gpus, divide the proxies of the loss among the GPUs, for very many classes; results are exact. For ArcFace,
    CosFace, NormSoftmax, ProxyNCA and Softmax."""
    workers: Workers = -1
    """Number of processes that read images, or of threads that decode them once; -1 chooses."""
    strict: bool = False
    """Stop at the first image that cannot be decoded. By default such images are skipped, counted and listed before the training
    starts, and it stops only if they are 5 or more and above 1 % of the images, or all images of a class.

    A recipe on a named data set is always strict."""
    allow_imports: bool = False
    """Allow losses and other components, metrics and data by dotted name (my_lab.losses.Mine()), which runs their code."""
    quiet: bool = False
    """Print no progress bar and no table."""


def merged_settings(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return `base` updated with `given`. A given `epochs` removes the `steps` of `base`, which would take precedence over
    it."""
    superseded = {"steps"} if "epochs" in given and "steps" not in given else set()
    return {key: value for key, value in base.items() if key not in superseded} | given


SPECS = tuple(name for name in spec_fields(Train) if name not in SETTINGS_OUTSIDE_IDENTITY)
"""Settings that are specs of components and change what is learned."""
