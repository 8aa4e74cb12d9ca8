"""What is relevant to a query, if not the rows of its class: a relevance with its threshold, for some evaluated rows."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from likewise.core.contracts import Relevance
from likewise.core.retrieval.integer_scores import row_slices
from likewise.core.retrieval.relevant_rows import ANY_RELEVANCE, RowRelevance
from likewise.core.settings.spec import build, canonical
from likewise.core.types import Items, LikewiseError

LABELS_RELEVANCE = "SharedLabels"
"""The relevance of data with several labels per sample."""

MAX_TABLE_IDS = 4096
"""Number of ids in use up to which it is checked whether only rows of the same class are relevant."""


@dataclass(frozen=True, eq=False)
class RelevanceOfRows:
    """The relevance of N evaluated rows to each other, and the facts about it in scores.json."""

    source: Relevance
    threshold: float  # a row of this relevance or more is relevant; `ANY_RELEVANCE`: every row above 0
    ids: Int[Tensor, "N"]
    facts: dict

    @property
    def has_pairs(self) -> bool:
        """Whether pairs have a relevance; otherwise there are only judged triplets, and rows of the same class are relevant."""
        return "pairs" in self.source.gives

    def for_ranking(self, device: torch.device, *, best: int, hit_values: bool) -> RowRelevance:
        """Return the relevance as a ranking takes it, on a device.

        Args:
            best: number of highest values of every query to return.
            hit_values: list every row above 0 as a hit, with its value.
        """
        threshold = ANY_RELEVANCE if hit_values else self.threshold
        source = self.source.to(device)
        return RowRelevance(source, self.ids, self.ids, threshold, best, hit_values, self.source.row_bytes)


def relevance_of(
    items: Items,
    rows: Int[np.ndarray, "n"],
    spec: str | None = None,
    *,
    trained: bool = False,
    allow_imports: bool = False,
) -> RelevanceOfRows | None:
    """Return the relevance of some rows; None: rows of the same class are relevant.

    Args:
        spec: the relevance. None: shared labels if samples have several.
        trained: the spec is that of a training, whose threshold of shared labels separates positives from negatives; in
            evaluation every row with a label of the query is relevant.
    """
    if spec is None and items.label_sets is None:
        return None
    spec = spec or f"{LABELS_RELEVANCE}()"
    if LABELS_RELEVANCE in spec and items.label_sets is None:
        raise LikewiseError(
            f"evaluate: {LABELS_RELEVANCE} needs data with several labels per sample, and '{items.name}' has one; drop "
            "--relevance, or give a table with a column `labels`"
        )
    from likewise.runs.identity import contents_of
    from likewise.runs.network import sample_names

    facts = {"classes": items.classes, "labels": items.y[rows], "class_names": items.class_name}
    facts |= {"taxonomy": items.taxonomy, "sample_names": sample_names(items, rows), "label_sets": items.label_sets}
    facts["other_names"] = sample_names(items, np.setdiff1d(np.arange(len(items)), rows))  # of other splits
    source = build(spec, Relevance, allow_imports=allow_imports, **facts)
    shared = type(source).__name__ == LABELS_RELEVANCE
    threshold = ANY_RELEVANCE if shared and (trained or not _names_threshold(spec)) else source.threshold
    found = with_facts(source, threshold, items, rows, canonical(spec))
    return replace(found, facts=found.facts | {"files": read}) if (read := contents_of(spec)) else found


def relevance_of_run(
    trained: str | None, spec: str | None, items: Items, rows: Int[np.ndarray, "n"], allow_imports: bool
) -> RelevanceOfRows | None:
    """Return the relevance by which a run is scored on some rows.

    Args:
        trained: that of its training, which is used if the data has what it needs: several labels, or a class tree.
        spec: another one, if the user names it.
    """
    lacks_labels = trained is not None and trained.startswith(LABELS_RELEVANCE) and items.label_sets is None
    lacks_tree = trained is not None and trained.startswith("TreeDepth") and not (items.taxonomy or "tree='" in trained)
    own = None if lacks_labels or lacks_tree else trained
    return relevance_of(items, rows, spec or own, trained=spec is None, allow_imports=allow_imports)


def changed_files(found: RelevanceOfRows | None, trained: dict[str, str]) -> list[str]:
    """Return the files of a relevance with another content than in the training of a run.

    Args:
        trained: file -> SHA-256 of its content, at the training.
    """
    now = {} if found is None else found.facts.get("files", {})
    return [file for file, content in now.items() if trained.get(file, content) != content]


def with_facts(
    source: Relevance, threshold: float, items: Items, rows: Int[np.ndarray, "n"], spec: str
) -> RelevanceOfRows:
    """Return a relevance for some rows, with the facts of scores.json; raises if it has fewer ids than the rows need."""
    ids = torch.arange(len(rows)) if source.by == "sample" else torch.as_tensor(items.y[rows])
    if source.ids <= int(ids.max()):
        raise LikewiseError(
            f"evaluate: the relevance must know all {int(ids.max()) + 1} {'rows' if source.by == 'sample' else 'classes'} of "
            f"'{items.name}', but {type(source).__name__} knows {source.ids}; make it from the evaluated data"
        )
    every = threshold == ANY_RELEVANCE
    facts = {"spec": spec, "threshold": 0.0 if every else threshold, "relevant": f"relevance of {threshold:g} or more"}
    facts["units"] = "classes" if items.label_sets is None else "label sets"
    if every:
        facts["relevant"] = "any label shared" if items.label_sets is not None else "relevance above 0"
    if "pairs" not in source.gives or _is_same_class(source, threshold, ids):
        facts["relevant"] = "same class"
    return RelevanceOfRows(source, threshold, ids, facts)


def _is_same_class(source: Relevance, threshold: float, ids: Int[Tensor, "N"]) -> bool:
    """Return whether exactly the rows of the same class are relevant, among these ids."""
    used = ids.unique()
    if source.by != "class" or len(used) > MAX_TABLE_IDS:
        return False
    parts = [used[part] for part in row_slices(len(used), 2**20 // len(used))]
    others = [used[part] for part in row_slices(len(used), 2**24 // max(1, source.row_bytes))]
    return all(
        bool(((source(some, other) >= threshold) == (some[:, None] == other)).all())
        for some in parts
        for other in others
    )


def _names_threshold(spec: str) -> bool:
    """Return whether a spec writes a threshold down: "SharedLabels(threshold=0.5)"."""
    call = ast.parse(spec.strip(), mode="eval").body
    return isinstance(call, ast.Call) and any(word.arg == "threshold" for word in call.keywords)
