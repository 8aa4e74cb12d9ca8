"""Build the state of a training from its settings, in an order that the seed fixes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from likewise.core.contracts import BatchSampler, Confidence, Loss, Miner, Term
from likewise.core.distributed.sharded_proxies import shard
from likewise.core.settings import Train
from likewise.core.settings.spec import build
from likewise.core.types import Items, LikewiseError
from likewise.data.dataset import inject_noise, make_protocol
from likewise.learn.training.compatibility import check_compatibility
from likewise.learn.training.optim import make_optimizer
from likewise.learn.training.plan import make_plan
from likewise.learn.training.samples import Samples, number_samples
from likewise.learn.training.schedule import Schedule
from likewise.learn.training.state import Components, TrainState
from likewise.models.mixup import Mixup
from likewise.models.teacher import Teacher
from likewise.runs.network import facts_of, facts_with, make_embedder, make_loss, make_relevance, to_device


def make_samples(config: Train, loaded: Items, device: torch.device) -> Samples:
    """Select and number the samples of a training, by the protocol and with the label noise of the settings."""
    protocol = make_protocol(config)
    items = inject_noise(loaded, protocol, config.noise, config.seed, config.allow_imports)
    samples = number_samples(loaded, items, protocol, device)
    if len(samples.rows) == 0:
        raise LikewiseError(f"train: the train split of '{loaded.name}' must not be empty; check its `split` column")
    if not len(samples.val_rows) and (config.patience is not None or config.schedule == "plateau"):
        raise LikewiseError(
            "train: --patience and --schedule plateau need a validation split, and this data has none; "
            'take one from the training classes: --protocol "UnseenClasses(val=0.2)"'
        )
    return samples


def build_state(config: Train, samples: Samples, device: torch.device, rank: int = 0, processes: int = 1) -> TrainState:
    """Build the state of a training before its first step. Raises if two settings cannot be combined."""
    components, sampler = build_components(config, samples, device)
    check_compatibility(config, components, sampler, device, processes)
    if config.mixup is not None:
        components = replace(components, mixup=Mixup(components.embedder, config.mixup, config.mixup_at))
    plan = make_plan(config, len(sampler), components.confidence and components.confidence.every)
    optimizer = make_optimizer(config, components.embedders, components.losses, components.terms)
    schedule = Schedule(config, optimizer, plan.steps, plan.steps_per_epoch)

    def make_sampler(labels: np.ndarray) -> BatchSampler:
        return build_sampler(config, components.facts | {"labels": labels})

    return TrainState(
        config, samples, components, sampler, make_sampler, plan, optimizer, schedule, device, rank, processes
    )


def build_components(config: Train, samples: Samples, device: torch.device) -> tuple[Components, BatchSampler]:
    """Build networks, losses, confidence and terms, and the first sampler."""
    embedder = to_device(make_embedder(config, samples.features, reseed=True), device)
    facts = facts_of(config, samples.items, samples.rows)
    facts["relevance"] = relevance = make_relevance(config, facts)
    sampler = build_sampler(config, facts)
    facts |= facts_with(config, sampler, embedder)

    def make(text: str, kind: type, **more) -> Any:
        return build(text, kind, allow_imports=config.allow_imports, **(facts | more)).to(device)

    embedders, losses = [embedder], [make_loss(config, facts, relevance).to(device)]
    with torch.random.fork_rng(devices=[]):  # a confidence must not change the initial values of the terms
        confidence = make(config.confidence, Confidence, **samples.facts(config.votes)) if config.confidence else None
    if config.votes is not None and getattr(confidence, "votes", None) is None:
        raise LikewiseError(
            f"train: --votes needs a confidence that uses votes, got {config.confidence or 'none'}; add --robust"
        )
    for number in range(1, confidence.peers if confidence else 1):
        other = replace(config, seed=config.seed + 1000 * number)  # same architecture, other initial weights
        embedders.append(to_device(make_embedder(other, samples.features, reseed=True), device))
    losses += [make_loss(config, facts, relevance).to(device) for _ in embedders[1:]]
    if config.shard_proxies:
        for loss in losses:
            shard(loss)

    def make_other_loss(dim: int, **more: Any) -> Loss:
        return make_loss(config, facts | more | {"dim": dim}, relevance).to(device)

    terms = [make(text, Term, make_loss=make_other_loss) for text in config.terms]
    inside = [module for component in (*losses, *terms) for module in component.modules()]
    taught_miners = [module for module in inside if isinstance(module, Miner) and module.momentum is not None]
    momentum = taught_miners[0].momentum if taught_miners else None
    teacher = None if momentum is None else Teacher(embedder, momentum)
    return Components(embedders, losses, confidence, terms, teacher, taught_miners, facts), sampler


def build_sampler(config: Train, facts: dict[str, Any]) -> BatchSampler:
    """Build the sampler of the settings, for the labels in `facts`."""
    assert config.sampler is not None
    return build(config.sampler, BatchSampler, allow_imports=config.allow_imports, **facts)
