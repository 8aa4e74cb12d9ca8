"""The documentation: the site builds without a warning, links lead somewhere, component pages are what the docstrings say."""

import math
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from likewise.cli.listing import REGISTRIES, entries
from likewise.core.settings.spec import find

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import component_figures  # noqa: E402
import component_pages  # noqa: E402
import docs  # noqa: E402
import loss_figures  # noqa: E402

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^()\s]+)\)")


def plain(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """What a Git host calls the headings of a page."""
    names: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", plain(page), re.M):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        names.add(next(one for one in (name, *(f"{name}-{n}" for n in range(1, 99))) if one not in names))
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target in LINK.findall(plain(page)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{target} does not exist"
        assert place.is_relative_to(ROOT), f"{target} leads out of the repository"
        if anchor:
            assert anchor in anchors(place), f"{target}: no such heading; there are {sorted(anchors(place))}"


def unwritten() -> set[str]:
    """What no component pages shows yet. A new component need not be written into them: building the site does that."""
    page = {file.stem: file.read_text("utf-8") for file in docs.FOLDER.glob("*.md")}
    parts = {f"{registry} {name}" for registry, place in REGISTRIES.items() for name in find(place)}
    missing = {one.split()[1] for one in parts if f"\n## {one.split()[1]}\n" not in page[one.split()[0]]}
    tables = {registry: entries(registry) for registry in ("metrics", "data", "recipes")}
    return missing | {
        name for registry, names in tables.items() for name in names if f"| `{name}` |" not in page[registry]
    }


def test_the_component_pages_are_fresh():
    made = component_pages.pages(without=unwritten())
    there = {file.name: file.read_text("utf-8") for file in docs.FOLDER.glob("*.md")}
    assert there == made, "run python tools/docs.py"


def test_a_page_leaves_out_what_it_is_told_to():
    made, less = component_pages.pages(), component_pages.pages(without=["Circle", "RP", "sop", "triplet"])
    changed = {name for name in made if made[name] != less[name]}
    assert changed == {"losses.md", "metrics.md", "data.md", "recipes.md", "README.md"}
    assert "Circle" not in less["losses.md"] + less["README.md"] and "`sop`" not in less["data.md"]


def test_the_table_of_losses_follows_their_contracts():
    page = (ROOT / "docs" / "relevance.md").read_text("utf-8")
    rows, fresh = (
        dict(re.findall(r"^\| \[(\w+)\]\S+ \| (.*) \|$", text, re.M)) for text in (page, docs.with_table(page))
    )
    # A new loss need not be on the page; building the site adds it.
    assert rows.items() <= fresh.items() and len(rows) > 30, "run python tools/docs.py"
    assert set(fresh) == set(find("losses"))
    assert rows["MultiSimilarity"] == "pairs | the value" and rows["Hierarchical"] == "- | single labels only"
    assert rows["Triplet"] == "pairs, judged triplets | the threshold"


def test_pictures_are_small_whole_and_all_used():
    files = [*docs.FOLDER.glob("*.svg"), ROOT / "docs" / "flow.svg"]
    assert sum(file.stat().st_size for file in files) < 1_200_000
    for file in files:
        assert ET.fromstring(file.read_text("utf-8")).tag.endswith("svg")
    shown = {
        name for page in docs.FOLDER.glob("*.md") for name in re.findall(r"\(([\w-]+\.svg)\)", page.read_text("utf-8"))
    }
    assert shown == {file.name for file in docs.FOLDER.glob("*.svg")}


@pytest.mark.slow
def test_the_script_writes_pages_and_pictures(tmp_path, monkeypatch, capsys):
    """Into another folder, one picture of every registry: all tools but the site, among them svg."""
    (tmp_path / "docs" / "components").mkdir(parents=True)
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "FOLDER", tmp_path / "docs" / "components")
    monkeypatch.setattr(docs, "build", lambda out: out.mkdir())
    some = ["Triplet", "SemiHard", "Shuffled", "SuperLoss", "Uniform", "ClassFolds", "Linear"]
    docs.main(["--out", str(tmp_path / "site"), "--figures", *some])
    assert capsys.readouterr().out == f"open {tmp_path / 'site' / 'index.html'}\n" and (tmp_path / "site").is_dir()
    drawn = {file.name for file in docs.FOLDER.glob("*.svg")}
    assert drawn == {
        "metrics.svg",
        *(f"{s}-{n.lower()}.svg" for s, n in zip(component_figures.DRAW, some, strict=True)),
    }
    for file in docs.FOLDER.glob("*.svg"):
        assert len(list(ET.fromstring(file.read_text("utf-8")).iter())) > 10
    for name in ("flow.svg", *(f"components/{file.name}" for file in docs.FOLDER.glob("*.md"))):
        fresh = (tmp_path / "docs" / name).read_text("utf-8")
        if unwritten() and name.endswith(".md"):
            continue  # the fast suite compares what is written
        assert fresh == (ROOT / "docs" / name).read_text("utf-8"), "run python tools/docs.py --figures"
    assert {file.name for file in docs.FOLDER.glob("*.md")} == set(component_pages.pages())


def test_a_loss_is_drawn_as_its_formula_says(monkeypatch):
    monkeypatch.setattr(loss_figures, "SWEEP", loss_figures.SWEEP[::12])
    here = loss_figures.SWEEP.tolist()
    number, slope = loss_figures.sweep("Triplet", "mate")
    far = math.sqrt(2 - 2 * loss_figures.STRANGER)
    by_hand = [max(0.0, math.sqrt(2 - 2 * s) - far + 0.2) for s in here]
    assert number.tolist() == pytest.approx(by_hand, abs=1e-6)
    active = [0.0 if not h else -1 / math.sqrt(2 - 2 * s) for s, h in zip(here, by_hand)]
    assert slope.tolist() == pytest.approx(active, abs=1e-6)
    number, _ = loss_figures.sweep("NormSoftmax", "stranger")  # own proxy at 0, seven others at 0 but for one
    assert number.tolist() == pytest.approx([math.log(7 + math.exp(20 * s)) for s in here], rel=1e-6)


def test_pictures_come_out_the_same_again():
    for registry, name in (
        ("samplers", "GreedyCoreset"),
        ("protocols", "SeenClasses"),
        ("confidence", "LabelPosterior"),
    ):
        draw = component_figures.DRAW[registry]
        assert draw(name).text == draw(name).text
    assert component_figures.draw_metrics().text == (docs.FOLDER / "metrics.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("l_a = [d_ap - d_an + margin]+", "l<sub>a</sub> = [d<sub>ap</sub> − d<sub>an</sub> + margin]<sub>+</sub>"),
        ("1/a log(1 + sum_p e^(-a (s_ip - m)))", "1/a log(1 + ∑<sub>p</sub> e<sup>-a (s<sub>ip</sub> − m)</sup>)"),
        ("e^-W(max(b, x) / 2) y", "e<sup>-W(max(b, x) / 2)</sup> y"),
        ("tan^2(alpha) <= 1; far_margin, `size`", "tan<sup>2</sup>(α) ≤ 1;<br>far_margin, <code>size</code>"),
        ("L(z_i; P_0) + sum_{c != y} |x|", "L(z<sub>i</sub>; P<sub>0</sub>) + ∑<sub>c ≠ y</sub> |x|"),
    ],
)
def test_formulas_are_set_and_not_changed(text, html):
    assert component_pages.typeset(text) == html


