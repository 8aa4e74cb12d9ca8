"""The components of every registry, for the terminal and for a notebook."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from likewise.core.notebook import table, view


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


def show_listing(found: Listing) -> None:
    """Print one table for each registry."""
    for registry, entries in found.items():
        shown = Table(
            box=None, show_header=False, title=registry, title_justify="left", title_style="bold", padding=(0, 2, 0, 0)
        )
        for name, line in entries.items():
            shown.add_row(name, line)
        Console().print(shown)
