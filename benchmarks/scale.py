"""Cost of a label audit as the data grow, with the tools that people use beside it: seconds, memory, average precision.

    python benchmarks/scale.py --out scale                                  # 5,798 to 200,000 samples, and the peers
    python benchmarks/scale.py --out scale --sizes 1000000x100000 --peers   # no peer
    python benchmarks/scale.py --out scale --figure docs/img/scale.png      # table and figure of all records
    python benchmarks/scale.py --out scale --parts votes sets --peers --sizes 5000x500 20000x2000 60000x8000
    python benchmarks/scale.py --agreement FOLDER                           # candidate classes beside all classes, real features

The data are simulated shops: few images per class, very many classes, embeddings of 128 dimensions, 10 % wrong labels. Each
size runs `likewise audit` in a process of its own. A peer that would need more memory than --memory is left out. One JSON file
per size and tool: a run that was stopped continues where it ended.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from measure import Clock, NotMeasured, alone, parse_with_quick

DIM, WRONG_SHARE = 128, 0.1
SIZES = ("5798x1100", "12059x2264", "24154x4528", "59822x11318", "120000x22700", "200000x37800")
FAMILIES_PER_CLASS, FAMILY_SPREAD, CLASS_SPREAD = 0.05, 0.7, 0.62
"""Families of similar classes (shoes, lamps), and the spread of their centres and of the classes in them, in units of the spread
of the images of a class. They give about the precision that real shops have: some classes are hard to separate."""

PEERS = ("cleanlab", "SelfClean")


def simulate_shop(samples: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return embeddings of unit length, given and true labels; every class has two samples or more."""
    rng = np.random.default_rng(seed)
    sizes = 2 + rng.multinomial(max(0, samples - 2 * classes), rng.dirichlet(np.full(classes, 5.0)))
    true = np.repeat(np.arange(classes), sizes)
    families = max(1, round(FAMILIES_PER_CLASS * classes))
    family = FAMILY_SPREAD * rng.standard_normal((families, DIM), np.float32)
    centre = family[rng.integers(0, families, classes)] + CLASS_SPREAD * rng.standard_normal((classes, DIM), np.float32)
    z = centre[true]
    z += rng.standard_normal(z.shape, np.float32)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    order = rng.permutation(len(z))
    z, true = z[order], true[order]
    bad = rng.random(len(z)) < WRONG_SHARE
    return z, np.where(bad, (true + rng.integers(1, classes, len(z))) % classes, true), true


def audit(samples: int, classes: int) -> dict:
    """Return the cost of `likewise audit` and the quality of its scores."""
    import likewise.curate.audit.audit  # noqa: F401  (imported before memory is measured)
    from likewise.cli.main import main as command

    z, given, true = simulate_shop(samples, classes)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.save(folder / "z.npy", z)
        (folder / "y.csv").write_text("\n".join(["label", *(f"c{c}" for c in given)]) + "\n")
        z = np.zeros(0)  # the command reads the file
        clock = Clock("cpu")
        with contextlib.redirect_stdout(io.StringIO()):
            command(["audit", str(folder / "z.npy"), "--labels", str(folder / "y.csv"), "--out", str(folder / "audit")])
        cost = clock.stop()
        about = json.loads((folder / "audit" / "audit.json").read_text())
        with open(folder / "audit" / "audit.csv", newline="") as file:
            score = np.full(samples, np.nan)
            for line in csv.DictReader(file):
                score[int(line["row"])] = float(line["score"] or "nan")
    part = next(iter(about["parts"].values()))
    return (
        cost | quality(score, given != true, score < 0.5) | {"estimated": part["any"], "candidates": part["candidates"]}
    )


def votes(samples: int, classes: int) -> dict:
    """Return the cost of a consensus of 20 workers with three votes per sample, and how many of its labels are wrong.

    Half of the wrong votes are for one of three classes per class, the others for any class; a tenth of the samples has no votes.
    """
    import torch

    from likewise.core.types import Items, Votes
    from likewise.curate.audit.weighed_votes import weigh_votes

    z, given, true = simulate_shop(samples, classes)
    rng = np.random.default_rng(1)
    accuracy, row = rng.uniform(0.6, 0.95, 20), np.arange(samples).repeat(3)
    worker = (rng.integers(0, 20, samples)[:, None] + np.array([0, 7, 13])).ravel() % 20
    similar = rng.integers(0, classes, (classes, 3))[true[row], rng.integers(0, 3, len(row))]
    wrong = np.where(rng.random(len(row)) < 0.5, similar, rng.integers(0, classes, len(row)))
    label = np.where(rng.random(len(row)) < accuracy[worker], true[row], wrong)
    kept = row % 10 != 0
    cast = Votes(row[kept], worker[kept], label[kept], tuple(f"w{n}" for n in range(20)))
    items = Items("shop", given, tuple(f"c{n}" for n in range(classes)), x=z)
    clock, started = Clock("cpu"), time.process_time()
    found = weigh_votes(cast, np.arange(samples), items, torch.as_tensor(z))
    cost = {"cpu_seconds": time.process_time() - started} | clock.stop()
    assert found is not None
    bad = (found.decided.label.numpy() != true)[found.voted]
    expected = float(found.decided.wrong.numpy()[found.voted].mean())
    return cost | {"wrong": float(bad.mean()), "expected": expected, "columns": found.found.votes.width}


