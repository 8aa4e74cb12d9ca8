"""Accuracy of label audits: every score of an audit beside cleanlab and SelfClean, on the same networks, with known true labels.

    python benchmarks/audit.py RUN... --out found    # runs trained with --noise (and --record-losses): found/NAME.npz for each
    python benchmarks/audit.py --table found         # table.json and table.md of all of them

`rivals.py` has the scores of the others: cleanlab gets out-of-sample probabilities from the embeddings and from the features
below them. Without cleanlab its columns are left out. `label_noise.py` measures on features, without runs.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from likewise.config import Audit
from measure import parse_with_quick
from rivals import cleanlab_scores, selfclean_score
from score_intervals import paired_jackknife

from likewise.curate.audit.error_causes import explain
from likewise.curate.audit.label_quality import score_splits
from likewise.curate.audit.single_scores import suggest
from likewise.curate.audit.source import open_subject
from likewise.score.metrics.detection import detection, relabel_accuracy

AUDIT_SCORE = "score"


def measure(run: str, out: Path, device: str | None = None) -> None:
    """Return all scores of a run's training labels, with the true labels."""
    began = time.perf_counter()
    config = Audit(targets=(run,), max_errors=0, max_classes=10, quiet=True, device=device, workers=0)
    subject = open_subject(config, say=print)
    found = score_splits(subject, explain(subject, config), config)["train"]
    ours = time.perf_counter() - began
    e, items = subject.splits["train"].e, subject.items
    rows = e.row.numpy()
    true = (items.y if items.y_clean is None else items.y_clean)[rows]
    began = time.perf_counter()
    z, f, y = e.z.numpy(), e.f.numpy(), e.y.numpy()
    ways = {"regression on embeddings": z, "regression on features": (f - f.mean(0)) / f.std()}
    theirs, _ = cleanlab_scores(np.unique(y, return_inverse=True)[1], ways, z)
    settings = subject.settings
    about = {
        "run": Path(run).name, "loss": settings.loss.split("(")[0],
        "confidence": (settings.confidence or "").split("(")[0],
        "noise": settings.noise or "none", "seed": settings.seed, "seconds": ours,
        "cleanlab_seconds": time.perf_counter() - began,
    }  # fmt: skip
    theirs |= {"SelfClean on embeddings": selfclean_score(z, y), "SelfClean on features": selfclean_score(f, y)}
    given = torch.as_tensor(items.y[rows])  # class numbers of the data, as in the suggestions
    votes = [suggest(e.z, given, foreign=way).y.numpy() for way in (False, True)]
    scores = {AUDIT_SCORE: found.quality.score, **found.single, **theirs}
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        out / f"{Path(run).name}.npz", about=json.dumps(about), row=rows, given=items.y[rows], true=true,
        suggested=found.quality.suggested.numpy(), sure=found.quality.confidence.numpy().astype(np.float32),
        first=votes[0], second=votes[1], names=list(scores),
        scores=np.stack([np.asarray(s, dtype=np.float32) for s in scores.values()]),
    )  # fmt: skip


def read(file: Path, but: set[int]) -> dict:
    with np.load(file) as data:
        one = {k: data[k] for k in data.files}
    about = json.loads(str(one.pop("about")))
    kept = ~np.isin(one["row"], list(but)) | (one["given"] != one["true"])
    scores = dict(zip(one.pop("names").tolist(), torch.as_tensor(one.pop("scores").astype(np.float64))[:, kept]))
    return about | {k: v[kept] for k, v in one.items()} | {"scores": scores}


