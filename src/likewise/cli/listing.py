"""`likewise list`: the components of every registry, one line each."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from likewise.cli.early import COMPONENT_REGISTRIES as REGISTRIES
from likewise.cli.early import NAME_REGISTRIES, component_names, data_names, metric_names
from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.notebook import table, view
from likewise.core.settings import List, check
from likewise.learn import recipes
from likewise.papers.grid import table_names, table_titles
from likewise.papers.published import coverage, papers
from likewise.papers.published.coverage import PaperListing, show_papers


class Listing(dict):
    """Registry -> component -> its one-line description."""

    def containing(self, text: str) -> Listing:
        """Return the components whose names contain a text, in upper or lower case, without registries that have none."""
        kept = {
            registry: {name: line for name, line in entries.items() if text.casefold() in name.casefold()}
            for registry, entries in self.items()
        }
        return Listing({registry: entries for registry, entries in kept.items() if entries})

    @view
    def _repr_html_(self) -> str:
        return "".join(table(registry, (), list(entries.items())) for registry, entries in self.items())


def listing(config: List, say=print) -> Listing | PaperListing:
    """Return registry -> name -> its line, without the backbones for "all"; for "tables", paper -> its tables and figures.

    Without a registry, "registries" -> registry -> the number of its components.
    """
    check(config)
    if config.registry == "tables" and not config.pattern:
        return PaperListing(coverage.printed_places(), papers())
    if not config.registry:
        return Listing({"registries": overview()})
    everything = (*REGISTRIES, *NAME_REGISTRIES)
    if config.registry not in ("all", *everything):
        raise LikewiseError(
            f"list: there is no registry '{config.registry}'{nearest_name(config.registry, everything)} "
            f"There are: {', '.join(everything)}"
        )
    wanted = [s for s in everything if s != "backbones"] if config.registry == "all" else [config.registry]
    whole = Listing({name: entries(name) for name in wanted})
    found = whole.containing(config.pattern)
    if not found:
        near = nearest_name(config.pattern, [name for names in whole.values() for name in names])
        raise LikewiseError(
            f"list: a name must contain '{config.pattern}', but no name in {config.registry} does{near}"
        )
    return found


def overview() -> dict[str, str]:
    """Return registry -> the number of its components and the command that lists them. Imports neither torch nor timm."""
    counts = {name: len(component_names(module)) for name, module in REGISTRIES.items()}
    counts |= {"metrics": len(metric_names()), "data": len(data_names())}
    counts |= {"recipes": len(recipes.names()), "tables": len(table_names())}
    shown = {name: f"{count:>3}: likewise list {name}" for name, count in counts.items()}
    return shown | {"backbones": "all networks of timm, and more: likewise list backbones resnet"}


def entries(registry: str) -> dict[str, str]:
    """Return name -> one-line description for a registry."""
    from likewise import data
    from likewise.core.settings.spec import find
    from likewise.models.backbones import listed_backbones
    from likewise.score import metrics

    if registry in REGISTRIES:
        found = find(REGISTRIES[registry]).items()
        return {name: (component.__doc__ or "").strip().splitlines()[0] for name, component in found}
    if registry == "metrics":
        return metrics.NAMES | metrics.LEVEL_NAMES | metrics.SET_NAMES
    if registry == "data":
        return data.NAMES | data.HUB_FORMS
    if registry == "recipes":
        also = {name: f"; also {name}:print" for name in recipes.names_with_print()}
        return {name: recipes.read(name).title + also.get(name, "") for name in recipes.names()}
    return table_titles() if registry == "tables" else listed_backbones()


def show_listing(found: Listing | PaperListing, config: List) -> None:
    """Print one table for each registry, or the tables and figures of papers."""
    if isinstance(found, PaperListing):
        return show_papers(found)
    for registry, entries in found.items():
        shown = Table(
            box=None, show_header=False, title=registry, title_justify="left", title_style="bold", padding=(0, 2, 0, 0)
        )
        for name, line in entries.items():
            shown.add_row(name, line)
        Console().print(shown)
