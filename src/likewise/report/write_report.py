"""The report: one HTML page about runs and embedding files, with all scripts, data and images inside."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Int
from markupsafe import Markup
from PIL import Image

from likewise._version import __version__
from likewise.core.errors import LikewiseError, print_text, printable
from likewise.core.files import check_output_path, write_text
from likewise.core.notebook import view
from likewise.core.progress import bar
from likewise.core.render import html
from likewise.core.settings import Report, check
from likewise.data.dataset import data_folders, outside_files_warning
from likewise.data.images import file_of
from likewise.report import projection
from likewise.report.report_target import open_target, unique_names, vectors_of
from likewise.report.run_analysis import analyse_run, as_tensor
from likewise.report.section import (
    Block,
    Facts,
    Grouping,
    Packing,
    Pool,
    RankedQuery,
    ReportTarget,
    RunView,
    Section,
    Studies,
    array_block,
    index_dtype,
    json_block,
    load_sections,
)
from likewise.report.sections.map import choose_slow_map, draw_slow_map
from likewise.report.thumbnails import Sheets, make_sheets, read_thumbnails
from likewise.runs.folder import is_folder_of_run
from likewise.runs.scores import read_hierarchy

MOVED_DATA_HINT = "if the data has moved, give its new place with --data or --root"
"""Advice at the end of a note on images that cannot be read."""

MAX_PAGE_CHARACTERS = 14_500_000
"""Largest size of a page; images get the characters that the data leaves."""

SHARED_SCRIPTS = ("dom.js", "blocks.js", "tiles.js", "charts.js", "colours.js", "runs.js", "answers.js", "report.js")
"""Scripts that all sections use, in the order of the page; the scripts of the sections follow."""

MAX_TITLE_NAMES = 3
"""Number of runs that the title of the page names."""

MAX_CAPTION_LETTERS = 2_000_000
"""Largest total length of the captions of a pool; above it, only samples with an image keep their caption."""


@dataclass(frozen=True)
class Page:
    """An HTML page on disk, which a notebook shows as a link."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    @view
    def _repr_html_(self) -> str:
        return f'<div>page: <a href="{escape(self.path.as_posix())}">{escape(str(self.path))}</a></div>'


def report(config: Report, say: Callable[[str], None] = print) -> Page:
    """Analyse the runs and embedding files in `config.runs`, write the page and return it.

    If a t-SNE or UMAP map is due, the page is written twice: first with the PCA map, then with both.
    """
    check(config)
    if not config.runs:
        raise LikewiseError("report: at least one run folder must be given, got none; `likewise report runs/mine`")
    if config.map in projection.REQUIRED_LIBRARIES:
        projection.require_library(config.map)  # fail before slow work
    page = page_path(config)
    facts = collect_facts(config, say)
    for name, note in ((run.name, note) for run in facts.runs for note in run.notes):
        say(printable(f"{name}: {note}", keep="\n"))
    file = write_page(facts, page, config.quiet)
    slow = [way for view in facts.runs if (way := slow_map(view, config))]
    if not slow:
        return Page(file)
    say(f"page: {file} (with the PCA map until {slow[0]} is computed)")
    runs = tuple(add_slow_map(target, view, config) for target, view in zip(config.runs, facts.runs, strict=True))
    return Page(write_page(dataclasses.replace(facts, runs=runs), file, config.quiet))


def show_page(page: Page, config: Report) -> None:
    """Print the path of the page."""
    print_text(f"page: {page}")


def page_path(config: Report) -> Path:
    """Return the path of the page: `config.out`, or report.html in the folder of a single run or in the current folder."""
    if config.out:
        return check_output_path(config.out, ".html", "report")
    only = Path(config.runs[0]).expanduser()
    return (only if len(config.runs) == 1 and is_folder_of_run(only) else Path()) / "report.html"


def collect_facts(config: Report, say: Callable[[str], None]) -> Facts:
    """Analyse the targets one after another, so that memory holds the embeddings of one, then all of them together."""
    studies = study_targets(config, say)
    found = {}
    for section in load_sections():
        value = section.of_page(studies) if section.of_page else None
        if value:
            found[section.name] = value
    share = max(0, config.max_images) // max(1, len(studies.pools))  # every pool gets an equal share of the images
    shown = [places_shown(number, studies.views, found.get("compared", ())) for number in range(len(studies.pools))]
    pools = [with_images(number, studies, first, share, say) for number, first in enumerate(shown)]
    made = f"likewise {__version__}: {shlex.join(['likewise', 'report', *config.runs])}"
    names = [view.name for view in studies.views]
    title = ", ".join(names[:MAX_TITLE_NAMES]) + f" and {len(names) - MAX_TITLE_NAMES} more" * (
        len(names) > MAX_TITLE_NAMES
    )
    return Facts(title, tuple(studies.views), tuple(pools), found, tuple(studies.notes), made)


