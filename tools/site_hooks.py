"""What the site does to the pages, so that the same Markdown reads well on a Git host: mkdocs calls these functions."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
ABOVE = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
"""Pages of the site that stand beside docs/, not in it."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def on_files(files, config):
    for name, page in ABOVE.items():
        if (ROOT / name).exists():
            files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Links go on working: to pages beside docs/ where these are on the site, and to other files as plain words."""
    here = page.file.src_uri
    own = "README.md" if here == "index.md" else here if here in ABOVE else f"docs/{here}"
    pieces = re.split(r"(^```.*?^```)", markdown, flags=re.M | re.S)
    return "".join(one if one.startswith("```") else LINK.sub(lambda m: moved(m, own, here), one) for one in pieces)


def moved(link: re.Match, own: str, here: str) -> str:
    """A link of the file `own` of the repository, as it must be on the page `here` of the site."""
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
        return words  # a file of the repository that is no page
    return f"{mark}[{words}]({posixpath.relpath(page, posixpath.dirname(here) or '.')}{sharp}{anchor})"


def on_page_content(html: str, page, config, files) -> str:
    """Drawings become part of the page, so that they follow its light and dark."""
    folder = ROOT / "docs" / posixpath.dirname(page.file.src_uri)

    def drawing(image: re.Match) -> str:
        text = (folder / image[1]).read_text("utf-8")
        return f'<span class="drawing">{re.sub("<style>.*?</style>", "", text, flags=re.S)}</span>'

    return re.sub(r'<img [^>]*src="([^":]+\.svg)"[^>]*/?>', drawing, html)
