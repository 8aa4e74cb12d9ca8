"""`likewise published`: the numbers that the papers report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from likewise.core.settings import Published, check

if TYPE_CHECKING:
    from likewise.papers.published.published_view import Numbers


def published(config: Published, say=print) -> Numbers:
    """Return the selected published numbers, or all without a selection, and write them to `config.csv` if it is given."""
    check(config)
    from likewise.core.files import check_output_path
    from likewise.papers.published import find, numbers, papers, write
    from likewise.papers.published.published_view import Numbers

    file = check_output_path(config.csv, ".csv", "published", "--csv") if config.csv else None
    chosen = {name: value for name, value in vars(config).items() if name != "csv" and value}
    found = find(**chosen) if chosen else numbers()
    if file:
        write(found, file)
    return Numbers(found, papers(), is_chosen=bool(chosen))