def study_targets(config: Report, say: Callable[[str], None]) -> Studies:
    """Open and analyse every target. Embeddings are released after the analysis of their target."""
    targets, views, pools, data = [], [], {}, {}
    for target, name in zip(config.runs, unique_names(config.runs), strict=True):
        one = open_target(target, name, config, data, say)
        key = None if one.items is None else key_of(one)
        if key is not None and key not in pools:
            pools[key] = make_pool(one)
        number = -1 if key is None else list(pools).index(key)
        views.append(analyse_run(one, number, pools.get(key), config))
        targets.append(
            one if one.items is None else dataclasses.replace(one, items=dataclasses.replace(one.items, x=None))
        )
    return Studies(targets, views, list(pools.values()), config, list(note_different_queries(list(pools), views)))


def key_of(one: ReportTarget) -> tuple:
    """Return the key of the pool of a target: first its samples, then its queries, gallery, relevant rows and their meaning."""
    assert one.items is not None and one.row is not None
    own = one.items.y.tobytes(), one.items.class_name, one.items.path
    samples = (one.row.tobytes(), *((one.run.about["data"],) if one.run is not None else own))
    relevant = None if one.queries is None else one.queries.relevant.astype(np.int64).tobytes()
    meaning = "" if one.queries is None else one.queries.meaning
    return samples, *(side.tobytes() for side in one.query_gallery), relevant, meaning


def note_different_queries(keys: Sequence[tuple], views: Sequence[RunView]) -> Iterator[str]:
    """Yield a note for each set of runs that were scored on the same samples with different queries, galleries or relevance."""
    for samples, times in Counter(key[0] for key in keys).items():
        if times > 1:
            names = ", ".join(view.name for view in views if view.pool >= 0 and keys[view.pool][0] == samples)
            yield f"{names}: the same samples with different queries, galleries or relevance, so these scores cannot be compared"


def make_pool(one: ReportTarget) -> Pool:
    """Return the pool of the samples that a target was scored on, with the groupings of its taxonomy and learned hierarchy."""
    items = one.items
    assert items is not None and one.row is not None
    groupings = group_classes(items.class_name, None if one.data is None else one.data.taxonomy)
    learned = None if one.run is None else read_hierarchy(one.run.path)
    groupings += () if learned is None else group_classes(items.class_name, learned, "learned level")
    path = items.path or (one.data.path and [one.data.path[r] for r in one.row] if one.data is not None else None)
    caption = None if path is None else tuple(os.path.basename(p.replace("\\", "/")) for p in path)
    name = items.name if one.data is None else one.data.name
    sets = {"label_name": items.label_name, "label_sets": items.label_sets}
    return Pool(name, one.split, one.row, items.y, items.class_name, groupings, caption, **sets)


def group_classes(
    class_name: Sequence[str], above: Mapping[str, Sequence[str]] | None, word: str = "level"
) -> tuple[Grouping, ...]:
    """Return a grouping for each level of a taxonomy, coarsest first.

    A level is left out if it has one group, if every class has its own group, or if it equals the level above.

    Args:
        above: class name to its ancestors, coarsest first. A class may be missing, and paths may differ in length.
        word: the name of a grouping is this word and its depth: "level 1".
    """
    paths = [tuple((above or {}).get(name, ())) for name in class_name]
    found: list[Grouping] = []
    for depth in range(1, max(map(len, paths), default=0) + 1):
        number: dict[tuple[str, ...], int] = {}
        group = [number.setdefault(path[:depth], len(number)) if len(path) >= depth else -1 for path in paths]
        same = found and np.array_equal(found[-1].of_class, group)
        if 1 < len(number) < sum(g >= 0 for g in group) and not same:
            names = tuple(path[-1] for path in number)
            found.append(Grouping(f"{word} {depth}", names, np.array(group, np.int64)))
    return tuple(found)


def slow_map(view: RunView, config: Report) -> str:
    """Return the name of the slow map of a run, "t-SNE" or "UMAP"; "" if it has none."""
    return choose_slow_map(len(view.found["map"]["PCA"]), config)[0] if "map" in view.found else ""


def add_slow_map(target: str, view: RunView, config: Report) -> RunView:
    """Return the run with its slow map. The embeddings are read again, so that memory holds those of one run at a time."""
    way = slow_map(view, config)
    if not way:
        return view
    x, similarity = vectors_of(target, config)
    drawn = draw_slow_map(as_tensor(x, similarity), view.name, similarity, way, config)
    return dataclasses.replace(view, found=view.found | {"map": view.found["map"] | {way: drawn}})