def table(folder: Path, but: set[int]) -> dict:
    """For every kind of run and every score: AP, AUROC and recall, means over seeds; how ours compares with the best other."""
    cells: dict[str, list[dict]] = defaultdict(list)
    for file in sorted(folder.glob("*.npz")):
        one = read(file, but)
        if (one["given"] != one["true"]).any():
            cells[f"{one['loss']}{'+' + one['confidence'] if one['confidence'] else ''} | {one['noise']}"].append(one)
    found = {}
    for name, runs in cells.items():
        wrong = [torch.as_tensor(one["given"] != one["true"]) for one in runs]
        shared = [s for s in runs[0]["scores"] if all(s in one["scores"] for one in runs)]
        each = {s: [detection(one["scores"][s], w) for one, w in zip(runs, wrong)] for s in shared}
        mean = {
            s: {k: float(np.mean([getattr(d, k) for d in ds])) for k in ("AP", "AUROC", "recall")}
            for s, ds in each.items()
        }
        best = max((s for s in shared if s != AUDIT_SCORE), key=lambda s: mean[s]["AP"])
        drawn = [AUDIT_SCORE, *(s for s in ("vote", "loss", "loss_over_time", rival(mean)) if s in each)]
        gaps = [
            paired_jackknife(one["scores"][best], one["scores"][AUDIT_SCORE], w, seed=7) for one, w in zip(runs, wrong)
        ]
        half = float(np.mean([(g.high - g.low) / 2 for g in gaps]))  # as if the seeds shared all their luck
        gap = float(np.mean([g.mean for g in gaps]))
        relabel = [
            relabel_accuracy(
                *(torch.as_tensor(one[k]) for k in ("suggested", "suggested", "true", "given")), one["scores"][AUDIT_SCORE] < 0.5
            ).top1 for one in runs
        ]  # fmt: skip
        paper = [
            relabel_accuracy(
                *(torch.as_tensor(one[k]) for k in ("first", "second", "true", "given")), one["scores"][AUDIT_SCORE] < 0.5
            ) for one in runs
        ]  # fmt: skip
        found[name] = {
            "seeds": len(runs), "wrong": [int(w.sum()) for w in wrong], "mean": mean, "best other": best,
            "AP gap": gap, "low": gap - half, "high": gap + half,
            "estimated wrong": [float((1 - one["scores"][AUDIT_SCORE]).sum()) for one in runs],
            "flagged": [int((one["scores"][AUDIT_SCORE] < 0.5).sum()) for one in runs],
            "relabel top1": float(np.mean(relabel)), "votes top1": float(np.mean([p.top1 for p in paper])),
            "votes lenient": float(np.mean([p.lenient for p in paper])),
            "curve": {s: np.mean([d.curve for d in each[s]], 0).round(4).tolist() for s in drawn},
        }  # fmt: skip
    return found


def rival(mean: dict) -> str | None:
    """The best score of cleanlab and SelfClean, by what is known afterwards."""
    return max((s for s in mean if s.startswith(("cleanlab", "SelfClean"))), key=lambda s: mean[s]["AP"], default=None)


def as_text(found: dict) -> str:
    scores = list(dict.fromkeys(s for cell in found.values() for s in cell["mean"]))
    lines = ["| cell | " + " | ".join(scores) + " | best other | gap of ours, 95 % |", "|" + "---|" * (len(scores) + 3)]
    for name, cell in found.items():
        values = [f"{100 * cell['mean'][s]['AP']:.1f}" if s in cell["mean"] else "" for s in scores]
        gap = f"{100 * cell['AP gap']:+.1f} ({100 * cell['low']:+.1f} to {100 * cell['high']:+.1f})"
        lines.append(f"| {name} | " + " | ".join(values) + f" | {cell['best other']} | {gap} |")
    means = [f"{100 * np.mean([c['mean'][s]['AP'] for c in found.values() if s in c['mean']]):.1f}" for s in scores]
    return "\n".join([*lines, "| mean | " + " | ".join(means) + " | | |"]) + "\n"


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("found"))
    parser.add_argument("--table", type=Path)
    parser.add_argument(
        "--without",
        type=Path,
        help="file with one row number per line: labels that are wrong in the original data, not counted as right",
    )
    parser.add_argument("--device")
    return parse_with_quick(parser, words)


def main(words: Sequence[str] | None = None) -> None:
    given = parse(words)
    warnings.filterwarnings("ignore")
    for run in given.runs:
        measure(run, given.out, given.device)
        print(run, flush=True)
    if given.table:
        but = {int(line) for line in given.without.read_text().split()} if given.without else set()
        found = table(given.table, but)
        (given.table / "table.json").write_text(json.dumps(found, indent=1))
        (given.table / "table.md").write_text(as_text(found))
        print(as_text(found))


if __name__ == "__main__":
    main()
