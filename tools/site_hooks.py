"""Hooks of mkdocs that adapt links and figures, so that the same Markdown works on the site and on a Git host."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
ABOVE = {"README.md": "overview.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
"""Pages of the site that are outside docs/."""
LATE_PAGES = ("CHANGELOG.md", "architecture.md", "coverage.md", "internals.md", "published.md")
"""Pages that the search shows after pages for users."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def on_files(files, config):
    for name, page in ABOVE.items():
        if (ROOT / name).exists():
            files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Rewrite links to pages outside docs/, and replace links to files that are not on the site by plain text.

    Result pages are left out of the search, and `LATE_PAGES` come last in it.
    """
    here = page.file.src_uri
    if here.startswith("results/") and here != "results/README.md":  # their long tables would drown other matches
        page.meta["search"] = {"exclude": True}
    elif here in LATE_PAGES:
        page.meta["search"] = {"boost": 0.1}
    own = "README.md" if here == ABOVE["README.md"] else here if here in ABOVE else f"docs/{here}"
    pieces = re.split(r"(^```.*?^```)", markdown, flags=re.M | re.S)
    return "".join(one if one.startswith("```") else LINK.sub(lambda m: moved(m, own, here), one) for one in pieces)


def moved(link: re.Match, own: str, here: str) -> str:
    """Return a link of the repository file `own` as it must be on the page `here` of the site."""
    mark, words, target = link.groups()
    path, sharp, anchor = target.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return link[0]
    place = posixpath.normpath(posixpath.join(posixpath.dirname(own), path))
    if place.startswith("docs/"):
        page = place.removeprefix("docs/")
        page = f"{page}/README.md" if (ROOT / place).is_dir() else page
    elif place in ABOVE:
        page = ABOVE[place]
    else:
        return words  # a file of the repository that is not a page
    return f"{mark}[{words}]({posixpath.relpath(page, posixpath.dirname(here) or '.')}{sharp}{anchor})"


def on_page_content(html: str, page, config, files) -> str:
    """Insert SVG figures into the page, so that they follow its light or dark theme."""
    folder = ROOT / "docs" / posixpath.dirname(page.file.src_uri)

    def drawing(image: re.Match) -> str:
        text = (folder / image[1]).read_text("utf-8")
        return f'<span class="drawing">{re.sub("<style>.*?</style>", "", text, flags=re.S)}</span>'

    return re.sub(r'<img [^>]*src="([^":]+\.svg)"[^>]*/?>', drawing, html)
