"""Score embeddings in a file: a run's, or anybody's."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from likewise.config import Evaluate
from likewise.data.features import read_embeddings
from likewise.distributed.process_group import world
from likewise.evaluation.checks import check_length, find_leaks, rows_of
from likewise.evaluation.excluded_pairs import read_pairs
from likewise.evaluation.scoring import score_with_galleries
from likewise.io.files import check_out
from likewise.metrics import admit, of_the_set
from likewise.runs.dataset import protocol_for
from likewise.runs.devices import bytes_of
from likewise.runs.embeddings import origin
from likewise.runs.per_query import write_per_query
from likewise.types import Embedded, LikewiseError


def evaluate_embeddings(config: Evaluate, file: Path, device: torch.device) -> dict:
    """Return the scores of a file of embeddings, as the content of scores.json; `per_query` is written where asked for."""
    for name, usual in (("data", None), ("root", None), ("which", "best")):
        if getattr(config, name) != usual:
            raise LikewiseError(f"evaluate: '{file}' is a file of embeddings, and --{name} is for a run; leave it out")
    admit(config.metrics, config.allow_imports)
    out = check_out(config.per_query, ".parquet", "evaluate", "--per-query") if config.per_query else None
    if out and all(map(of_the_set, config.metrics)):
        raise LikewiseError("evaluate: --per-query takes at least one metric per query; add R@1")
    items = read_embeddings(str(file), config.labels)
    if items.split is None and config.part != "test":
        raise LikewiseError(f"evaluate: '{file}' has no `split`, so no {config.part} part; add it, or leave out --part")
    if config.part == "test" and (items.split is None or not (items.split != "").any()):
        items = dataclasses.replace(items, split=np.full(len(items), "test"))
    protocol = protocol_for(items)
    rows = rows_of(protocol, items, config.part)
    assert items.x is not None
    x = items.x if len(rows) == len(items) else items.x[rows]  # all of them may be more than memory holds
    x = x if x.flags.writeable else x.copy()  # torch takes no others
    e = Embedded(torch.as_tensor(x), torch.as_tensor(items.y[rows]), torch.as_tensor(rows))
    similarity = config.similarity or origin(file).get("similarity", "cosine")
    how = {"budget": bytes_of(config.memory), "exclude": read_pairs(config.exclude, items)}
    length = check_length(e.z, similarity == "cosine" or any(map(of_the_set, config.metrics)))
    result, scores, found = score_with_galleries(
        e, items, protocol, config.metrics, similarity, device, config.quiet, **how
    )
    if out and world()[0] == 0:
        assert found is not None
        write_per_query(out, scores, found, e, items)
    if config.part == "test" and (items.split == "train").any():
        result["leaks"] = find_leaks(items, protocol, config.quiet)
    return result | {"length": length}
