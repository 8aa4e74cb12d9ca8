"""`likewise search`: nearest neighbours of an image or a row, as a table, as a figure, or on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from likewise.core.errors import LikewiseError, printable
from likewise.core.settings import Search, check

if TYPE_CHECKING:
    from likewise.deploy.index.search_index import Neighbours


def search(config: Search, say=print) -> Neighbours:
    """Save or change the index, search for the query and serve the page, in this order; each only if the config requests it.

    Returns:
        The k nearest rows of the query: row, similarity, class and path of each, and whether it is the query image itself
        (`same`); empty without a query. Its `decision` is known or unknown, if the run is calibrated; its `new_classes` are
        the classes that --add brought, and the classes that each is confused with.
    """
    check(config)
    if not (config.query is not None or config.serve or config.save or config.add or config.remove or config.index):
        raise LikewiseError(
            "search: one action must be given, got none; give --query, --serve, --save, --add, --remove or --index"
        )
    if config.out and config.query is None:
        raise LikewiseError("search: --out is a figure of the results of a --query, which is missing; give --query too")
    if config.filter and config.query is None:
        raise LikewiseError("search: --filter limits the results of a --query, which is missing; give --query too")
    from likewise.core.files import check_output_path
    from likewise.deploy.index.known_unknown import IndexCalibration
    from likewise.deploy.index.open_index import count_rows, open_index, scope_of
    from likewise.deploy.index.search_index import Neighbours, answer, change, outside_of

    out = check_output_path(config.out, ".png", "search") if config.out else None
    if config.serve:
        from likewise.deploy.search.search_page import check_serving, serve  # needs an extra of likewise

        upload, token = check_serving(config)
    index, network = open_index(config, say)
    if (config.serve or out) and (warning := outside_of(index, network, config)):
        say(printable(warning))
    calibrated = IndexCalibration(index, network)
    new_classes = change(index, network, config, calibrated, say)
    found = Neighbours() if config.query is None else answer(index, network, config, calibrated, out)
    scope = scope_of(config, network)
    found.new_classes, found.searched = new_classes, f"{count_rows(index.rows)}: {scope}"
    if config.serve:
        say(printable(f"searched: {found.searched}"))
        serve(index, network, config, calibrated, upload, token, scope, say)
    return found