def places_shown(number: int, views: Sequence[RunView], compared: Sequence) -> list[int]:
    """Return the places of a pool that galleries, comparisons and confusions show, the most important first."""
    here = [view.found for view in views if view.pool == number]
    galleries = [found.get("galleries", {}) for found in here]
    queries: list[RankedQuery] = []
    for kind in ("worst", "best", "random"):
        queries += chain.from_iterable(interleave([some.get(kind, ()) for some in galleries]))
    queries += chain.from_iterable(both for one in compared if views[one.a].pool == number for both in one.queries)
    confused = chain.from_iterable(found["confusion"].pairs[:20] for found in here if "confusion" in found)
    pairs = [pair.example for pair in confused if pair.example]
    classes = [one for some in galleries for kind in ("each class", "each label") for one in some.get(kind, ())]
    in_order = chain(map(query_and_neighbours, queries), pairs, map(query_and_neighbours, classes))
    return list(dict.fromkeys(chain.from_iterable(in_order)))


def interleave(lists: Sequence[Sequence[RankedQuery]]) -> Iterator[list[RankedQuery]]:
    """Yield the first item of every list, then the second of every list, and so on."""
    for place in range(max(map(len, lists), default=0)):
        yield [some[place] for some in lists if place < len(some)]


def query_and_neighbours(query: RankedQuery) -> list[int]:
    """Return the places of a query and of its neighbours."""
    return [query.place, *(one.place for one in query.neighbours)]


def choose_image_places(
    label: Int[np.ndarray, "N"], first: list[int], most: int, seed: int = 0
) -> Int[np.ndarray, "p"]:
    """Return at most `most` places that get an image: those in `first`, in order, then others spread over the classes."""
    drawn = np.random.default_rng(seed).permutation(len(label))
    by_class = drawn[np.argsort(label[drawn], kind="stable")]
    turn = np.arange(len(label)) - np.searchsorted(label[by_class], label[by_class])  # 0, 1, ... within each class
    spread = by_class[np.argsort(turn, kind="stable")]
    both = np.concatenate([np.array(first, np.int64), spread])
    return both[np.sort(np.unique(both, return_index=True)[1])][:most]


def with_images(number: int, studies: Studies, first: list[int], most: int, say: Callable[[str], None]) -> Pool:
    """Return the pool with images, read from the data set, or from the paths saved with the embeddings.

    Args:
        number: index of the pool.
        first: places that get an image before others.
        most: largest number of images.
    """
    pool, config = studies.pools[number], studies.config
    here = [one for one, view in zip(studies.targets, studies.views) if view.pool == number]
    whole = next((one.data for one in here if one.data is not None and one.data.path is not None), None)
    items, rows = (whole, pool.row) if whole is not None else (here[0].items, np.arange(len(pool.row)))
    assert items is not None
    places = choose_image_places(pool.label, first, most, config.seed)
    found, error = read_thumbnails(
        items, rows[places].tolist(), title=f"read images of {pool.name}", quiet=config.quiet
    )
    place = dict(zip(rows[places].tolist(), places.tolist()))
    images = {place[row]: image for row, image in found.items()}
    if whole is None:  # the paths come from an embedding file
        folders = [items.root, *data_folders(here[0].settings)]
        files = [os.path.abspath(file_of(items, row)) for row in found]
        warning = outside_files_warning([(os.path.dirname(file), 1, file) for file in files], folders)
        if warning:
            say(printable(f"{pool.name}: {warning}"))
    studies.notes.extend([f"{pool.name}: {error}; {MOVED_DATA_HINT}"] if error else [])
    return dataclasses.replace(pool, images=images)


def write_page(facts: Facts, file: Path, quiet: bool = False) -> Path:
    """Write the page to `file` atomically and return the path."""
    with bar("page", 4, quiet=quiet) as progress:
        blocks, images = pack_page(facts)
        progress.advance()
        context = page_context(facts) | {"blocks": blocks}
        template = html.environment().get_template("report.html")
        empty = template.render(context, sheets=Sheets(1, 1, 1, [], []), block=json_block)
        progress.advance()
        sheets = make_sheets(images, MAX_PAGE_CHARACTERS - len(empty.encode("utf-8", "backslashreplace")))
        progress.advance()
        text = template.render(context, sheets=sheets, block=json_block)
        write_text(file, text)
        progress.advance()
    return file


def page_context(facts: Facts) -> dict:
    """Return the variables of the template: the facts, the sections that are shown, the style and all scripts."""
    shown = [section.worded(facts) for section in load_sections() if section.is_shown(facts)]
    folded = [section for section in shown if section.folded]
    return {
        "facts": facts,
        "sections": [section for section in shown if not section.folded] + folded,
        "headline": [headline_scores(run) for run in facts.runs],
        "summary": summary_of(facts),
        "folded": folded,
        "style": asset("report.css"),
        "code": Markup("\n").join(map(asset, scripts())),
    }