def test_a_docstring_is_taken_apart():
    class Split:
        """What it does.

        More of it.

        Paper: Somebody, 2020;
            and others.
        Differs: nothing.

        Args:
            a: one
                thing. Paper: 2.
            b: another | one.
        """

    found = component_pages.sections(Split)
    assert (found["summary"], found["more"]) == ("What it does.", "More of it.")
    assert " ".join(found["Paper"].split()) == "Somebody, 2020; and others." and found["Differs"] == "nothing."
    assert found["Args"] == {"a": "one thing. Paper: 2.", "b": "another | one."}
    assert component_pages.cell("a | b*c `d*e`") == "a \\| b\\*c `d*e`"


def test_links_are_moved_to_where_the_site_has_their_pages():
    hooks = pytest.importorskip("site_hooks")

    def moved(text, own, here):
        return hooks.LINK.sub(lambda link: hooks.moved(link, own, here), text)

    assert moved("[a](docs/guide.md#data)", "README.md", "overview.md") == "[a](guide.md#data)"
    assert moved("[a](docs/results)", "README.md", "overview.md") == "[a](results/README.md)"
    assert moved("[a](../README.md#more)", "docs/guide.md", "guide.md") == "[a](overview.md#more)"
    assert moved("[`a`](../../benchmarks/losses.py)", "docs/components/losses.md", "components/losses.md") == "`a`"
    assert moved("![a](b.png) [c](https://d.e/f)", "docs/x.md", "x.md") == "![a](b.png) [c](https://d.e/f)"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    docs.build(folder)
    return folder


def test_the_search_works_from_disk_and_shows_pages_for_users_first(site, browser):
    page = browser.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.click("input.md-search__input")
    for words, title in (("wrong labels", "Audits: wrong labels"), ("onnx", "Report, search, export")):
        page.fill("input.md-search__input", "")
        page.keyboard.type(words)
        page.locator(".md-search-result__item h1").filter(has_text=title).first.wait_for()
        found = page.locator(".md-search-result__item h1").all_inner_texts()
        assert title in " ".join(found[:3]) and "Changelog" not in found[:3]
    assert not [address for address in asked if address.startswith("http")]
    page.close()


def test_the_site_builds_without_a_warning_and_fetches_nothing(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES) - 2
    for page in pages:
        fetched = re.findall(
            r'<(?:script|img|link|iframe)\b[^>]*(?:src|href)="((?:https?:)?//[^"]+)"', page.read_text("utf-8")
        )
        assert not fetched, f"{page.name} fetches {fetched}"
    losses = (site / "components" / "losses.html").read_text("utf-8")
    assert losses.count('class="drawing"') == len(list(docs.FOLDER.glob("losses-*.svg")))
    assert ".svg" not in losses
    index = (site / "search" / "search_index.js").read_text("utf-8")
    assert "MultiSimilarity" in index and "results/index.html" in index and "results/procsim" not in index
    home = (site / "index.html").read_text("utf-8")
    assert '<div class="grid cards">' in home and 'href="audit.html"' in home and (site / "overview.html").exists()
    for word in (
        "unlabelled",
        "early stopping",
        "dinov2",
        "docker",
        "colab",
        "qdrant",
        "batch size",
        "own loss",
        "ten million",
    ):
        assert word in index.lower(), word
