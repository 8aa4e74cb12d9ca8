"""Evaluation beside pytorch-metric-learning, scikit-learn and loops in plain Python: the same numbers, or why not.

    python benchmarks/parity.py [--out docs/parity.md]

Five small random data sets. A number that differs from that of the loops is bold and has a note. A reason states the
numbers that it allows, and a difference that no reason allows is an error.
"""

from __future__ import annotations

import argparse
import math
import warnings
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import accumulate, combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from likewise.errors import LikewiseError
from likewise.metrics import measure_set, metric
from measure import parse_with_quick
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from sklearn import metrics as sk
from torch import Tensor
from torch.nn import functional as F

from likewise.core.kmeans import kmeans
from likewise.core.retrieval.ranking import rank
from likewise.score.metrics.clustering import KMEANS_ITERATIONS
from likewise.score.metrics.verification import COSINE_BINS

RANKED = ("R@1", "R@10", "P@1", "RP", "MAP@R", "mAP", "mAP@10/R", "MRR", "NDCG@10")
OF_THE_SET = ("NMI", "NMI_geometric", "AMI", "F1", "AUROC", "TAR@FAR=0.01")
PML = {
    "R@1": ("precision_at_1", None), "P@1": ("precision_at_1", None), "RP": ("r_precision", None),
    "MAP@R": ("mean_average_precision_at_r", None), "mAP": ("mean_average_precision", None), "NMI": ("NMI", None),
    "mAP@10/R": ("mean_average_precision", 10), "MRR": ("mean_reciprocal_rank", None), "AMI": ("AMI", None),
}  # fmt: skip
"""Our name: theirs, and how many neighbours (k) they must look at for it; None: all."""
MEANINGS = {
    "mAP": ("mean_average_precision", None), "mAP@19/R": ("mean_average_precision", "max_bin_count"),
    "mAP@10/R": ("mean_average_precision", 10), "MRR": ("mean_reciprocal_rank", None),
    "MRR@19": ("mean_reciprocal_rank", "max_bin_count"), "MRR@10": ("mean_reciprocal_rank", 10),
    "RP": ("r_precision", None), "P@10": ("r_precision", 10),
}  # fmt: skip
"""What one name of theirs becomes with another k, where all classes have 20 samples."""
WHO = ("likewise", "brute force", "PML, faiss", "PML, topk", "scikit-learn")
CLOSE = 1e-6
Values = dict[str, float]  # by name of the metric; a metric that a library lacks is missing
Table = list[list[float]]


@dataclass(frozen=True, eq=False)
class Data:
    """Embeddings to score. Without a gallery every row is a query for all others; with one, the rows outside are queries."""

    title: str
    says: str
    z: Float[Tensor, "N D"]
    y: Int[Tensor, "N"]
    gallery: Bool[Tensor, "N"] | None = None

    @property
    def asks(self) -> list[int]:
        return list(range(len(self.y))) if self.gallery is None else (~self.gallery).nonzero()[:, 0].tolist()

    def answers(self, query: int) -> list[int]:
        rows = range(len(self.y)) if self.gallery is None else self.gallery.nonzero()[:, 0].tolist()
        return [j for j in rows if j != query]

    @property
    def query_gallery(self) -> tuple[Tensor, ...]:
        """Queries and their labels, gallery and its labels; the latter two only where there is a gallery."""
        if self.gallery is None:
            return self.z, self.y
        return self.z[~self.gallery], self.y[~self.gallery], self.z[self.gallery], self.y[self.gallery]

    @cached_property
    def cluster(self) -> Int[Tensor, "N"]:
        """Return the clusters of one k-means, from which all libraries compute NMI, AMI and F1."""
        return kmeans(F.normalize(self.z, dim=1), len(self.y.unique()), iterations=KMEANS_ITERATIONS).label


