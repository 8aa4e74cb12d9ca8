"""list: what is on the shelves, one line each."""

from __future__ import annotations

from likewise.config.spec import find
from likewise.data import HUB
from likewise.data import NAMES as DATA
from likewise.errors import LikewiseError, nearest_name
from likewise.experiments.grid import read_grid, table_names
from likewise.metrics import NAMES as METRICS
from likewise.metrics import SET_NAMES
from likewise.recipes import names, read

SHELVES = {
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
OTHERS = ("metrics", "data", "recipes", "tables", "backbones")


def listing(shelf: str = "all") -> dict[str, dict[str, str]]:
    """Shelf -> name -> one line. "all" leaves out the backbones, which are more than a thousand."""
    everything = (*SHELVES, *OTHERS)
    if shelf not in ("all", *everything):
        raise LikewiseError(
            f"list: there is no shelf '{shelf}'{nearest_name(shelf, everything)} There are: {', '.join(everything)}"
        )
    wanted = [s for s in everything if s != "backbones"] if shelf == "all" else [shelf]
    return {name: entries(name) for name in wanted}


def entries(shelf: str) -> dict[str, str]:
    if shelf in SHELVES:
        return {name: first_line(part) for name, part in find(SHELVES[shelf]).items()}
    if shelf == "metrics":
        return METRICS | SET_NAMES
    if shelf == "data":
        return DATA | HUB
    if shelf == "recipes":
        return {name: read(name).title for name in names()}
    if shelf == "tables":
        return {name: read_grid(name).title for name in table_names()}
    import timm

    own = {
        "conv_small": "small conv net for glyph-sized pictures",
        "bn_inception": "BN-Inception",
        "googlenet": "GoogLeNet, from torchvision",
    }
    return own | dict.fromkeys(timm.list_models(), "timm")


def first_line(part: type) -> str:
    return (part.__doc__ or "").strip().splitlines()[0]
