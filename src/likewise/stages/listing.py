"""`likewise list`: the components of every registry, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from likewise.config import List, check
from likewise.errors import LikewiseError, nearest_name

if TYPE_CHECKING:
    from likewise.render.coverage import PaperListing
    from likewise.render.listing import Listing

REGISTRIES = {
    "losses": "losses",
    "miners": "miners",
    "samplers": "samplers",
    "confidence": "confidence",
    "terms": "terms",
    "noise": "noise",
    "protocols": "protocols",
    "heads": "models.heads",
    "loggers": "loggers",
}
"""Registry of components -> its module in likewise."""

OTHER_REGISTRIES = ("metrics", "data", "recipes", "tables", "backbones")
"""Registries of names that are not components."""


def listing(config: List, say=print) -> Listing | PaperListing:
    """Return registry -> name -> its line, without the backbones for "all"; for "tables", paper -> its tables and figures."""
    check(config)
    from likewise.published import coverage, papers
    from likewise.render.coverage import PaperListing
    from likewise.render.listing import Listing

    if config.registry == "tables":
        return PaperListing(coverage.printed_places(), papers())
    everything = (*REGISTRIES, *OTHER_REGISTRIES)
    if config.registry not in ("all", *everything):
        raise LikewiseError(
            f"list: there is no registry '{config.registry}'{nearest_name(config.registry, everything)} "
            f"There are: {', '.join(everything)}"
        )
    wanted = [s for s in everything if s != "backbones"] if config.registry == "all" else [config.registry]
    return Listing({name: entries(name) for name in wanted})


def entries(registry: str) -> dict[str, str]:
    """Return name -> one-line description for a registry."""
    from likewise import data, metrics, recipes
    from likewise.config.spec import find
    from likewise.experiments.grid import read_grid, table_names

    if registry in REGISTRIES:
        return {name: first_line(component) for name, component in find(REGISTRIES[registry]).items()}
    if registry == "metrics":
        return metrics.NAMES | metrics.LEVEL_NAMES | metrics.SET_NAMES
    if registry == "data":
        return data.NAMES | data.HUB_FORMS
    if registry == "recipes":
        printed = recipes.names_with_print()
        return {
            name: recipes.read(name).title + (f"; also {name}:print" if name in printed else "")
            for name in recipes.names()
        }
    if registry == "tables":
        return {name: read_grid(name).title for name in table_names()}
    import timm

    from likewise.models.backbones import OWN_BACKBONES

    return OWN_BACKBONES | {name: "timm" for name in timm.list_models() if name not in OWN_BACKBONES}


def first_line(component: type) -> str:
    """Return the first line of a docstring."""
    return (component.__doc__ or "").strip().splitlines()[0]