def scatter(y: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
    """Unit vectors around a random centre for each class."""
    g = torch.Generator().manual_seed(0)
    centre = torch.randn(int(y.max()) + 1, 16, generator=g)
    return F.normalize(centre[y] + 1.2 * torch.randn(len(y), 16, generator=g), dim=1)


def data_sets() -> list[Data]:
    row = torch.arange(240)
    even, sizes = row % 12, (2, 3, 5, 8, 13, 21, 34, 55, 89)
    copies = scatter(even)
    copies[1:15] = copies[0]
    copies[100:115], copies[131:146] = copies[40:55], copies[60:75]
    alone, absent = (even.where(row >= first, row + 12) for first in (24, 6))
    uneven = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    copied = "The same, but 15 rows of all classes are one image, 15 have a copy in their class, 15 in another class."
    split = "60 queries, a gallery of 180 without the classes of 6 queries. Metrics of the whole set use all 240 rows."
    return [
        Data("Plain", "12 classes of 20.", scatter(even), even),
        Data("Ties", copied, copies, even),
        Data("Classes of one image", "12 classes of 18, and 24 rows alone in their class.", scatter(alone), alone),
        Data("Unbalanced classes", f"Classes of {', '.join(map(str, sizes))}.", scatter(uneven), uneven),
        Data("Query and gallery", split, scatter(absent), absent, row >= 60),
    ]


def likewise(data: Data, ranked: tuple[str, ...] = RANKED, is_set_metric: tuple[str, ...] = OF_THE_SET) -> Values:
    found = rank(*data.query_gallery, all_hits=True)
    return {name: metric(name)(found).nanmean().item() for name in ranked} | measure_set(is_set_metric, data.z, data.y)


def cosines(z: Float[Tensor, "N D"]) -> Table:
    """Number by number in one order, so that equal vectors have equal cosines, to the last bit."""
    unit = [[v / math.sqrt(sum(v * v for v in row)) for v in row] for row in z.double().tolist()]
    return [[sum(p * q for p, q in zip(a, b)) for b in unit] for a in unit]


def loop_ranking(data: Data, sim: Table, tie: int = 0) -> Values:
    """Means over queries with something to find. Of equals, the lower row (0), the right (-1) or the wrong (1) is first."""
    y, each = data.y.tolist(), []
    for q in data.asks:
        order = sorted((-sim[q][j], tie * (y[j] == y[q]), j) for j in data.answers(q))
        hits = [y[j] == y[q] for _, _, j in order]
        each += [loop_query(hits)] if any(hits) else []
    return {name: sum(values[name] for values in each) / len(each) for name in RANKED}


def loop_query(hits: list[bool]) -> Values:
    """Return the metrics of a query from the relevance of its results, nearest first."""
    relevant = sum(hits)
    precision = [found / r if hit else 0.0 for r, (hit, found) in enumerate(zip(hits, accumulate(hits)), 1)]
    gain = [1 / math.log2(r + 1) for r in range(1, 11)]
    return {
        "R@1": float(hits[0]), "R@10": float(any(hits[:10])), "P@1": float(hits[0]), "MRR": 1 / (hits.index(True) + 1),
        "RP": sum(hits[:relevant]) / relevant, "MAP@R": sum(precision[:relevant]) / relevant,
        "mAP": sum(precision) / relevant, "mAP@10/R": sum(precision[:10]) / relevant,
        "NDCG@10": sum(g for g, hit in zip(gain, hits) if hit) / sum(gain[:relevant]),
    }  # fmt: skip


def loop_groups(a: list[int], b: list[int]) -> Values:
    """Return the agreement of two groupings of the same samples."""
    total, in_a, in_b, in_both = len(a), Counter(a), Counter(b), Counter(zip(a, b))
    entropy = [-sum(n / total * math.log(n / total) for n in size.values()) for size in (in_a, in_b)]
    shared = sum(n / total * math.log(n * total / (in_a[p] * in_b[q])) for (p, q), n in in_both.items())
    chance = 0.0  # what groups of these sizes share on average
    for p in in_a.values():
        for q in in_b.values():
            for n in range(max(1, p + q - total), min(p, q) + 1):
                likely = math.comb(p, n) * math.comb(total - p, q - n) / math.comb(total, q)
                chance += likely * n / total * math.log(n * total / (p * q))
    both = one = 0
    for i, j in combinations(range(total), 2):
        both += a[i] == a[j] and b[i] == b[j]
        one += (a[i] == a[j]) != (b[i] == b[j])
    return {
        "NMI": shared / (sum(entropy) / 2), "NMI_geometric": shared / math.sqrt(math.prod(entropy)),
        "AMI": (shared - chance) / (sum(entropy) / 2 - chance), "F1": 2 * both / (2 * both + one),
    }  # fmt: skip


def split_pairs(y: list[int], sim: Table) -> tuple[list[float], list[float]]:
    """Return the cosines of pairs of the same class, and of all other pairs."""
    pairs = list(combinations(range(len(y)), 2))
    return [sim[i][j] for i, j in pairs if y[i] == y[j]], [sim[i][j] for i, j in pairs if y[i] != y[j]]


def loop_pairs(same: list[float], different: list[float]) -> Values:
    """From the similarities of the pairs that are the same, and of those that are not."""
    same, different = sorted(same), sorted(different)
    wins = sum((bisect_left(different, s) + bisect_right(different, s)) / 2 for s in same)
    strict = [t for t in same if len(different) - bisect_left(different, t) <= 0.01 * len(different)]
    accepted = [len(same) - bisect_left(same, t) for t in strict]
    return {"AUROC": wins / len(same) / len(different), "TAR@FAR=0.01": max(accepted, default=0) / len(same)}


def by_pml(data: Data, wanted: dict[str, tuple], knn: CustomKNN | None = None) -> Values:
    """At its defaults, but for k, the search (None: faiss) and the clusters. It also computes P@1, without which MRR fails."""
    how = {"device": torch.device("cpu"), "knn_func": knn, "kmeans_func": lambda *_: data.cluster[data.asks]}
    return {
        name: AccuracyCalculator((key, "precision_at_1"), k=k, **how).get_accuracy(*data.query_gallery)[key]
        for name, (key, k) in wanted.items()
    }


def by_sklearn(data: Data, sim: Table) -> Values:
    """Of the cosines of the loops, with its own means over queries."""
    y, group, asks = data.y.numpy(), data.cluster.numpy(), data.asks
    answers = [data.answers(q) for q in asks]
    near = np.array([[sim[q][j] for j in own] for q, own in zip(asks, answers)])
    hits = np.array([y[own] == y[q] for q, own in zip(asks, answers)]).astype(int)
    same, different = split_pairs(y.tolist(), sim)
    truth, score = [1] * len(same) + [0] * len(different), same + different
    far, tar, _ = sk.roc_curve(truth, score)
    (_, false), (missed, true) = sk.cluster.pair_confusion_matrix(y, group).tolist()
    with warnings.catch_warnings(action="ignore"):  # it warns about queries without relevant rows
        precision = sk.average_precision_score(hits, near, average="samples")
    return {
        "mAP": precision, "NDCG@10": sk.ndcg_score(hits, near, k=10), "NMI": sk.normalized_mutual_info_score(y, group),
        "NMI_geometric": sk.normalized_mutual_info_score(y, group, average_method="geometric"),
        "AMI": sk.adjusted_mutual_info_score(y, group), "F1": 2 * true / (2 * true + false + missed),
        "AUROC": sk.roc_auc_score(truth, score), "TAR@FAR=0.01": float(tar[far <= 0.01].max()),
    }  # fmt: skip


class Reason(NamedTuple):
    """Why numbers of these differ from the loops', and between which two they must then be."""

    who: tuple[str, ...]
    possible: dict[str, tuple[float, float]]
    text: str

    def allows(self, who: str, name: str, value: float) -> bool:
        low, high = self.possible.get(name, (math.inf, -math.inf))
        return who in self.who and low - CLOSE <= value <= high + CLOSE


def reasons(data: Data, sim: Table, loops: Values) -> list[Reason]:
    y, group, asks, pml, sklearn = data.y.tolist(), data.cluster.tolist(), data.asks, WHO[2:4], WHO[4:]
    worst, best = (loop_ranking(data, sim, tie) for tie in (1, -1))
    ties = {name: (worst[name], best[name]) for name in RANKED}
    answered = sum(any(y[j] == y[q] for j in data.answers(q)) for q in asks) / len(asks)
    zeros = {name: (loops[name] * answered,) * 2 for name in RANKED}
    of_queries = loop_groups([y[q] for q in asks], [group[q] for q in asks])
    same, different = split_pairs(y, sim)
    wide = 2 / COSINE_BINS + 2e-6  # a bin, and what float32 may be off for two cosines
    low, high = (loop_pairs([s + shift for s in same], different) for shift in (-wide, wide))
    return [
        Reason(pml, ties, "equally similar gallery rows have no fixed order; likewise and the loops rank them by row"),
        Reason(sklearn, ties, "equally similar gallery rows are one step of the precision-recall curve, and share their gains "
               "in NDCG; likewise and the loops rank them by row"),
        Reason(sklearn, zeros, "a query without a relevant gallery row counts 0; likewise, the loops and PML leave it out"),
        Reason(pml, {name: (of_queries[name],) * 2 for name in ("NMI", "AMI")},
               "only the queries are grouped; likewise groups all rows that are evaluated"),
        Reason(WHO[:1], {name: (low[name], high[name]) for name in low},
               f"pairs are counted in {COSINE_BINS:,} bins of the cosine, which needs little memory, and tie within one; "
               "`likewise.score.metrics.verification.roc` is exact for given pairs"),
    ]  # fmt: skip


def compare(data: Data) -> tuple[dict[str, Values], dict[tuple[str, str], Reason]]:
    """Return the values of all libraries, and the reason for every value that differs from the loops, by library and metric."""
    y, sim, topk = data.y.tolist(), cosines(data.z), CustomKNN(CosineSimilarity())
    loops = loop_ranking(data, sim) | loop_groups(y, data.cluster.tolist()) | loop_pairs(*split_pairs(y, sim))
    columns = likewise(data), loops, by_pml(data, PML), by_pml(data, PML, topk), by_sklearn(data, sim)
    values = dict(zip(WHO, columns))
    return values, explain(data.title, values, reasons(data, sim, loops))


def explain(title: str, values: dict[str, Values], known: list[Reason]) -> dict[tuple[str, str], Reason]:
    """The first reason that allows each difference; one without is an error."""
    loops, why = values["brute force"], {}
    for who, name in ((w, n) for w in values for n in values[w]):
        value = values[who][name]
        if abs(value - loops[name]) <= CLOSE:
            continue
        fits = [reason for reason in known if reason.allows(who, name, value)]
        if not fits:
            raise LikewiseError(
                f"parity: every difference must have a known reason, but on '{title}' {name} of {who} is {value:.6f}, "
                f"not {loops[name]:.6f}; find out why, and mend it or add it to `reasons`"
            )
        why[who, name] = fits[0]
    return why


INTRO = """# Parity of metrics with other libraries

After this page you know where the metrics of likewise agree with those of other libraries, and the reason for each difference.
The page is written by `python benchmarks/parity.py --out docs/parity.md` with torch {torch}, pytorch-metric-learning
{pytorch-metric-learning}, faiss {faiss-cpu} and scikit-learn {scikit-learn}. The data are random, the same in every run.

- *likewise*: `rank`, `metric` and `measure_set`, the functions behind `likewise evaluate`.
- *brute force*: loops in plain Python over queries, gallery rows and pairs. Equal similarities are ranked by row; queries
  without a relevant gallery row are left out.
- *PML*: the AccuracyCalculator of pytorch-metric-learning, all neighbours (k = 10 for mAP@10/R), with its default search
  (faiss) and with `CustomKNN(CosineSimilarity())` (topk). `precision_at_1` is used for R@1 too: for one neighbour they are
  equal.
- *scikit-learn*: its metrics on the cosines of the loops; it does not search.

NMI, AMI and F1 of all columns use the clusters of one k-means. NMI is divided by the arithmetic mean of the entropies, the
default of all libraries; NMI_geometric is the value of scikit-learn before 0.22. A dash: the library does not have the metric.
**Bold**: further than {close} from brute force. Each bold value has a note with the definition that differs and the range of
values that this definition allows; the script stops with an error at a difference that no reason explains.
"""
OUTRO = """## One name, several numbers

The meaning of a name in pytorch-metric-learning depends on `k`, the number of neighbours it uses. The table has its values on
the first data set, and ours under the name with the same meaning. It warns about r_precision with k = 10. likewise raises an
error for a bare "mAP@10".

| pytorch-metric-learning | k | its value | likewise | our value |
|---|---|---:|---|---:|"""


def page(data: list[Data]) -> str:
    peers = ("torch", "pytorch-metric-learning", "faiss-cpu", "scikit-learn")
    intro = INTRO.format(**{name: version(name).partition("+")[0] for name in peers}, close=CLOSE)
    theirs, ours = by_pml(data[0], MEANINGS), likewise(data[0], tuple(MEANINGS), ())
    lines = [f"| {key} | {k} | {theirs[n]:.5f} | {n} | {ours[n]:.5f} |" for n, (key, k) in MEANINGS.items()]
    return "\n".join([intro, *(section(each, *compare(each)) for each in data), OUTRO, *lines, ""])


def section(data: Data, values: dict[str, Values], why: dict[tuple[str, str], Reason]) -> str:
    lines = [f"## {data.title}", "", data.says, "", f"| | {' | '.join(WHO)} |", f"|---|{'---:|' * len(WHO)}"]
    for name in (*RANKED, *OF_THE_SET):
        bold = ("**" if (who, name) in why else "" for who in WHO)
        shown = (f"{values[who][name]:.5f}" if name in values[who] else "-" for who in WHO)
        lines.append(f"| {name} | {' | '.join(mark + text + mark for mark, text in zip(bold, shown))} |")
    lines += [""] * bool(why)
    for text in dict.fromkeys(reason.text for reason in why.values()):
        own = {key: reason.possible[key[1]] for key, reason in why.items() if reason.text == text}
        possible = {name: " to ".join(dict.fromkeys(f"{v:.5f}" for v in bounds)) for (_, name), bounds in own.items()}
        whose = " and ".join(dict.fromkeys(f"*{who}*" for who, _ in own))
        lines.append(f"- {whose}: {text}. Possible: {', '.join(f'{name} {v}' for name, v in possible.items())}.")
    return "\n".join([*lines, ""])


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="file for the page, in place of printing it")
    parser.add_argument("--sets", type=int, default=5, help="number of data sets")
    return parse_with_quick(parser, words, sets=1)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    torch.set_num_threads(1)  # so little work is not worth sharing
    text = page(data_sets()[: options.sets])
    options.out.write_text(text, "utf-8") if options.out else print(text)


if __name__ == "__main__":
    main()