def scripts() -> tuple[str, ...]:
    """Return the file names of the scripts in the order of the page."""
    return (*SHARED_SCRIPTS, *(name for section in load_sections() for name in section.code))


def asset(name: str) -> Markup:
    """Return the text of a file among the templates, without escaping."""
    return Markup((html.TEMPLATES / name).read_text("utf-8"))


def summary_of(facts: Facts) -> list[str]:
    """Return what the page shows in a few sentences: the comparisons of runs, or the score of a run before and after training."""
    compared = [one.conclusion for one in facts.found.get("compared", ())]
    if compared:
        return compared
    found = []
    if len({run.pool for run in facts.runs if run.scores}) > 1:
        found.append(
            "The runs were scored on different data or by different labels, so do not compare their scores; "
            "likewise compare A B --on DATA scores both on the same."
        )
    for run in facts.runs:
        if (score := run.scores.get(run.main_metric)) is None:
            continue
        name = f"{run.name}: " if len(facts.runs) > 1 else ""
        before = run.before.get(run.main_metric)
        found.append(
            f"{name}{run.main_metric} {score.text}" + (f"; before training {before.text}" if before else "") + "."
        )
    return found


def headline_scores(run: RunView) -> list[tuple[str, str]]:
    """Return name and value, without its interval, of the main metric and two others."""
    order = sorted(run.scores, key=lambda name: name != run.main_metric)
    return [(name, run.scores[name].text.split(" (")[0]) for name in order[:3]]


def pack_page(facts: Facts) -> tuple[list[Block], list[Image.Image]]:
    """Return the blocks of a page, and all images of the page, to which the blocks refer by their index.

    The page reads the block `facts` at once; the block `more` has the data of the other sections; large arrays follow.
    """
    first, more, images = [], [], []
    for run in facts.runs:
        about = {"name": run.name, "pool": run.pool, "main_metric": run.main_metric, "similarity": run.similarity}
        about |= {"suspects": run.suspects} if run.suspects else {}
        first.append(about)
        more.append({})
        for section in load_sections():
            if section.name in run.found:
                packed = pack(section, run.found[section.name], Packing(facts, run, images))
                (first if section.is_first else more)[-1][section.name] = packed
    slots = []
    for pool in facts.pools:
        slots.append({place: len(images) + i for i, place in enumerate(pool.images)})
        images += pool.images.values()
    whole = {
        section.name: pack(section, facts.found[section.name], Packing(facts))
        for section in load_sections()
        if section.name in facts.found
    }
    small = (
        json_block("facts", {"runs": first, "pools": [pool_names(pool) for pool in facts.pools]}),
        json_block("more", {"slots": slots, "runs": more, **whole}),
    )
    return [*small, *large_blocks(facts)], images


def pack(section: Section, value: object, packing: Packing) -> object:
    """Return the value of a section as its `pack` function converts it."""
    return value if section.pack is None else section.pack(value, packing)


def large_blocks(facts: Facts) -> Iterator[Block]:
    """Yield labels, rows and captions of the pools, then the blocks of sections."""
    for number, pool in enumerate(facts.pools):
        if any("map" in run.found for run in facts.runs if run.pool == number) or pool.images:
            yield array_block(f"label-{number}", pool.label.astype(index_dtype(len(pool.class_name))))
            if not np.array_equal(pool.row, np.arange(len(pool.row))):  # otherwise the row is the place
                yield array_block(f"row-{number}", pool.row.astype(np.int32))
            yield json_block(f"caption-{number}", captions(pool))
    for section in load_sections():
        if section.blocks is not None:
            yield from section.blocks(facts)


def pool_names(pool: Pool) -> dict:
    """Return the names of a pool, of its classes, of its groupings and of its labels, for the block `facts`."""
    groupings = [{"name": one.name, "names": one.names, "of": one.of_class} for one in pool.groupings]
    several = {} if pool.label_sets is None else {"labels": {"names": pool.label_name, "sets": pool.label_sets}}
    return {
        "name": pool.name,
        "split": pool.split,
        "n": len(pool.row),
        "classes": pool.class_name,
        "groupings": groupings,
        **several,
    }


def captions(pool: Pool) -> dict[int, str] | list[str]:
    """Return the caption of every place; only of places with an image if all captions are too long."""
    if pool.caption is None:
        return []
    if sum(map(len, pool.caption)) <= MAX_CAPTION_LETTERS:
        return list(pool.caption)
    return {place: pool.caption[place] for place in pool.images}