def label_sets(samples: int, labels: int) -> dict:
    """Return the cost of scoring samples with three of many labels each, and the quality of the flags.

    A tenth of the second and third labels is dropped, and 0.05 labels per sample are added.
    """
    import torch

    from likewise.curate.audit.label_probability import label_set_quality
    from likewise.labels.given_sets import GivenSets

    rng = np.random.default_rng(0)
    true = np.stack([rng.integers(0, labels, samples) for _ in range(3)], 1)
    centre = rng.standard_normal((labels, DIM), np.float32)
    x = centre[true].sum(1) * 0.7 + rng.standard_normal((samples, DIM)).astype(np.float32)
    kept = rng.random((samples, 3)) >= 0.1
    kept[:, 0] = True
    code, extra = np.arange(samples)[:, None] * labels + true, samples // 20
    added = rng.integers(0, samples, extra) * labels + rng.integers(0, labels, extra)
    given = np.unique(np.concatenate([code[kept], added]))
    size = torch.bincount(torch.as_tensor(given // labels), minlength=samples)
    clock, started = Clock("cpu"), time.process_time()
    states = label_set_quality(
        torch.as_tensor(x), torch.zeros(samples).long(), GivenSets(torch.as_tensor(given % labels), size, labels)
    ).states
    cost = {"cpu_seconds": time.process_time() - started} | clock.stop()
    assert states is not None
    flagged = (states.row * labels + states.label)[states.flagged].numpy()
    wrong = np.setxor1d(given, np.unique(code))
    hit = len(np.intersect1d(flagged, wrong))
    found = {"flagged": len(flagged), "precision": hit / max(1, len(flagged)), "recall": hit / len(wrong)}
    return (
        cost
        | found
        | {"listed": len(states.row), "rest": float(states.rest_sum.sum()), "most": float(states.rest.max())}
    )


def cleanlab(samples: int, classes: int) -> dict:
    """Return the cost and the quality of cleanlab with out-of-sample probabilities of nearest neighbours."""
    from rivals import cleanlab_scores

    z, given, true = simulate_shop(samples, classes)
    clock = Clock("cpu")
    scores, _ = cleanlab_scores(given, {}, z)
    cost = clock.stop()
    if not scores:
        raise ImportError("cleanlab")
    found = {name: quality(score, given != true) for name, score in scores.items()}
    return cost | max(found.values(), key=lambda one: one["AP"])


def selfclean(samples: int, classes: int) -> dict:
    """Return the cost and the quality of SelfClean's score."""
    from rivals import selfclean_score

    z, given, true = simulate_shop(samples, classes)
    clock = Clock("cpu")
    score = selfclean_score(z, given)
    return clock.stop() | quality(score, given != true)


TOOLS: dict[str, Callable[[int, int], dict]] = {
    "likewise": audit,
    "votes": votes,
    "sets": label_sets,
    "cleanlab": cleanlab,
    "SelfClean": selfclean,
}


def compare_with_all(x: np.ndarray, true: np.ndarray, share: float, candidates: int, seed: int = 0) -> dict:
    """Return how well flags, scores and noise rate by candidate classes agree with those by all classes, and both costs."""
    import torch

    rng, classes = np.random.default_rng(seed), int(true.max()) + 1
    bad = rng.random(len(true)) < share
    given = np.where(bad, (true + rng.integers(1, classes, len(true))) % classes, true)
    found = [posteriors(torch.as_tensor(x).float(), torch.as_tensor(given), classes, k) for k in (candidates, classes)]
    few, every = (score < 0.5 for score, *_ in found)
    ap = [quality(score, bad)["AP"] if bad.any() else math.nan for score, *_ in found]
    union = (few | every).sum()
    return {
        "wrong": share, "flagged": int(few.sum()), "flagged by all": int(every.sum()),
        "Jaccard": float((few & every).sum() / union) if union else 1.0, "AP": ap[0], "AP by all": ap[1],
        "rate": found[0][1], "rate by all": found[1][1], "CPU s": found[0][2], "CPU s by all": found[1][2],
    }  # fmt: skip


def posteriors(x, y, classes: int, candidates: int) -> tuple[np.ndarray, float, float]:
    """Return the posterior of every given label, the noise rate, and CPU seconds."""
    import torch

    from likewise.labels.candidate_classes import given_column
    from likewise.labels.label_evidence import discriminate

    with torch.no_grad():
        start = time.process_time()
        each, noise = discriminate(x, y, classes, candidates=candidates)
        own = torch.zeros(len(y))
        for rows in each.blocks():
            columns = each.columns(rows)
            own[rows] = noise.posterior(each.scores(rows), y[rows], columns).gather(1, given_column(y[rows], columns))[
                :, 0
            ]
    return own.numpy(), noise.any + noise.similar, time.process_time() - start


def needed_bytes(tool: str, samples: int, classes: int) -> float:
    """Return roughly the memory of a tool: cleanlab holds several tables of samples x classes, SelfClean computes in blocks."""
    return 4 * 8 * samples * classes if tool == "cleanlab" else 0


def quality(score: np.ndarray, wrong: np.ndarray, flagged: np.ndarray | None = None) -> dict:
    """Return the average precision of the scores, and precision and recall of the flags."""
    from sklearn.metrics import average_precision_score

    known = ~np.isnan(score)
    found = {"AP": float(average_precision_score(wrong[known], -score[known]))}
    if flagged is not None:
        found |= {
            "flagged": int(flagged.sum()),
            "precision": float(wrong[flagged].mean()) if flagged.any() else math.nan,
            "recall": float(flagged[wrong].mean()),
        }
    return found


def exponent(records: Sequence[dict]) -> float:
    """Return the slope of log seconds by log samples, by least squares over all sizes."""
    x, y = (np.log([one[name] for one in records]) for name in ("samples", "seconds"))
    return float(np.polyfit(x, y, 1)[0]) if len(records) > 1 else math.nan


def as_table(records: Sequence[dict]) -> str:
    """Return all records as a table in Markdown."""
    lines = [
        "| samples x classes | tool | seconds | memory | AP | precision, recall of flags |",
        "|---|---|---|---|---|---|",
    ]
    for one in sorted(records, key=lambda r: (r["samples"], r["tool"])):
        size, tool = f"{one['samples']:,} x {one['classes']:,}", one["tool"]
        if "reason" in one:
            lines.append(f"| {size} | {tool} | {one['reason']} | | | |")
            continue
        flags = f"{one['precision']:.3f}, {one['recall']:.3f}" if "precision" in one else ""
        memory = f"{one['peak_mb'] / 1024:.1f} GB"
        ap = f"{one['AP']:.3f}" if "AP" in one else ""
        lines.append(f"| {size} | {tool} | {one['seconds']:.0f} | {memory} | {ap} | {flags} |")
    for tool in TOOLS:
        mine = [one for one in records if one["tool"] == tool and "seconds" in one]
        if len(mine) > 1:
            lines.append(f"\n{tool}: seconds grow with samples to the power of {exponent(mine):.2f}")
    return "\n".join(lines)


def draw(records: Sequence[dict], file: Path) -> None:
    """Draw seconds by samples of every tool on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for tool, marker in zip(TOOLS, "ovs^d"):
        mine = sorted((one for one in records if one["tool"] == tool and "seconds" in one), key=lambda r: r["samples"])
        if mine:
            axes.loglog([r["samples"] for r in mine], [r["seconds"] for r in mine], marker=marker, label=tool)
    axes.set(xlabel="samples (5.3 per class)", ylabel="seconds, two cores")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=140)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("scale"), help="folder of the records")
    parser.add_argument("--sizes", nargs="*", default=SIZES, help="samples x classes, such as 5798x1100")
    parser.add_argument(
        "--parts", nargs="*", default=("likewise",), choices=("likewise", "votes", "sets"), help="what is measured"
    )
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS, help="tools beside likewise")
    parser.add_argument("--memory", type=float, default=16, help="GB that a peer may use")
    parser.add_argument("--most", type=int, default=60_000, help="largest number of samples for the peers")
    parser.add_argument("--figure", type=Path, help="file of the figure")
    parser.add_argument(
        "--agreement", type=Path, help="folder of NAME.npz with x and y: compare candidates with all classes"
    )
    parser.add_argument("--candidates", type=int, default=64, help="candidate classes of a sample, for --agreement")
    return parse_with_quick(parser, words, sizes=("600x110",))


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    if options.agreement:
        for file in sorted(options.agreement.glob("*.npz")):
            with np.load(file) as data:
                x, y = data["x"], data["y"]
            for share in (0.0, 0.1, 0.5):
                print(json.dumps({"data": file.stem} | compare_with_all(x, y, share, options.candidates)), flush=True)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for size in options.sizes:
        samples, classes = map(int, size.split("x"))
        for tool in (*options.parts, *options.peers):
            file = options.out / f"{size}-{tool}.json"
            if file.exists() or (tool in PEERS and samples > options.most):
                continue
            record = {"tool": tool, "samples": samples, "classes": classes}
            if needed_bytes(tool, samples, classes) > options.memory * 2**30:
                record["reason"] = f"needs more than {options.memory:g} GB"
            else:
                try:
                    record |= alone(TOOLS[tool], samples, classes, here=options.quick)
                except NotMeasured as error:
                    record["reason"] = str(error)
            print(json.dumps(record), flush=True)
            if "not installed" not in record.get("reason", ""):
                file.write_text(json.dumps(record, indent=1))
    records = [json.loads(file.read_text()) for file in sorted(options.out.glob("*.json"))]
    print(as_table(records))
    if options.figure:
        draw(records, options.figure)


if __name__ == "__main__":
    main()
