"""Score a run on data other than its own: corrected labels, or new images."""

from __future__ import annotations

from likewise.core.devices import bytes_of
from likewise.core.distributed.process_group import world
from likewise.core.files import check_output_path
from likewise.core.settings import Evaluate
from likewise.core.types import Items, LikewiseError
from likewise.data.dataset import protocol_for
from likewise.runs.open import OpenRun
from likewise.runs.scores import write_per_query
from likewise.score.checks import check_input
from likewise.score.evaluate_run import score_open
from likewise.score.other_data import check_any_left, describe_left_out, without_trained
from likewise.score.scoring import with_tree


def evaluate_other(config: Evaluate, opened: OpenRun, items: Items) -> dict:
    """Return the scores of a run on data other than its own; with `config.per_query`, also write a parquet file.

    Nothing is written into the run folder. The protocol is that of the data: `QueryGallery` if it marks queries or gallery.
    """
    assert config.data is not None
    out = check_output_path(config.per_query, ".parquet", "evaluate", "--per-query") if config.per_query else None
    check_input("evaluate", config.target, opened.run.about["features"], items, config.data)
    data = without_trained(items, config.data, [opened], config.split)
    check_any_left(data)
    how = {"budget": bytes_of(config.memory), "exclude": config.exclude, "correct": config.correct_test_labels}
    result, scores, found, e = score_open(
        opened, with_tree(data.items, config.taxonomy), protocol_for(data.items), "test", config.metrics,
        config.similarity or opened.similarity, relevance=config.relevance, say=opened.say, **how,
    )  # fmt: skip
    if out and world()[0] == 0:
        if found is None:
            raise LikewiseError("evaluate: --per-query needs at least one metric per query; add R@1 to --metrics")
        write_per_query(out, scores, found, e, data.items)
    place = {"checkpoint": opened.checkpoint, "split": config.split, "data": config.data}
    return result | place | {"left_out": data.left_out, "leaks": describe_left_out(data)}
