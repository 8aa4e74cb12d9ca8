"""Check the settings of a training, and fill in those that depend on the data; choose the backbone if none is named."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int

from likewise.core.contracts import BatchSampler, Loss, Protocol, Relevance
from likewise.core.distributed.process_group import broadcast_from_first
from likewise.core.durations import period_of, steps_of
from likewise.core.settings import SPECS, Train, check, default_metrics, default_select, duration_fields, texts_of
from likewise.core.settings.overrides import with_argument
from likewise.core.settings.spec import build, canonical, check_names, describe, spec
from likewise.core.types import Items, LikewiseError
from likewise.data import DRAWN_DATA, NAMES
from likewise.data.dataset import absolute_path, default_protocol, inject_noise, make_protocol
from likewise.data.protocols.class_folds import ClassFolds
from likewise.data.shards import is_shards
from likewise.learn.samplers.samples_per_class import SamplesPerClass
from likewise.models.backbones import OWN_BACKBONES, check_name, check_size, default_pool, width_of
from likewise.models.pretrained.available import PACKAGED_BACKBONES, Available, available_backbone
from likewise.models.pretrained.foundation import FOUNDATION_BACKBONES
from likewise.models.pretrained.weights import DEFAULT_BACKBONE
from likewise.runs.folder import Run
from likewise.runs.identity import Claim, default_folder, find_run, identity_of
from likewise.score.checks import check_metric_names


def check_settings(config: Train) -> None:
    """Raise for the first setting that cannot be right: types, ranges, specs, durations, the backbone and metrics."""
    check(config)
    check_texts(config)
    check_metric_names(config)


def describe_folds(config: Train) -> str:
    """Return a sentence about the folds that a training leaves out; "" if its protocol has none."""
    folds = fold_specs(config.protocol) if config.protocol else None
    if not folds:
        return ""
    return f"this trains the first of {len(folds)} folds; `likewise bench` trains them all and scores them together"


def check_texts(config: Train) -> None:
    """Raise for an error in a spec, a duration or the name of the backbone, before data is read and weights are downloaded."""
    for text in texts_of(config, SPECS):
        check_names(text)
    check_durations(config)
    if config.backbone not in (None, "features", *OWN_BACKBONES):
        check_name(config.backbone)
    check_size(config.backbone or "", config.size)


def check_durations(config: Train) -> None:
    """Raise unless every duration is a number of steps or epochs; `checkpoint_every` may also be in seconds."""
    for name in duration_fields(Train):
        text = getattr(config, name)
        if text:
            (period_of if name == "checkpoint_every" else steps_of)(text, 1, name)


def resolve(config: Train, items: Items) -> Train:
    """Return the settings with all defaults that depend on the data filled in, and all specs in canonical form."""
    glyphs = items.name in DRAWN_DATA
    backbone = config.backbone or ("features" if items.x is not None else "conv_small" if glyphs else DEFAULT_BACKBONE)
    if (backbone == "features") != (items.x is not None):
        kind = "features" if items.x is not None else "images"
        raise LikewiseError(
            f"train: the backbone must fit the data, which holds {kind}, got --backbone {backbone}; drop --backbone"
        )
    protocol = canonical(config.protocol or default_protocol(items))
    sampler = config.sampler
    if sampler is None:
        rule = build(protocol, Protocol, allow_imports=config.allow_imports)
        # Noise may leave fewer classes.
        noisy = inject_noise(items, rule, config.noise, config.seed, config.allow_imports)
        sampler = default_sampler(config, noisy, noisy.y[rule.rows(noisy, "train")])
    if config.batch_size is not None:
        sampler = with_argument(replace(config, sampler=sampler), "sampler.batch", config.batch_size, "train").sampler
    relevance = config.relevance or default_relevance(items)
    gives = relevance_kind(relevance, config).gives if relevance else None
    own_weights = backbone in ("features", "conv_small")
    pretrained = config.pretrained
    if pretrained is None:
        pretrained = not own_weights and config.weights is None
    known = pretrained or config.weights is not None
    pool, frozen = config.pool or default_pool(backbone), freezes(config, backbone)
    head, dim = canonical(config.head), config.dim
    if head == "Identity()":  # the feature is the embedding, so the width of the feature replaces `dim`
        dim = width_of(backbone, pool) if items.x is None else items.x.shape[1]
    return replace(
        config,
        data=config.data if config.data in NAMES else absolute_path(config.data),
        root=config.root and str(Path(config.root).expanduser().absolute()),
        weights=config.weights and str(Path(config.weights).expanduser().absolute()),
        votes=config.votes and str(Path(config.votes).expanduser().absolute()),
        backbone=backbone,
        pretrained=pretrained,
        pool=pool,
        freeze_bn=known if config.freeze_bn is None else config.freeze_bn,
        freeze_backbone=frozen,
        protocol=protocol,
        augment=config.augment or ("affine" if glyphs else "crop"),
        loss=canonical(config.loss),
        sampler=canonical(sampler or ""),
        relevance=with_whole_paths(canonical(relevance)) if relevance else None,
        metrics=default_metrics(config.metrics, gives),
        select=default_select(config.select, gives),
        batch_size=None,  # now the `batch` argument of the sampler
        epochs=float(config.epochs),
        head=head,
        dim=dim,
        noise=canonical(config.noise) if config.noise else None,
        confidence=chosen_confidence(canonical(config.confidence), items) if config.confidence else None,
        terms=tuple(canonical(term) for term in config.terms),
    )


def default_sampler(config: Train, items: Items, labels: Int[np.ndarray, "n"]) -> str:
    """Return the sampler of a training that names none: four samples of a class, of a label, or relevant to each other.

    Args:
        labels: classes of the training samples.
    """
    relevance = config.relevance or default_relevance(items)
    batch = max(4, min(112, len(labels) // 8 * 4))  # at most half of the samples
    if relevance and relevance_kind(relevance, config).by == "sample":
        return f"RelatedSamples(batch={batch})"
    if relevance and items.label_sets is not None:
        return f"SamplesPerLabel(batch={batch})"
    size = np.unique(labels, return_counts=True)[1]
    lonely = ", lonely='skip'" if (size == 1).any() and (size > 1).any() else ""
    return f"SamplesPerClass(batch={4 * max(1, min(28, (size > 1).sum()))}, per_class=4{lonely})"


def with_possible_batch(config: Train, given: Train, items: Items) -> tuple[Train, str]:
    """Return resolved settings with a batch that the training classes can fill, and a sentence if it was lowered; otherwise "".

    A batch from --batch-size is lowered, and one from a recipe unless the training is strict, which repeats a paper. A sampler
    that is written out is not changed.

    Args:
        given: the settings before `resolve`.
    """
    by_recipe = given.recipe not in (None, "robust") and not given.strict
    if given.batch_size is None and not by_recipe:
        return config, ""
    sampler = describe(config.sampler or "", BatchSampler, allow_imports=config.allow_imports)
    if sampler.kind is not SamplesPerClass or sampler.arguments["with_replacement"]:
        return config, ""
    batch, each = sampler.arguments["batch"], sampler.arguments["per_class"]
    protocol = make_protocol(config)
    noisy = inject_noise(items, protocol, config.noise, config.seed, config.allow_imports)
    sizes = np.unique(noisy.y[protocol.rows(noisy, "train")], return_counts=True)[1]
    classes = int((sizes > 1).sum()) if each > 1 else len(sizes)
    possible = min(batch // each, classes) * each
    if possible in (0, batch):  # 0: the sampler reports the problem
        return config, ""
    named = "the batch of the recipe" if given.batch_size is None else "--batch-size"
    why = f"a batch has {each} sample{'s' * (each != 1)} of each class"
    if possible == classes * each:
        why += f", and {classes} class{' is' if classes == 1 else 'es are'} in training"
    return with_argument(config, "sampler.batch", possible, "train"), f"{named} {batch} is lowered to {possible}: {why}"


def relevance_kind(relevance: str, config: Train) -> type[Relevance]:
    """Return the class of a relevance."""
    return describe(relevance, Relevance, allow_imports=config.allow_imports).kind


def chosen_confidence(confidence: str, items: Items) -> str:
    """Return the confidence; --robust on samples with several labels is `LabelSetPosterior`, which works on single labels."""
    if items.label_sets is None or not confidence.startswith("LabelPosterior("):
        return confidence
    if confidence != canonical("LabelPosterior()"):
        raise LikewiseError(
            f"train: {confidence} needs one label per sample, and '{items.name}' has several; use --confidence "
            '"LabelSetPosterior(least=0.9)"'
        )
    return canonical("LabelSetPosterior()")


def default_relevance(items: Items) -> str | None:
    """Return the relevance of a training that names none: shared labels if samples have several, otherwise None."""
    return None if items.label_sets is None else "SharedLabels()"


def with_whole_paths(relevance: str) -> str:
    """Return a canonical spec with existing files as absolute paths, so that a run can be opened from any folder."""
    call = ast.parse(relevance, mode="eval").body
    for word in call.keywords if isinstance(call, ast.Call) else ():
        value = word.value.value if isinstance(word.value, ast.Constant) else None
        if isinstance(value, str) and Path(value).suffix:
            word.value = ast.Constant(absolute_path(value))
    return ast.unparse(call)


def freezes(config: Train, backbone: str) -> bool:
    """Return whether the backbone is frozen: by default a foundation backbone, and every backbone with LoRA."""
    if config.lora is not None and (backbone == "features" or config.freeze_backbone is False):
        conflict = "--no-freeze-backbone" if config.freeze_backbone is False else "data that are features"
        raise LikewiseError(
            f"train: --lora {config.lora} changes a frozen backbone a little, which excludes {conflict}; drop one of the two"
        )
    return config.lora is not None or (
        backbone in FOUNDATION_BACKBONES if config.freeze_backbone is None else config.freeze_backbone
    )


def fold_specs(protocol: str) -> list[str] | None:
    """Return one spec for each fold of a ClassFolds without `fold`; None for any other protocol."""
    whole = ast.parse(canonical(protocol), mode="eval").body
    if not isinstance(whole, ast.Call) or ast.unparse(whole.func) != ClassFolds.__name__:
        return None
    written = ast.parse(protocol.strip(), mode="eval").body  # canonical fills `fold` in
    if isinstance(written, ast.Call) and any(word.arg == "fold" for word in written.keywords):
        return None
    folds = build(protocol, ClassFolds)
    return [canonical(spec(ClassFolds(folds.folds, fold, folds.own_split))) for fold in range(folds.folds)]


def check_loss(config: Train, items: Items) -> None:
    """Raise unless the loss of resolved settings can be built for the training classes. Uses meta tensors: no memory."""
    protocol = make_protocol(config)
    noisy = inject_noise(items, protocol, config.noise, config.seed, config.allow_imports)
    classes = len(np.unique(noisy.y[protocol.rows(noisy, "train")]))
    with torch.device("meta"):
        build(config.loss, Loss, allow_imports=config.allow_imports, classes=classes, dim=config.dim)


BACKBONE_CHOICES = (DEFAULT_BACKBONE, *PACKAGED_BACKBONES)
"""Backbones that a training without a named one may get."""


def leaves_backbone_open(config: Train) -> bool:
    """Whether the user named no backbone, no weights and no recipe, except `robust`, which only sets a confidence."""
    open_settings = (config.backbone, config.weights, config.pretrained) == (None, None, None)
    return open_settings and config.recipe in (None, "robust")


def find_backbone(config: Train) -> Available | None:
    """Return the backbone that a training without a named one gets, before data is read: missing weights are an early error.

    None if the settings name one, or if the data may decide.
    """
    is_image_data = not (
        config.data in DRAWN_DATA or config.data.lower().endswith((".npz", ")")) or is_shards(config.data)
    )
    return available_backbone() if is_image_data and leaves_backbone_open(config) else None


def resolve_with(config: Train, items: Items, found: Available | None) -> tuple[Train, str]:
    """Return the resolved settings, and why their backbone was chosen; "" if the settings or the data decided.

    Args:
        found: what `find_backbone` returned. All processes take the backbone that the first process found.
    """
    if items.x is not None or items.name in DRAWN_DATA or not leaves_backbone_open(config):
        return resolve(config, items), ""
    found = found or available_backbone()
    name = BACKBONE_CHOICES[int(broadcast_from_first(torch.tensor(BACKBONE_CHOICES.index(found.name))))]
    return resolve(replace(config, backbone=name), items), found.reason


def claim_run(config: Train, items: Items, choice: str, say: Callable[[str], None]) -> Claim:
    """Return the run folder of resolved settings. Prints a choice, and the runs of the same command with another backbone."""
    claim = find_run(config, items, choice=choice)
    if choice:
        say(choice)
        others = runs_of_other_choices(config, items, claim.about["data"]) if config.out is None else {}
        for name, folder in others.items():
            say(f"this is another run than {folder}, which has {name}; --backbone {name} continues or shows that one")
    return claim


def runs_of_other_choices(config: Train, items: Items, data: str) -> dict[str, str]:
    """Return backbone -> folder, for the runs that the same command made when it chose another backbone."""
    others = {name: replace(config, backbone=name) for name in BACKBONE_CHOICES if name != config.backbone}
    folders = {name: default_folder(one, items, identity_of(one, data)) for name, one in others.items()}
    return {name: folder for name, folder in folders.items() if (Run(folder).path / "config.json").exists()}
