"""The page: what is on it, its blocks of data, and how it behaves in a browser."""

import dataclasses
import json
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from browser import until
from page_reader import Reader
from report.made_facts import SCRIPT, bare, made_facts, sure

from likewise.report import write_report as packed
from likewise.report.section import Facts, array_block, index_dtype, json_block, to_json
from likewise.report.sections import NAMES
from likewise.report.write_report import (
    asset,
    captions,
    headline_scores,
    large_blocks,
    pack_page,
    page_context,
    scripts,
    summary_of,
    write_page,
)


def test_sections_stand_in_order_and_what_is_empty_leaves_no_trace(tmp_path):
    text = write_page(made_facts(100, 8, 10), tmp_path / "a.html", True).read_text("utf-8")
    page = Reader(text)
    folded = ["spectrum", "overlap", "tree"]
    first = [name for name in NAMES if name not in [*folded, "labels"]]  # these samples have one label each
    assert page.sections() == [*first, "further", *folded]  # what few readers need comes last
    assert [a["href"] for tag, a in page.tags if tag == "a"][1:] == [f"#{name}" for name in (*first, "further")]
    assert "More: Spectrum, Error overlap, Class tree" in page.text
    empty = Facts("nothing", (bare(notes=("It is not finished.",)),), ())
    page = Reader(write_page(empty, tmp_path / "b.html", True).read_text("utf-8"))
    assert page.sections() == ["notes"] and "It is not finished." in page.text and "Scores" not in page.text
    assert page_context(Facts("nothing", (bare(),), ()))["sections"] == []


