"""`likewise search`: nearest neighbours of a picture or a row, as a table, a picture, or on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from likewise.config import Search, check
from likewise.errors import LikewiseError, printable

if TYPE_CHECKING:
    from likewise.render.neighbours import Neighbours


def search(config: Search, say=print) -> Neighbours:
    """Save or change the index, answer the query and serve the page, as far as the config asks for each, in this order.

    Returns:
        The k nearest rows of the query: row, similarity, class and path of each, and whether it is the very picture that was
        asked for (`same`); none without a query.
    """
    check(config)
    if not (config.query is not None or config.serve or config.save or config.add or config.remove or config.index):
        raise LikewiseError("search: there is nothing to do; give --query, --serve, --save, --add, --remove or --index")
    if config.out and config.query is None:
        raise LikewiseError("search: --out is a picture of the answers to a --query, and there is none; give one")
    from likewise.index.build import open_index
    from likewise.index.search import answer, change, outside_of
    from likewise.io.files import check_out
    from likewise.render.neighbours import Neighbours

    out = check_out(config.out, ".png", "search") if config.out else None
    if config.serve:
        from likewise.web.search.serve import check_serving, serve  # needs an extra of likewise

        upload, token = check_serving(config)
    index, network = open_index(config, say)
    if (config.serve or out) and (told := outside_of(index, network, config)):
        say(printable(told))
    change(index, network, config, say)
    found = [] if config.query is None else answer(index, network, config, out)
    if config.serve:
        serve(index, network, config, upload, token, say)
    return Neighbours(found, config.query or "")
