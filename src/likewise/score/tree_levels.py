"""Evaluation by level of the class tree: one ranking, measured with the labels of every level that a metric names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from likewise.core.contracts import Metric
from likewise.core.types import Items, LikewiseError, Retrieval, Scores, TreeRetrieval
from likewise.data.taxonomies import TREE_FORMS, ClassTree, ancestors, class_tree
from likewise.score.metrics import is_tree_metric, last_rank, level_of
from likewise.score.metrics.ranking import first_results, query_of_hit, starts


@dataclass(frozen=True, eq=False)
class LevelPlan:
    """Labels of N embeddings on the levels of the class tree, and the level whose hits the ranking must list."""

    tree: ClassTree
    y: Int[Tensor, "N"]  # class numbers
    label: Int[Tensor, "L N"]  # groups on every level, coarsest first, the classes last; -1 = no group on this level
    ranked: int  # level number of the hits: the coarsest whose metrics need the ranks of hits to R, or the classes
    shown: int  # results of every query that the metrics of coarser levels and of the tree need

    @property
    def ranked_y(self) -> Int[Tensor, "N"]:
        """Labels for the ranking; a class without a group on that level is a group of its own."""
        group = self.label[self.ranked - 1]
        return group.where(group >= 0, self.y + len(self.y) + int(group.max()) + 1)


def needs_tree(metrics: Iterable[str]) -> bool:
    """Return whether one of these metrics needs a class tree."""
    return any(is_tree_metric(name) or level_of(name) for name in metrics)


def tree_of(metrics: Iterable[str], items: Items, y: Int[np.ndarray, "N"], owner: str) -> ClassTree:
    """Return the class tree of the data. Raise if there is none, or if it lacks a class of `y` or a level that a metric names."""
    metrics = [name for name in metrics if needs_tree([name])]
    if items.taxonomy is None:
        raise LikewiseError(
            f"{owner}: '{metrics[0]}' needs a class tree, but '{items.name}' has none; give --taxonomy to `likewise evaluate` "
            f"({TREE_FORMS}), or add a column `coarse` to the table"
        )
    ancestors(owner, [items.class_name[c] for c in np.unique(y)], None, items.taxonomy)
    tree = class_tree([items.taxonomy.get(name, ()) for name in items.class_name])
    for name in metrics:
        if (level_of(name) or 0) > tree.levels:
            sizes = ", ".join(map(str, level_sizes(tree).values()))
            raise LikewiseError(
                f"{owner}: '{name}' needs level {level_of(name)} of the class tree, which has {tree.levels} levels "
                f"(groups on each, coarsest first: {sizes or 'none'}); use one of these, or no level for the classes themselves"
            )
    return tree


def level_sizes(tree: ClassTree) -> dict[str, int]:
    """Return the number of groups of every level, coarsest first."""
    return {f"level{level}": int(group.max()) + 1 for level, group in enumerate(tree.group, 1)}


def plan_levels(metrics: Iterable[str], items: Items, y: Int[Tensor, "N"]) -> LevelPlan | None:
    """Return the labels and the ranking that these metrics need; None if no metric needs a class tree."""
    metrics = list(metrics)
    if not needs_tree(metrics):
        return None
    tree = tree_of(metrics, items, y.numpy(), "evaluate")
    label = torch.cat([torch.as_tensor(tree.group)[:, y], y[None]])
    classes = len(label)
    to_r = [level_of(name) or classes for name in metrics if last_rank(name) is None]
    ranked = min(to_r, default=classes)
    shallow = [last_rank(name) or 1 for name in metrics if is_tree_metric(name) or (level_of(name) or classes) < ranked]
    return LevelPlan(tree, y, label, ranked, max(shallow, default=1))


def measure(found: Retrieval, chosen: Mapping[str, Metric], plan: LevelPlan) -> dict[str, Tensor]:
    """Return every metric per query, each with the labels of its own level."""
    levels = {level_of(name) for name in chosen if not is_tree_metric(name)}
    by_level: dict[int | None, Retrieval] = {level: at_level(found, plan, level) for level in levels}
    in_tree = place_in_tree(found, plan) if any(map(is_tree_metric, chosen)) else None
    return {name: m(in_tree if is_tree_metric(name) else by_level[level_of(name)]) for name, m in chosen.items()}  # pyright: ignore[reportArgumentType]


def at_level(found: Retrieval, plan: LevelPlan, level: int | None) -> Retrieval:
    """Return the same ranking with the labels of a level; None: of the classes.

    Hits of the ranked level and of finer ones come from the listed hits, hits of coarser levels from the first results.
    """
    level = level or len(plan.label)
    label = plan.label[level - 1].to(found.row.device)
    own, row = label[found.query], found.row
    assert found.hit_row is not None and found.relevant_at is not None
    match = (label[row.clamp_min(0)] == own[:, None]) & (row >= 0) & (own >= 0)[:, None]
    if level >= plan.ranked:
        query = query_of_hit(found)
        kept = (label[found.hit_row] == own[query]) & (own[query] >= 0)
        query, rank, depth = query[kept], found.hit_rank[kept], found.depth
    else:
        query, rank = match.nonzero(as_tuple=True)
        rank, depth = rank + 1, torch.full_like(found.depth, row.shape[1])
    start, relevant = starts(torch.bincount(query, minlength=len(own))), found.relevant_at[:, level - 1]
    return dataclasses.replace(
        found, match=match, relevant=relevant, depth=depth, hit_rank=rank, start=start, hit_row=None, relevant_at=None
    )


def place_in_tree(found: Retrieval, plan: LevelPlan) -> TreeRetrieval:
    """Return the depths of the lowest common ancestors of every query and its first results."""
    assert found.relevant_at is not None
    tree, device = plan.tree, found.row.device
    y = plan.y.to(device)[found.query]
    depth, height = (torch.as_tensor(part).to(device)[y] for part in (tree.depth, tree.height))
    shared = torch.zeros_like(found.row)
    related = torch.zeros_like(height)
    for level in range(tree.root, len(plan.label)):  # the labels of classes come last
        own = plan.label[level].to(device)
        match = (own[found.row.clamp_min(0)] == own[found.query][:, None]) & (own[found.query] >= 0)[:, None]
        shared += match
        if level < tree.levels:
            related[:, level + 1 - tree.root] = found.relevant_at[:, level]
    related.scatter_(1, depth[:, None], found.relevant_at[:, -1:])
    return TreeRetrieval(shared.masked_fill(found.row < 0, -1), depth, height, related)


def without_levels(found: Retrieval, plan: LevelPlan, stored: int) -> Retrieval:
    """Return the ranking with the labels of the classes and the first `stored` results of every query."""
    return first_results(at_level(found, plan, None), stored)


def tree_facts(metrics: Iterable[str], items: Items, y: Int[np.ndarray, "N"], scores: Scores) -> dict:
    """Return what scores.json has about the class tree: groups of every level, height, queries by the height of their mistake."""
    metrics = list(metrics)
    if not needs_tree(metrics):
        return {}
    tree = tree_of(metrics, items, y, "evaluate")
    height = int(tree.height[:, 0].max())
    facts: dict = {"levels": level_sizes(tree), "height": height}
    if "severity" in scores.each:
        each = scores.each["severity"]
        at, count = np.unique(np.round(each[~np.isnan(each)] * height).astype(int), return_counts=True)
        facts["mistakes_by_height"] = {str(h): int(n) for h, n in zip(at, count, strict=True)}
    return {"tree": facts}