def test_names_stay_text_and_nothing_is_outside(tmp_path):
    text = write_page(made_facts(100, 8, 10), tmp_path / "a.html", True).read_text("utf-8")
    assert SCRIPT not in text and Reader(text).text.startswith(f"Birds, {SCRIPT}")
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|<script src|@import|url\((?!data:)", text)
    assert "default-src 'none'" in text and [file.name for file in tmp_path.iterdir()] == ["a.html"]


def test_texts_come_before_data_and_data_before_pictures(tmp_path):
    text = write_page(made_facts(100, 8, 10), tmp_path / "a.html", True).read_text("utf-8")
    order = ['id="scores"', 'id="notes"', 'id="facts"', 'id="more"', 'id="label-0"', 'id="map-0-PCA"', 'id="near-0"']
    places = [text.index(one) for one in [*order, "url(data:image/webp"]]
    assert places == sorted(places)


def test_the_deciding_metric_leads():
    run = bare(scores={"P@1": sure(0.1, 0, 0.2), "R@1": sure(0.5, 0.4, 0.6)})
    assert headline_scores(run) == [("R@1", "50.0 %"), ("P@1", "10.0 %")]


def test_the_result_comes_first():
    """Of one run: its score before and after training. Of several: the comparison."""
    run = bare("me", {"R@1": sure(0.5, 0.4, 0.6)}, before={"R@1": sure(0.3, 0.2, 0.4)})
    after = "R@1 50.0 % (40.0 to 60.0)"
    assert summary_of(Facts("x", (run,), ())) == [f"{after}; before training 30.0 % (20.0 to 40.0)."]
    assert summary_of(Facts("x", (run, bare("new", {"R@1": sure(0.5, 0.4, 0.6)})), ()))[1] == f"new: {after}."
    other = dataclasses.replace(run, pool=run.pool + 1)
    assert "do not compare their scores" in summary_of(Facts("x", (run, other), ()))[0]
    assert summary_of(Facts("x", (bare(),), ())) == []
    assert summary_of(made_facts(100, 8, 10)) == ["robust is better by 12.0 points of R@1 (9.1 to 14.8)."]


def test_facts_of_a_run_are_in_its_head(tmp_path):
    facts = Facts("x", (bare(facts=("trained on 1 May 2026", "scored on 5 queries")),), ())
    page = Reader(write_page(facts, tmp_path / "a.html", True).read_text("utf-8"))
    assert "Trained on 1 May 2026; scored on 5 queries." in page.text


@pytest.mark.browser
def test_suspect_labels_are_marked_and_matrices_have_names(open_page, tmp_path):
    made = made_facts(100, 8, 10)
    first = made.runs[0].found["galleries"]["worst"][0].place
    run = replace(made.runs[0], suspects={first: "wren"})
    file = write_page(replace(made, runs=(run, made.runs[1])), tmp_path / "a.html", True)
    page = open_page(file, viewport={"width": 390, "height": 800})
    page.locator("#galleries").scroll_into_view_if_needed()
    page.wait_for_selector("#galleries .badge")
    assert page.locator("#galleries .badge").all_inner_texts() == ["its label looks wrong, perhaps wren"]
    page.locator("#map").scroll_into_view_if_needed()
    page.locator("#map select").select_option(label="suspect label")
    until(page, "document.querySelector('.chips')?.innerText.includes('label looks wrong')")
    page.locator("#confusion").scroll_into_view_if_needed()
    page.wait_for_selector("#confusion .named")
    names = [made.pools[0].class_name[i] for i in run.found["confusion"].classes]
    for side in ("left", "top"):
        shown = page.locator(f"#confusion .{side} span")
        assert shown.evaluate_all("all => all.map(one => one.textContent)") == names
        assert shown.nth(3).bounding_box()["width"] > 5
    assert not page.locator("#spectrum svg.chart").is_visible()
    page.locator("#further summary").first.click()
    page.wait_for_selector("#spectrum svg.chart")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_code_is_short_enough_to_be_read():
    for name in scripts():
        lines = asset(name).splitlines()
        assert len(lines) <= 330 and max(map(len, lines)) <= 130, name


def test_pictures_take_what_data_leaves_of_the_room(tmp_path, monkeypatch):
    facts = made_facts(2000, 20, 50, noisy=True)
    large = write_page(facts, tmp_path / "a.html", True).stat().st_size
    monkeypatch.setattr("likewise.report.write_report.MAX_PAGE_CHARACTERS", 600_000)
    small = write_page(facts, tmp_path / "a.html", True).stat().st_size
    assert 400_000 < small < 605_000 < large


@pytest.mark.slow
def test_sixty_thousand_samples_with_pictures_of_noise_stay_below_15_mb(tmp_path):
    file = write_page(made_facts(60_000, 200, 2000, noisy=True), tmp_path / "a.html", True)
    assert file.stat().st_size < 15_000_000


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    facts = made_facts()
    return facts, write_page(facts, tmp_path_factory.mktemp("page") / "a.html", True)


@pytest.fixture
def page(open_page, written):
    """The page, open; at the end, every section is drawn."""
    view = open_page(written[1])
    yield view
    for name in (name for name in NAMES if name != "labels"):
        view.evaluate("name => document.getElementById(name).scrollIntoView({ behavior: 'instant' })", name)
        view.wait_for_selector(f"#{name} > .fill > *, #{name} > ul, #{name} > .scores", state="attached")


def on_screen(page, facts, place, run=0, method="t-SNE"):
    """Where a sample stands in the window when all of the map is seen, worked out anew from the facts."""
    page.locator(".sea").scroll_into_view_if_needed()
    until(page, "!document.querySelector('.sea .wait')")
    box, xy = page.locator(".sea canvas").bounding_box(), facts.runs[run].found["map"][method]
    low, high = xy.min(0), xy.max(0)
    wide, tall = (high - low).tolist()
    most = max(380, min(700, 0.8 * page.viewport_size["height"])) - 2  # height of the frame inside of its border
    stretch = float(np.clip(most / box["width"] / (tall / wide), 1 / 1.6, 1.6))
    axes = np.array([1, stretch] if stretch > 1 else [1 / stretch, 1])
    unit = 0.94 * min(box["width"] / (wide * axes[0]), box["height"] / (tall * axes[1]))
    x, y = map(float, (xy[place] - (low + high) / 2) * axes * unit)
    return box["x"] + box["width"] / 2 + x, box["y"] + box["height"] / 2 - y


def point_at(page, facts, place):
    """Move the pointer to a sample until the page shows it: what loads above the map may still move it."""
    tip = page.locator("#tip:not([hidden])")
    for _ in range(300):
        page.mouse.move(*on_screen(page, facts, place))
        if tip.count():
            return
        page.wait_for_timeout(200)
        page.mouse.move(0, 0)
    raise AssertionError(f"sample {place} is not shown")


def lonely(xy):
    """The sample farthest from any other, so that nobody else is under the pointer."""
    apart = np.linalg.norm(xy[:, None] - xy[None], axis=2) + np.diag(np.full(len(xy), np.inf))
    return int(apart.min(1).argmax())


@pytest.mark.browser
def test_a_point_shows_its_sample_and_its_neighbours(page, written):
    facts = written[0]
    place, pool = lonely(facts.runs[0].found["map"]["t-SNE"]), facts.pools[0]
    point_at(page, facts, place)
    assert pool.caption[place] in page.locator("#tip").inner_text()
    page.mouse.click(*on_screen(page, facts, place))
    panel = page.locator(".pinned")
    names = [tile.get_attribute("title").split(" · ")[1] for tile in panel.locator(".answers .tile").all()]
    assert names == [pool.caption[other] for other in facts.runs[0].near[place]]
    right = pool.label[facts.runs[0].near[place]] == pool.label[place]
    assert f"{right.sum()} of 8 of its class" in panel.inner_text()
    assert panel.locator(".answers .right").count() == right.sum() == page.locator(".tie.right").count()
    page.get_by_role("button", name="robust").nth(0).click()  # the same sample, the other run's neighbours
    until(
        page,
        "name => document.querySelector('.pinned .answers .tile')?.title.includes(name)",
        arg=pool.caption[facts.runs[1].near[place, 0]],
    )
    page.keyboard.press("Tab")
    page.locator(".sea canvas").press("Escape")
    assert page.locator(".inset").count() >= 4


@pytest.mark.browser
def test_a_search_box_suggests_some_of_many_classes(open_page, tmp_path):
    facts = made_facts(2600, 1300, 0)
    view = open_page(write_page(replace(facts, runs=facts.runs[:1], found={}), tmp_path / "a.html", True))
    view.locator("#map").scroll_into_view_if_needed()
    box, last = view.locator("#map input[type=search]"), facts.pools[0].class_name[-1]
    suggested = "() => [...document.querySelector('#map datalist').options].map(one => one.value)"
    box.wait_for()
    assert view.evaluate(suggested) == list(facts.pools[0].class_name[:1000])
    until(view, "!document.querySelector('.sea .wait')")
    box.fill(last)
    assert view.evaluate(suggested) == [name for name in facts.pools[0].class_name if last in name]
    assert view.locator(".chips button").all_inner_texts() == [last]


@pytest.mark.browser
def test_a_page_of_a_sample_says_so(open_page, tmp_path, monkeypatch):
    facts = made_facts(40, 4, 0)
    run, place = facts.runs[0], lonely(facts.runs[0].found["map"]["t-SNE"])
    near, sim = run.near.copy(), run.near_sim.copy()
    other = (place + 1) % 40
    near[[place, other]], sim[[place, other]] = -1, np.nan
    monkeypatch.setattr("likewise.report.sections.map.USUAL_QUERY_COUNT", 39)
    run = replace(run, near=near, near_sim=sim, drawn="38 random queries of 40")
    facts = replace(facts, runs=(run,), found={})
    view = open_page(write_page(facts, tmp_path / "a.html", True))
    for name in ("galleries", "confusion"):
        assert "38 random queries of 40 were ranked." in view.locator(f"#{name}").inner_text()
    view.mouse.click(*on_screen(view, facts, place))
    view.locator(".pinned").wait_for()
    assert "ranked for 38 random samples of 40" in view.locator(".pinned").inner_text()
    assert not view.locator(".pinned .answers .tile").count()
    xy = run.found["map"]["t-SNE"]
    apart = np.linalg.norm(xy[:, None] - xy[None], axis=2) + np.diag(np.full(len(xy), np.inf))
    ranked = int(np.where(near[:, 0] >= 0, apart.min(1), -1).argmax())
    view.mouse.click(*on_screen(view, facts, ranked))
    until(view, "document.querySelectorAll('.pinned .answers .tile').length === 8")
    names = [tile.get_attribute("title").split(" · ")[1] for tile in view.locator(".pinned .answers .tile").all()]
    assert names == [facts.pools[0].caption[other] for other in near[ranked]]
    assert "were ranked for" not in view.locator(".pinned").inner_text()


@pytest.mark.browser
def test_classes_are_found_and_colours_switched(page, written):
    facts = written[0]
    on_screen(page, facts, 0)
    page.locator("#map input[type=search]").fill("<script>")
    assert page.locator(".chips button").all_inner_texts() == [facts.pools[0].class_name[1]]
    page.locator("#map select").select_option(label="order")
    until(page, "document.querySelectorAll('.chips button').length === 3")
    chip = page.locator(".chips button", has_text="owls")
    chip.click()
    assert page.locator(".chips button[aria-pressed=true]").all_inner_texts() == ["owls"]
    page.locator("#map select").select_option(label="right or wrong")
    until(page, "document.querySelectorAll('.chips button').length === 2")
    page.get_by_role("button", name="PCA").click()
    place = lonely(facts.runs[0].found["map"]["PCA"])
    page.mouse.move(*on_screen(page, facts, place, method="PCA"))
    until(page, "name => document.getElementById('tip').textContent.includes(name)", arg=facts.pools[0].caption[place])


@pytest.mark.browser
def test_a_region_is_zoomed_to_and_the_keyboard_moves(page, written):
    on_screen(page, written[0], 0)
    side = lambda: page.locator(".region").first.bounding_box()["width"]  # noqa: E731
    page.wait_for_selector(".region", state="attached")
    small = side()
    page.locator(".inset").first.click()
    page.wait_for_selector(".images .pic", state="attached")
    assert side() > 3 * small
    page.locator(".sea canvas").press("0")
    until(page, "document.querySelectorAll('.images .pic').length === 0")
    assert side() == pytest.approx(small, rel=0.01)
    page.locator(".sea canvas").press("+")
    until(page, "was => document.querySelector('.region').getBoundingClientRect().width > was * 1.3", arg=small)


@pytest.mark.browser
def test_galleries_show_more_and_search(page, written):
    facts = written[0]
    page.locator("#galleries").scroll_into_view_if_needed()
    rows = page.locator("#galleries .query-row")
    rows.first.wait_for()
    assert rows.count() == 6
    page.locator("#galleries .more").click()
    assert rows.count() == 12
    first = facts.runs[0].found["galleries"]["each class"][0]
    name = facts.pools[0].class_name[facts.pools[0].label[first.place]]
    page.locator("#galleries input").fill(name)
    assert all(name in text for text in rows.locator("h4").all_inner_texts()) and 1 <= rows.count() < 6
    frames = [("right" in tile.get_attribute("class")) for tile in rows.first.locator(".answers .tile").all()]
    shown = rows.first.locator(".query").get_attribute("title").split(" · ")[1]
    query = next(
        one for one in facts.runs[0].found["galleries"]["each class"] if facts.pools[0].caption[one.place] == shown
    )
    assert frames == [answer.right for answer in query.neighbours]


@pytest.mark.browser
def test_curves_are_read_under_the_pointer_and_the_tree_opens(page):
    chart = page.locator("#curves .chart").first
    chart.hover()
    told = page.locator("#tip").inner_text()
    assert "step" in told and "MultiSimilarity, plain" in told and "MultiSimilarity, robust" in told
    page.locator("#further summary").first.click()
    page.locator("#tree").scroll_into_view_if_needed()
    page.wait_for_selector(".branches text")
    leaves = page.locator(".branches text").count()
    page.locator(".fold.closed").first.press("Enter")
    assert page.locator(".branches text").count() == leaves + 1


@pytest.mark.browser
def test_a_small_screen_is_not_left_and_the_theme_is_switched(page):
    page.set_viewport_size({"width": 390, "height": 800})
    for name in (name for name in NAMES if name != "labels"):
        page.evaluate("name => document.getElementById(name).scrollIntoView({ behavior: 'instant' })", name)
        page.wait_for_timeout(60)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    paper = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    light = paper()
    page.locator("#theme").click()
    assert paper() != light
    page.locator("#theme").press("Enter")
    assert paper() == light


@pytest.mark.browser
def test_distances_are_called_so_and_a_sample_without_answers_is_neither_right_nor_wrong(open_page, tmp_path):
    facts = made_facts(40, 4, 0)
    run, place = facts.runs[0], lonely(facts.runs[0].found["map"]["t-SNE"])
    near, (first, *_) = run.near.copy(), run.found["galleries"]["worst"]
    near[place] = -1
    asked = first._replace(neighbours=tuple(one._replace(similarity=-2.5) for one in first.neighbours))
    found = run.found | {"galleries": {"worst": (asked,)}}
    run = replace(run, near=near, near_sim=-run.near_sim, similarity="euclidean", found=found)
    file = write_page(replace(facts, runs=(run,), found={}), tmp_path / "a.html", True)
    view = open_page(file)
    view.locator("#galleries").scroll_into_view_if_needed()
    assert view.locator("#galleries .answers .tile-text").first.inner_text().endswith("distance 2.5")
    on_screen(view, replace(facts, runs=(run,)), place)
    view.locator("#map select").select_option(label="right or wrong")
    until(view, "document.querySelectorAll('.chips button').length === 2")
    names = []
    for one in (place, int(near[:, 0].argmax())):
        view.mouse.move(*on_screen(view, replace(facts, runs=(run,)), one))
        until(
            view, "name => document.getElementById('tip').textContent.includes(name)", arg=facts.pools[0].caption[one]
        )
        names.append("nearest is" in view.locator("#tip").inner_text())
    assert names == [False, True]


@pytest.mark.browser
def test_without_webgl_there_is_still_a_map(open_page, written):
    facts, file = written
    no_webgl = """const canvas = HTMLCanvasElement.prototype, real = canvas.getContext;
        canvas.getContext = function (kind, ...more) { return kind === "webgl2" ? null : real.call(this, kind, ...more); };"""
    view = open_page(file, no_webgl)
    place = lonely(facts.runs[0].found["map"]["t-SNE"])
    x, y = on_screen(view, facts, place)
    box = view.locator(".sea canvas").bounding_box()
    view.wait_for_selector(".inset")
    seen = view.evaluate(
        """([x, y]) => { const c = document.querySelector(".sea canvas"), r = c.width / c.clientWidth;
        return [...c.getContext("2d").getImageData(Math.round(x * r), Math.round(y * r), 1, 1).data]; }""",
        [x - box["x"], y - box["y"]],
    )
    assert seen[3] > 150


@pytest.mark.browser
def test_scores_can_be_read_before_the_rest_is_there(open_page, written, tmp_path):
    """A page that is cut off after its first block: scores and curves are there, the map says that it waits."""
    text = written[1].read_text("utf-8")
    cut = tmp_path / "cut.html"
    cut.write_text(text[: text.index('<script type="text/plain" id="map-0-PCA"')], "utf-8")
    view = open_page(cut)
    view.wait_for_selector("#curves path")
    assert view.locator("#scores table").count() == 4
    view.locator("#map").scroll_into_view_if_needed()
    view.wait_for_selector(".sea .wait")


def test_a_run_without_a_pool_stands_beside_others(tmp_path):
    facts = made_facts(100, 8, 10)
    facts = replace(facts, runs=(*facts.runs, bare("unfinished", found={"curves": facts.runs[0].found["curves"][:1]})))
    assert "unfinished" in write_page(facts, tmp_path / "a.html", True).read_text("utf-8")


def test_rows_that_are_places_take_no_room_and_labels_little():
    facts = made_facts(300, 10, 20)
    found = {block.name for block in large_blocks(replace(facts, pools=(replace(facts.pools[0], row=np.arange(300)),)))}
    assert "label-0" in found and "row-0" not in found
    assert [index_dtype(many) for many in (65535, 65536)] == [np.uint16, np.uint32]


def test_two_models_are_compared_by_a_metric_of_their_own():
    more = pack_page(made_facts(100, 5, 5))[0][1]
    (told,) = json.loads(more.text)["compared"]
    assert (told["a"], told["b"], told["metric"]) == (0, 1, "R@1") and len(told["queries"]) == 5


def test_pictures_have_numbers_doubts_first():
    facts = made_facts(300, 10, 20)
    blocks, all_pictures = pack_page(facts)
    told = json.loads(blocks[1].text)
    flagged = [doubt for run in told["runs"] for doubt in run["noise"]["flagged"]]
    given = [doubt.image for run in facts.runs for doubt in run.found["noise"].flagged]
    for doubt, picture in zip(flagged, given, strict=True):
        assert picture is all_pictures[doubt["slot"]] if doubt["slot"] is not None else picture is None
    for place, slot in told["slots"][0].items():
        assert all_pictures[slot] is facts.pools[0].images[int(place)]


def test_long_captions_are_kept_of_samples_with_pictures(monkeypatch):
    pool = made_facts(300, 10, 20).pools[0]
    monkeypatch.setattr(packed, "MAX_CAPTION_LETTERS", 100)
    assert captions(pool) == {place: pool.caption[place] for place in pool.images}
    assert captions(replace(pool, caption=None)) == []


def test_json_cannot_leave_its_element_and_numbers_that_are_none_are_null():
    block = json_block(
        "x", {"a": "</script><!-- \u2028", "b": [float("nan"), float("inf"), 0.1], 3: np.float32(2), "c": "\ud800"}
    )
    assert "<" not in block.text and "\u2028" not in block.text
    assert json.loads(block.text) == {"a": "</script><!--  ", "b": [None, None, 0.1], "3": 2.0, "c": "\\ud800"}
    assert to_json((np.arange(2), np.bool_(True))) == [[0, 1], True]


@dataclass(frozen=True)
class Record:
    share: float
    parts: tuple


def test_records_become_dicts_however_deep_they_stand():
    assert to_json(Record(0.5, (Record(float("nan"), ()),))) == {"share": 0.5, "parts": [{"share": None, "parts": []}]}


def test_arrays_are_bytes_lowest_first():
    assert array_block("a", np.array([1, 256], ">u2")).text == "AQAAAQ=="
