"""The parity benchmark: who agrees with whom, that every difference is explained, and that its page is fresh."""

import math
import re
import sys
from pathlib import Path

import pytest
import torch
from likewise.types import LikewiseError

from likewise.score.metrics.verification import auroc, roc, tar_at_far

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import parity  # noqa: E402

sys.path.pop(0)

TITLES = ("Plain", "Ties", "Classes of one image", "Unbalanced classes", "Query and gallery")


@pytest.fixture(scope="module")
def data():
    return {each.title: each for each in parity.data_sets()}


@pytest.fixture(scope="module")
def compared(data):
    torch.set_num_threads(1)
    return {title: parity.compare(each) for title, each in data.items()}


def test_the_data_are_what_they_are_said_to_be(data):
    assert tuple(data) == TITLES
    sizes = {title: sorted(each.y.bincount().tolist()) for title, each in data.items()}
    assert sizes["Plain"] == sizes["Ties"] == [20] * 12 and sizes["Unbalanced classes"] == [
        2,
        3,
        5,
        8,
        13,
        21,
        34,
        55,
        89,
    ]
    alone = [n for n in sizes["Classes of one image"] if n]
    assert alone.count(1) == 24 and min(alone[24:]) == 18
    ties = data["Ties"]
    copies = sorted(len(set(rows)) for rows in same_rows(ties.z))
    assert copies == [2] * 30 + [15]
    twins = [len(set(ties.y[rows].tolist())) for rows in same_rows(ties.z)]
    assert sorted(twins) == [1] * 15 + [2] * 15 + [12]
    assert all(len(same_rows(each.z)) == 0 for title, each in data.items() if title != "Ties")
    both = data["Query and gallery"]
    assert len(both.asks) == 60 and len(both.answers(0)) == 180
    assert sum(int(both.y[q]) not in both.y[both.gallery].tolist() for q in both.asks) == 6


def same_rows(z):
    """Rows with equal vectors, where there are two or more."""
    found = {}
    for row, vector in enumerate(map(tuple, z.tolist())):
        found.setdefault(vector, []).append(row)
    return [rows for rows in found.values() if len(rows) > 1]


def test_loops_over_one_query_by_hand():
    found = parity.loop_query([False, True, False, True, False, False, False, False, False, False, True])
    assert found == pytest.approx({
        "R@1": 0, "P@1": 0, "R@10": 1, "RP": 1 / 3, "MRR": 1 / 2, "MAP@R": (1 / 2) / 3, "mAP@10/R": (1 / 2 + 2 / 4) / 3,
        "mAP": (1 / 2 + 2 / 4 + 3 / 11) / 3,
        "NDCG@10": (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3) + 1 / 2),
    })  # fmt: skip


def test_ties_go_to_the_lower_row_or_as_asked():
    data = parity.Data("", "", torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]))
    sim = [[1.0] * 4] * 4  # all equally near: answers to 0 are 1, 2, 3; to 1: 0, 2, 3; to 2: 0, 1, 3; to 3: 0, 1, 2
    first = {tie: parity.loop_ranking(data, sim, tie)["MRR"] for tie in (0, -1, 1)}
    assert first == pytest.approx({0: (1 / 2 + 1 / 3 + 1 + 1 / 2) / 4, -1: 1, 1: 1 / 3})


