"""Writes docs/parts.md from the docstrings of everything on the shelves: python tools/parts_page.py"""

import importlib
import inspect
from pathlib import Path

from likewise.spec import usage

SHELVES = {
    "losses": "Losses",
    "miners": "Miners",
    "samplers": "Batch samplers",
    "confidence": "Confidence in labels",
    "terms": "Terms beside the loss",
    "noise": "Noise models",
    "protocols": "Protocols",
    "models.heads": "Heads",
}
PAGE = Path(__file__).resolve().parent.parent / "docs" / "parts.md"


def page() -> str:
    lines = [
        "# Parts",
        "",
        "Made from the docstrings by `tools/parts_page.py`. A part is named in a spec as shown here.",
        "",
    ]
    for shelf, title in SHELVES.items():
        module = importlib.import_module(f"likewise.{shelf}")
        lines += [f"## {title}", ""]
        for name in module.__all__:
            part = getattr(module, name)
            lines += [f"### {name}", "", "```", usage(part), "", inspect.getdoc(part), "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
