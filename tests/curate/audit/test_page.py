"""The audit's page: what it shows and where, that it is one file, and that names stay names."""

import csv
import json
import re
from collections import Counter

import audit_folder
import numpy as np
import pytest
from browser import listen
from page_reader import Reader
from PIL import Image
from planted_audit import write_forecast

from likewise.core.files import read_json, write_csv, write_json
from likewise.core.render.html import breakable
from likewise.curate.audit import page as audit_page
from likewise.curate.audit.page import (
    MAX_ITEMS,
    forecast_view,
    nice_ticks,
    noise_share,
    percent_text,
    proof_ends,
    scale_ends,
    without_mirrored,
    write_page,
)
from likewise.curate.audit.proof import write_proof
from likewise.curate.audit.read import ConsensusLine, Pair
from likewise.curate.audit.weighed_votes import WORKER_COLUMNS

SCRIPT = "<script>alert(1)</script>"
NAMES = ("wren", SCRIPT, 'tit_"blue"&', "{{ 7 * 7 }}")
BLACK = Image.new("RGB", (60, 40))


def write_audit(folder, samples=80, **about):
    """Classes take turns; the first half is train. Every fourth sample is suspect, and every test sample is an error."""
    half, tables = samples // 2, {}
    tables["audit"] = ["row path label score suggested confidence margin reason split posterior loss"]
    for row in range(samples):
        told = [NAMES[(row + 1) % 4], 0.5, 0.25, f"reason {row}"] if row % 4 == 0 else ["", "", "", ""]
        part = "train" if row < half else "test"
        path = f"a/{row}.png" if about.get("pictures", True) else ""
        tables["audit"].append(
            [row, path, NAMES[row % 4], row / 1000 + (not told[0]) / 2, *told, part, row / samples, ""]
        )
    pairs = [(row, half + (row + 1 - half) % half) for row in range(half, samples)]
    tables["pairs"] = ["query other type distance wrong mate"]
    tables["pairs"] += [[q, o, "confusion", 0.25, o, -1 if q == half else q - 1] for q, o in pairs]
    tables["pairs"] += [[q, q + 4, "mis-similar", 1.5, o, q + 4] for q, o in pairs[:2]]
    tables["causes"] = ["error kind direction place row influence relative"]
    named = [("{}-{}".format(*pairs[0]), "confusion"), (SCRIPT, "group")]
    sides = (("harmful", 3.0), ("helpful", -3.0))
    tables["causes"] += [[*one, way, k, k, sign, sign] for one in named for way, sign in sides for k in range(1, 9)]
    tables["classes"] = ["split label size moved share target entropy kind partner overlap state"]
    tables["classes"] += [["train", NAMES[1], 9, 5, 0.5556, NAMES[0], 0.1, "merge", NAMES[0], 0.97, "merge"]]
    tables["classes"] += [["test", NAMES[0], 9, 4, 0.4444, NAMES[2], 1.5, "diffuse", NAMES[2], 0.001, "distinct"]]
    tables["duplicates"] = ["row other similarity bits kind parts same_label"]
    tables["duplicates"] += [[2, half, 0.99, 3, "same", "train-test", 0], [3, 5, 0.9, "", "near", "train-train", 1]]
    for name, (head, *lines) in tables.items():
        with open(folder / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([head.split(), *lines])
    np.savez(folder / "neighbours.npz", row=[0], near=[[1, 5, 2, -1, -1, -1]])
    part = {"samples": half, "classes": 4, "wrong": 3.3, "flagged": samples // 8, "of_all": 0.125, "of_touched": 0.25}
    first = {
        "target": "runs/<b>a", "kind": "run", "title": f"birds: {SCRIPT}", "root": "", "rows": samples, "pictures": True,
        "parts": {name: part | {"any": 0.02, "similar": 0.0004} for name in ("train", "test")},
        "scores": {"posterior": "a chance", "loss": "a rank"}, "influence": "first order",
        "errors": {"queries": half, "confusion": half, "mis_similar": 2}, "duplicates": {"train-test": 1, "train-train": 1},
        "measured": None, "suggested": None, "notes": [], "verify": None, "retrain": None,
    }  # fmt: skip
    (folder / "audit.json").write_text(json.dumps(first | about))
    return folder


MEASURED = {
    "score": {"AUROC": 0.875, "AP": 0.75, "recall": 0.8, "curve": [[0, 0], [0.1, 0.8], [0.5, 0.9], [1, 1]]},
    "posterior": {"AUROC": 0.5, "AP": 0.1, "recall": 0.1, "curve": [[0, 0], [1, 1]]},
}
EXTRA = {
    "measured": MEASURED,
    "suggested": {"top1": 0.701, "lenient": 0.902},
    "verify": {
        "pairs": 50,
        "rows": [{"method": "random", "mean": 0.01, "low": -0.02, "high": 0.04, "p": None}],
        "summary": "of verify",
    },
    "retrain": {
        "changed": 1234,
        "removed": 7,
        "rows": [
            {
                "metric": "R@1",
                "before": 0.5,
                "after": 0.625,
                "difference": 0.125,
                "low": 0.1,
                "high": 0.15,
                "p": 0.00001,
            }
        ],
        "summary": "of retrain",
    },
    "notes": ["nothing of <val>"],
}


def page_of(folder, picture=lambda row: BLACK):
    return write_page(folder, picture, quiet=True).read_text("utf-8")


def test_sections_stand_in_order_and_what_is_empty_is_left_out(tmp_path):
    page = Reader(page_of(write_audit(tmp_path, **EXTRA)))
    names = [
        "suspects",
        "numbers",
        "classes",
        "errors",
        "groups",
        "duplicates",
        "measured",
        "verify",
        "retrain",
        "notes",
    ]
    assert page.sections() == names
    assert [a["href"] for tag, a in page.tags if tag == "a"][:10] == [f"#{name}" for name in names]
    for name in ("pairs.csv", "causes.csv", "classes.csv", "duplicates.csv", "neighbours.npz"):
        (tmp_path / name).unlink()
    about = json.loads((tmp_path / "audit.json").read_text()) | dict.fromkeys(EXTRA) | {"errors": {}, "duplicates": {}}
    (tmp_path / "audit.json").write_text(json.dumps(about))
    assert Reader(page_of(tmp_path)).sections() == ["suspects", "numbers", "classes"]


def test_what_is_written_is_what_was_found(tmp_path):
    text = Reader(page_of(write_audit(tmp_path, **EXTRA))).text
    for told in (
        "80 samples were audited; an estimated 7 of their labels are wrong",
        "8.2% of all",
        "100.0% of 40 queries",
        "< 0.1%",  # the share of similar ones
        "In test, another label is suggested for 12.5% of all samples, and for 25.0% of those in the classes concerned.",
        "7 of 80 labels are probably wrong.",  # first
        "To review, the most suspect first: 20 (20 flagged labels).",
        "> 99 % chance that it is wrong",
        "Labels of the 3 most similar images: 2 " + SCRIPT + ', 1 tit_"blue"&.',
        "Reason 4.",  # row 0 has neighbours to tell of
        "Probability of one class: 0.970; 9 samples of the first name",
        "Squared distance 0.250",
        "Its class has no other sample.",
        "10 of 10 queries are errors",
        "Same image, train and test; labels differ. Similarity 0.990",
        "Near duplicate, train; same label. Similarity 0.900",
        "0.8750.7500.800",
        "the true one in 70.1% of cases",
        "reaches 90.2%; if their first choice is the given label",
        "+0.0100−0.0200 to +0.0400",
        "1,234 samples were relabelled and 7 dropped",
        "+0.1250+0.1000 to +0.1500 < 0.001",
        "nothing of <val>",
    ):
        assert told in text, told


def test_suspects_come_with_the_best_of_both_classes(tmp_path):
    page = page_of(write_audit(tmp_path))
    card = page[page.index('id="row-4"') :].split("</article>")[0]
    # Row 4 is a wren of train, and so are 0, 4, .. 36: all suspect, so that high rows have the exemplars scores.
    assert re.findall(r"pic p(\d+)", card) == ["4", "36", "32", "28", "37", "33", "29"]
    order = re.findall(r'<article id="row-(\d+)"', page)
    assert order == [str(row) for row in range(0, 80, 4)]


def test_an_error_is_a_triple_with_five_causes_each_way(tmp_path):
    page = page_of(write_audit(tmp_path))
    card = page[page.index('id="confusion-40-41"') :].split("</article>")[0]
    assert re.findall(r"pic p(\d+)", card) == ["40", "41", "1", "2", "3", "4", "5", "1", "2", "3", "4", "5"]
    card = page[page.index('id="mis-similar-40-44"') :].split("</article>")[0]
    assert re.findall(r'tile (\w+)".*?pic p(\d+)', card, re.S) == [("query", "40"), ("wrong", "41"), ("right", "44")]
    assert card.count("Squared distance") == 1 and card.index("Squared distance 1.500") > card.index("Same label")


def test_long_lists_are_cut_and_say_so(tmp_path):
    page = Reader(page_of(write_audit(tmp_path, 1600)))
    shown = Counter(tag_id.split("-")[0] for tag, a in page.tags if tag == "article" and (tag_id := a.get("id")))
    assert shown["row"] == MAX_ITEMS["suspects"] and shown["confusion"] == MAX_ITEMS["pairs"]
    assert "The first 120 of 400; all in audit.csv." in page.text
    assert "The first 40 of 800; all in pairs.csv." in page.text


def test_each_picture_is_in_the_file_once_and_nothing_is_outside(tmp_path):
    page = page_of(write_audit(tmp_path, **EXTRA))
    used, defined = set(re.findall(r'"pic p(\d+)"', page)), re.findall(r"^\.p(\d+) \{", page, re.M)
    assert sorted(defined) == sorted(used) and page.count("data:image/jpeg") == len(used) > 20
    assert not re.search(r"https?:|src=|@import|url\((?!data:)", page)
    assert "default-src 'none'" in page


def test_names_stay_text(tmp_path):
    page = page_of(write_audit(tmp_path, **EXTRA))
    read = Reader(page)
    assert page.count("<script") == 1 and SCRIPT in read.text and "{{ 7 * 7 }}" in read.text
    assert read.text.startswith(f"Audit of birds: {SCRIPT}")
    assert any(a.get("aria-label", "").startswith('tit_"blue"&,') for _, a in read.tags)
    assert breakable("a_<b>/\u202ec") == "a_<wbr>&lt;b&gt;/<wbr> c"


def test_a_picture_that_cannot_be_read_is_named(tmp_path):
    def picture(row):
        if row == 4:
            raise OSError("truncated")
        return None if row == 8 else Image.new("L", (300, 900), row)

    page = page_of(write_audit(tmp_path), picture)
    assert page.count('<span class="pic name">4.png</span>') and page.count('<span class="pic name">8.png</span>')
    assert "p4 {" not in page and "p12 {" in page
    assert re.search(r"2 of \d+ images could not be read", page) and '<a href="#notes">' in page
    assert "aspect-ratio: 0.75;" in page  # tall pictures have tall frames


def test_embeddings_have_names_in_place_of_pictures(tmp_path):
    def picture(row):
        raise AssertionError("there are none to ask for")

    page = page_of(write_audit(tmp_path, pictures=False), picture)
    assert '<body class="bare">' in page and "data:image" not in page and "could not be read" not in page
    assert "row 4" in Reader(page).text


def test_the_verdict_comes_first_then_copies_with_different_labels(tmp_path):
    write_audit(tmp_path)
    lines = list(csv.reader((tmp_path / "audit.csv").open()))
    head, first, second = [*lines[0], "state", "same_as"], [*lines[1], "conflict", 0], [*lines[2], "conflict", 0]
    rest = [[*line, "flagged" if line[4] else "ok", ""] for line in lines[3:]]
    with open(tmp_path / "audit.csv", "w", newline="") as file:
        csv.writer(file).writerows([head, first, second, *rest])
    page = Reader(page_of(tmp_path))
    assert page.sections()[:2] == ["conflicts", "suspects"]
    assert page.text.index("7 of 80 labels are probably wrong") < page.text.index("Review page: likewise review")
    assert "To review, the most suspect first: 20 (19 flagged labels, 1 image with different labels)." in page.text


def test_splits_are_badges_of_one_list_and_words_follow_the_data(tmp_path):
    page = page_of(write_audit(tmp_path))
    assert page.count('<span class="badge">train</span>') == page.count('<span class="badge">test</span>') == 10
    assert "Test errors and their causes" in page and "<h3>In train" not in page
    about = json.loads((tmp_path / "audit.json").read_text())
    (tmp_path / "audit.json").write_text(json.dumps(about | {"parts": {"all": about["parts"]["train"]}}))
    page = page_of(tmp_path)
    assert "Test errors" not in page and "Images that the features confuse" in page and '"badge">' not in page


def test_causes_are_behind_why(tmp_path):
    page = page_of(write_audit(tmp_path))
    card = page[page.index('id="confusion-40-41"') :].split("</article>")[0]
    assert card.index("<details") < card.index("Most harmful in training") < card.index("</details>")


def test_certainty_is_never_rounded_up():
    assert [percent_text(p) for p in (1, 0.9999, 0.986, 0.5)] == ["100 %", "> 99 %", "99 %", "50 %"]


def test_pictures_shrink_until_they_fit(tmp_path, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8)
    write_audit(tmp_path)
    large = len(page_of(tmp_path, lambda row: Image.fromarray(noise)))
    monkeypatch.setattr(audit_page, "THUMB_BYTES_LIMIT", 400_000)
    small = len(page_of(tmp_path, lambda row: Image.fromarray(noise)))
    assert large > 800_000 and small < 400_000 + 100_000


def test_pairs_seen_from_both_sides_are_shown_once():
    pairs = [Pair(q, o, "confusion", 0.1, o, -1) for q, o in ((1, 2), (2, 1), (3, 1), (1, 3), (4, 5))]
    assert [(p.query, p.other) for p in without_mirrored(pairs)] == [(1, 2), (3, 1), (4, 5)]


def test_the_share_of_noise_is_where_a_curve_reaches_its_recall():
    assert noise_share(MEASURED) == pytest.approx(0.1)
    flat = {"curve": [[0, 0], [0.1, 0.5], [0.4, 0.5], [1, 1]], "recall": 0.5}
    assert noise_share({"a": flat}) == pytest.approx(0.1)  # too early, never too late
    assert noise_share({"a": flat, "b": {"curve": [[0, 0], [0.5, 1], [1, 1]], "recall": 0.6}}) == pytest.approx(0.3)
    assert noise_share({"a": {"curve": [[0, None]], "recall": None}}) == 0.0


def test_scales_have_zero_on_them():
    assert scale_ends([{"low": 0.1, "high": 0.3}, {"low": 0.2, "high": 0.5}]) == (0.0, 0.5)
    assert scale_ends([{"low": -0.1, "high": -0.05}]) == (-0.1, 0.0)
    assert scale_ends([{"low": 0.0, "high": 0.0}]) == (-1.0, 1.0)


@pytest.mark.browser
def test_in_a_browser_it_asks_for_nothing_and_sorts_by_mouse_and_keyboard(browser, tmp_path):
    file = write_page(write_audit(tmp_path, **EXTRA), lambda row: BLACK, quiet=True)
    page = browser.new_page(viewport={"width": 390, "height": 800})
    asked, said = listen(page)
    page.goto(file.as_uri())
    page.click("#suspects details.table summary")
    rows = lambda: [int(cell) for cell in page.locator("#suspects tbody td:first-child").all_inner_texts()]  # noqa: E731
    sort = lambda name: page.locator("#suspects th", has_text=name)  # noqa: E731
    assert rows() == list(range(0, 80, 4))
    sort("Row").get_by_role("button").click()
    sort("Row").get_by_role("button").press("Enter")
    assert rows() == list(range(76, -1, -4)) and sort("Row").get_attribute("aria-sort") == "descending"
    sort("Suggested").get_by_role("button").click()
    assert sort("Row").get_attribute("aria-sort") is None
    assert sort("Suggested").get_attribute("aria-sort") == "ascending"
    assert page.evaluate("document.documentElement.scrollWidth") == 390  # nothing sticks out of a small screen
    page.goto(file.as_uri() + "#confusion-50-51")  # a link into what is folded opens it
    assert page.locator('[id="confusion-50-51"]').is_visible()
    assert [url for url in asked if not url.startswith("data:")] in ([file.as_uri()], [file.as_uri()] * 2)
    assert said == []
    page.close()


@pytest.mark.browser
def test_the_page_in_a_browser_searches_zooms_copies_and_is_dark_at_night(browser, tmp_path):
    file = write_page(write_audit(tmp_path, root="/birds"), lambda row: BLACK, quiet=True)
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page = context.new_page()
    asked, said = listen(page)
    page.goto(file.as_uri())
    seen = lambda: [one.get_attribute("id") for one in page.locator("#suspects article:visible").all()]  # noqa: E731
    assert len(seen()) == MAX_ITEMS["open"]
    page.fill("#find", "a/76.png")
    assert seen() == ["row-76"] and page.locator("#hits").inner_text() == "1 of 20"  # also what was folded
    page.fill("#find", "")
    page.select_option("#class", "wren")
    assert len(seen()) == 20
    page.click("#row-0 .whole .pic")
    assert page.locator("#zoom").is_visible() and page.locator("#zoom .p0").count() == 1
    page.keyboard.press("Escape")
    page.locator("#zoom").wait_for(state="hidden")
    page.focus("#row-0 .whole .pic")
    page.keyboard.press("Enter")
    page.locator("#zoom").wait_for(state="visible")
    page.click("#zoom")
    assert page.locator("#row-0 .copy").get_attribute("data-copy") == "/birds/a/0.png"
    page.click("#row-0 .copy")
    page.locator("#row-0 .copy", has_text="Copied").wait_for()
    assert page.locator("#numbers .hint").is_visible()  # the table is wider than a phone, and says so
    colour = "e => getComputedStyle(e).backgroundColor"
    assert page.locator("body").evaluate(colour) == "rgb(21, 24, 29)"
    page.emulate_media(color_scheme="light")
    assert page.locator("body").evaluate(colour) == "rgb(255, 255, 255)"
    assert said == [] and all(url.startswith(("file:", "data:")) for url in asked)
    context.close()


def written(folder):
    return write_page(folder, lambda row: None, quiet=True).read_text("utf-8")


def test_ticks_are_round_and_contain_the_ends():
    assert nice_ticks(-1.0, 5.0) == [-1, 0, 1, 2, 3, 4, 5]
    assert nice_ticks(0, 395) == [0, 100, 200, 300, 400]
    for low, high in ((-0.013, 0.002), (0.0, 0.0), (-7.5, 123.0)):
        ticks = nice_ticks(low, high)
        assert ticks[0] <= low and ticks[-1] >= high and len(ticks) <= 8


def test_places_of_the_curve(tmp_path):
    view = forecast_view(write_forecast(tmp_path))
    assert view.flat == 0.5 and view.flat_line["k"] == 20 and view.last["k"] == 40
    r1 = view.lines[0]
    x, y = zip(*r1.line)
    assert x == (0, 0.5, 1) and y == pytest.approx((1 / 6, 0.5, 0.5)) and len(r1.band) == 6  # from -1 to +5 points
    assert r1.band[2] == (1, 1) and r1.band[3] == (1, 0) and [tick.value for tick in view.across] == [0, 10, 20, 30, 40]
    assert forecast_view(write_forecast(tmp_path, flat_at=40)).flat is None
    assert forecast_view(write_forecast(tmp_path, flat_at=None)).flat is None


def test_the_command_the_forecast_and_the_reason(tmp_path):
    audit_folder.write_audit(tmp_path)
    text = written(tmp_path)
    assert f"likewise audit runs/a --forecast --out {tmp_path}" in text and 'id="review"' not in text
    write_forecast(tmp_path)
    text = written(tmp_path)
    assert "--forecast" not in text and '<a href="#review">What a review brings</a>' in text
    assert "A review of all 40 suspects takes about 2.6 min" in text and "flat from 20" in text
    assert "+2.0 (\N{MINUS SIGN}1.0 to +5.0)" in text and "bring 90 % of the gain in MAP@R" in text
    write_forecast(tmp_path, reason="no label is suspect", curve=[])
    assert "There is no forecast: no label is suspect." in written(tmp_path)


def test_forecast_and_result(tmp_path):
    audit_folder.write_audit(tmp_path)
    about = write_forecast(tmp_path)
    row = {
        "metric": "R@1",
        "before": 0.5,
        "after": 0.53,
        "difference": 0.03,
        "low": None,
        "high": None,
        "reason": "few",
    }
    write_proof(tmp_path, about, [("head", [row], "<i>note"), ("network", [], "")], 40, "decisions")
    text = written(tmp_path)
    assert (
        "After decisions about 40 suspects," in text
        and "The head that was forecast" in text
        and "&lt;i&gt;note" in text
    )
    assert (
        "<td>yes</td>" in text
        and "R@1: The result has no interval (few), so it may be chance." in text
        and "The whole network" in text
    )
    none = {
        "forecast": dict.fromkeys(("gain", "low", "high"), 0.0),
        "realised": {"gain": 0.0, "low": None, "high": None},
    }
    assert proof_ends([none]) == (-1.0, 1.0) and proof_ends([]) == (-1.0, 1.0)


def test_annotators(tmp_path):
    audit_folder.write_audit(tmp_path)
    consensus = [
        [6, "", "tit", "tit", 0.01, "agreed", 0.99, 2, 2, "tit x 2"],
        [7, "", "tit", "owl", 0.1, "other label", 0.1, 3, 2, "owl x 2|tit x 1"],
        [8, "", "tit", "tit", 0.4, "undecided", 0.5, 2, 1, "owl x 1|tit x 1"],
    ]
    write_csv(tmp_path / "consensus.csv", ConsensusLine._fields, consensus)
    workers = [["<b>ann", 4, 0.5, 0.3, 0.7, 0.6, "tit", "owl", 1], ["bob", 3, 0.9, 0.8, 1, "", "", "", 0]]
    write_csv(tmp_path / "annotators.csv", WORKER_COLUMNS, workers)
    facts = {"votes": 7, "samples": 3, "workers": 2, "disputed": 2, "several": 3, "features": False}
    write_json(tmp_path / "audit.json", read_json(tmp_path / "audit.json", "test") | {"votes": facts})
    text = written(tmp_path)
    assert "7 votes of 2 workers about 3 samples" in text and "votes alone" in text
    assert "&lt;b&gt;ann" in text and "30.0% to 70.0%" in text and "tit as owl, once" in text
    assert text.index("owl x 1, tit x 1") < text.index("owl x 2, tit x 1") and "Votes: tit x 2" not in text
    assert '<th scope="row">undecided</th><td class="number">1</td>' in text