def test_loops_over_groups_and_pairs_by_hand():
    found = parity.loop_groups([0, 0, 1, 1], [5, 5, 5, 6])
    share, clustered = math.log(2), -(3 / 4 * math.log(3 / 4) + 1 / 4 * math.log(1 / 4))
    # 1 of the 4 stands alone in b; whoever it is, the same is shared, so the chance is what is found
    shared = 1 / 2 * math.log(4 / 3) + 1 / 4 * math.log(2 / 3) + 1 / 4 * math.log(2)
    assert found == pytest.approx({
        "NMI": 2 * shared / (share + clustered), "NMI_geometric": shared / math.sqrt(share * clustered), "AMI": 0,
        "F1": 2 / (2 + 2 + 1),
    }, abs=1e-12)  # fmt: skip
    pairs = parity.loop_pairs([0.9, 0.5, 0.1], [0.5, 0.2] + [0.0] * 198)
    assert pairs == pytest.approx({"AUROC": (200 + 199.5 + 198) / 600, "TAR@FAR=0.01": 1.0})
    pairs = parity.loop_pairs([0.9, 0.5, 0.1], [0.5, 0.2] + [0.0] * 100)
    assert pairs["TAR@FAR=0.01"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("title", TITLES)
def test_likewise_has_the_numbers_of_the_loops(compared, title):
    values, why = compared[title]
    assert set(values["likewise"]) == set(values["brute force"]) == {*parity.RANKED, *parity.OF_THE_SET}
    for name in (*parity.RANKED, "NMI", "NMI_geometric", "AMI", "F1"):
        assert values["likewise"][name] == pytest.approx(values["brute force"][name], abs=1e-12), name
    for name in ("AUROC", "TAR@FAR=0.01"):  # counted in bins
        assert values["likewise"][name] == pytest.approx(values["brute force"][name], abs=1e-4), name
    assert {name for who, name in why if who == "likewise"} <= {"AUROC", "TAR@FAR=0.01"}


def test_given_pairs_need_no_bins(compared, data):
    ties = data["Ties"]
    same, different = parity.split_pairs(ties.y.tolist(), parity.cosines(ties.z))
    sim = torch.tensor(same + different, dtype=torch.float64)
    curve = roc(sim, torch.arange(len(sim)) < len(same))
    loops = compared["Ties"][0]["brute force"]
    assert auroc(curve) == pytest.approx(loops["AUROC"], abs=1e-12)
    assert tar_at_far(curve, 0.01) == pytest.approx(loops["TAR@FAR=0.01"], abs=1e-12)


@pytest.mark.parity
@pytest.mark.parametrize("title", TITLES)
def test_peers_differ_only_where_their_definitions_do(compared, title):
    _, why = compared[title]
    differ = {who: {name for other, name in why if other == who} for who in parity.WHO[2:]}
    zeros = {"mAP", "NDCG@10"}
    assert differ["scikit-learn"] == (
        zeros if title in ("Ties", "Classes of one image", "Query and gallery") else set()
    )
    for search in ("PML, faiss", "PML, topk"):
        if title == "Ties":  # which ones depends on the machine
            assert differ[search] <= set(parity.RANKED)
        else:
            assert differ[search] == ({"NMI", "AMI"} if title == "Query and gallery" else set())


@pytest.mark.parity
def test_a_name_of_pytorch_metric_learning_means_what_ours_says(data):
    theirs = parity.by_pml(data["Plain"], parity.MEANINGS)
    ours = parity.likewise(data["Plain"], tuple(parity.MEANINGS), ())
    assert theirs == pytest.approx(ours, abs=1e-6) and len({round(v, 6) for v in ours.values()}) == len(ours)


@pytest.mark.parametrize(
    ("who", "name", "value"),
    [("likewise", "mAP", 0.4), ("PML, topk", "mAP", 0.9), ("PML, faiss", "NMI", 0.5), ("likewise", "R@1", math.nan)],
)
def test_a_difference_without_a_reason_is_an_error(compared, data, who, name, value):
    ties = data["Ties"]
    values = compared["Ties"][0]
    known = parity.reasons(ties, parity.cosines(ties.z), values["brute force"])
    wrong = values | {who: values[who] | {name: value}}
    with pytest.raises(LikewiseError, match=f"on 'Ties' {name} of {who} is {value:.6f}, not"):
        parity.explain("Ties", wrong, known)


def test_every_bold_number_has_a_note_and_every_missing_one_a_dash(compared, data):
    text = parity.section(data["Query and gallery"], *compared["Query and gallery"])
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("| ")}
    assert len(re.findall(r"\*\*0\.\d{5}\*\*", rows["NMI"])) == 2 and rows["R@10"].endswith("| - | - | - |")
    assert "- *PML, faiss* and *PML, topk*: only the queries are grouped" in text
    assert text.count("\n- *") == 2 and "**" not in parity.section(data["Plain"], *compared["Plain"])


def test_the_page_is_fresh(compared):
    """Rankings are the same on every machine; other numbers may differ in the last digit, or by the version of a peer."""
    page = (ROOT / "docs" / "parity.md").read_text("utf-8")
    assert list(re.findall(r"^## (.*)$", page, re.M)) == [*TITLES, "One name, several numbers"]
    for title, (values, _) in compared.items():
        own = page.split(f"## {title}\n")[1].split("\n## ")[0]
        for name in parity.RANKED:
            ours, loops = (f"{values[who][name]:.5f}" for who in parity.WHO[:2])
            assert f"\n| {name} | {ours} | {loops} |" in own, "run python benchmarks/parity.py --out docs/parity.md"
