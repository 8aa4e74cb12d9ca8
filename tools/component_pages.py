"""Generate docs/components/*.md, one page per registry, from the docstrings of the components."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from html import escape
from pathlib import Path

from likewise.metrics import NAMES as PER_QUERY
from likewise.metrics import SET_NAMES

from likewise.cli.listing import REGISTRIES, entries
from likewise.core.settings.spec import FACT_NAMES, find, spec, usage

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "components"
"""Folder of the figures."""

PAIR = (
    "The figures are drawn by calling the loss: one anchor, one positive and one negative (for losses of rankings: several "
    "of the kind that does not move). One of the two moves from similarity -1 to 1, the other is fixed (the positive at 0.6, "
    "the negative at 0.3). Losses with proxies: one sample moves towards its own proxy or towards another proxy. The gradient "
    "is the derivative by the moved similarity."
)
ABOUT = {
    "losses": ("Losses", "`--loss`: one value per sample; their mean is the loss of the paper.", PAIR),
    "miners": (
        "Miners", "`miner=` of a loss: which pairs or triplets of a batch it learns from.",
        "The figures show 150 random batches of 16 classes with 4 samples each in 16 dimensions: the distances of all "
        "positives and negatives, and of those that the miner selects.",
    ),
    "samplers": (
        "Batch samplers", "`--sampler`: which rows make a batch.",
        "The figures show the first batches of a small data set of eight classes, A with 12 samples to H with 6. With several "
        "labels, A and B share one, and so do C and D, E and F, G and H.",
    ),
    "relevance": (
        "Relevance", "`--relevance`: which samples are relevant to each other, in place of equal labels.", "",
    ),
    "confidence": (
        "Confidence in labels",
        "`--confidence`: computes sample weights, and may relabel, during training. `--robust` chooses for you.",
        "The figures show 320 samples of 8 classes, a quarter of them with a wrong label, after 300 steps: every point is a "
        "label, by its suspicion and its sample weight. The dashed line is the threshold.",
    ),
    "terms": ("Terms beside the loss", "`--terms`: additions to the loss that need more than embeddings and labels.", ""),
    "noise": (
        "Noise models", "`--noise`, and `likewise noise`: inject wrong labels on purpose, to measure what wrong labels do.",
        "The figures show the label transitions of 20 glyph classes. The first class has 24 samples, each next class one less.",
    ),
    "protocols": (
        "Protocols", "`--protocol`: which rows train, validate and test, and which are queries and gallery rows.",
        "The figures show the splits of 12 classes with 8 samples each.",
    ),
    "heads": (
        "Heads", "`--head`: the layers from the pooled feature of a backbone to the embedding.",
        "The figures show the layer widths, for a feature of 512 dimensions and `--dim 128`.",
    ),
    "loggers": ("Loggers", "`--loggers`: programs that also receive the log of a training.", ""),
}  # fmt: skip
GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "lambda": "λ", "mu": "μ", "nu": "ν", "omega": "ω", "pi": "π", "rho": "ρ", "tau": "τ",
    "sum": "∑", "sqrt": "√",
}  # fmt: skip
SIGNS = {
    "]+": "]<sub>+</sub>",
    "= -": "= −",
    "(-": "(−",
    "<=": "≤",
    ">=": "≥",
    "!=": "≠",
    "->": "→",
    " - ": " − ",
    " * ": " · ",
}
NOTE = "<!-- Made from the docstrings by tools/docs.py; change those. -->"


DATA = (
    "DATA, the first word of most commands: a name from this list, or files of yours ([what they may look like](../guide.md)). "
    "All but the glyphs take `--root`, where the original download was unpacked."
)
RECIPES = (
    "`--recipe`: the settings of a paper by name. `likewise recipe NAME --data DATA` prints every value with its source; "
    "flags given beside a recipe win. Several are joined: `proxy-anchor+robust`."
)


def pages(without: Collection[str] = ()) -> dict[str, str]:
    """File name -> text, for all pages.

    Args:
        without: names of components, metrics, data sets and recipes to leave out, such as those that no page shows yet.
    """
    made = {f"{registry}.md": registry_page(registry, without) for registry in REGISTRIES}
    made["metrics.md"] = metrics_page(without)
    made["data.md"] = names_page("data", "Data sets", DATA, without)
    made["recipes.md"] = names_page("recipes", "Recipes", RECIPES, without)
    made["README.md"] = first_page(without)
    return made


def but(found: dict, without: Collection[str]) -> dict:
    """Return the entries without some names."""
    return {name: value for name, value in found.items() if name not in without}


def first_page(without: Collection[str] = ()) -> str:
    registries = []
    for registry in REGISTRIES:
        title, what, _ = ABOUT[registry]
        parts = but(find(REGISTRIES[registry]), without)
        names = ", ".join(f"[{name}]({registry}.md#{name.lower()})" for name in parts)
        registries.append(f"| [{title}]({registry}.md) | {what} {names} |")
    return f"""# Components

{NOTE}

Every part is one small file on a registry, and is named by a text such as `MultiSimilarity(alpha=2, miner=HardPairs(eps=0.1))`:
the same in Python, as a flag, in a grid and in a table. `likewise list REGISTRY` prints a registry in the terminal.

| registry | what is there |
|---|---|
{chr(10).join(registries)}
| [Metrics](metrics.md) | `--metrics`: {len(but(PER_QUERY, without))} per query, {len(but(SET_NAMES, without))} of a whole set |
| [Data sets](data.md) | DATA by name: {", ".join(f"`{name}`" for name in but(entries("data"), without))} |
| [Recipes](recipes.md) | `--recipe`: {len(but(entries("recipes"), without))} settings of papers, each value with its source |
"""


def registry_page(registry: str, without: Collection[str] = ()) -> str:
    title, what, picture = ABOUT[registry]
    parts = but(find(REGISTRIES[registry]), without)
    lines = [f"# {title}", "", NOTE, "", what, *(["", picture] if picture else []), "", "| | |", "|---|---|"]
    for name, part in parts.items():
        lines.append(f"| [{name}](#{name.lower()}) | {cell(sections(part)['summary'])} |")
    for name, part in parts.items():
        lines += ["", *entry(registry, name, part)]
    return "\n".join(lines) + "\n"


def entry(registry: str, name: str, part: type) -> list[str]:
    """Return the section of a component: summary, usage, figure if there is one, formula, notes and arguments."""
    found = sections(part)
    lines = [f"## {name}", "", prose(found["summary"]), "", "```py", broken(usage(part)), "```", ""]
    if (FOLDER / f"{registry}-{name.lower()}.svg").exists():
        lines += [f"![{name}, drawn]({registry}-{name.lower()}.svg)", ""]
    if "Formula" in found:
        lines += [f'<p class="formula">{typeset(found["Formula"])}</p>', ""]
    if found["more"]:
        lines += [prose(found["more"]), ""]
    for word in ("Paper", "Differs", "Graded", "Needs"):
        lines += [f"**{word}:** {prose(found[word])}", ""] if word in found else []
    if found["Args"]:
        lines += ["| argument | default | meaning |", "|---|---|---|"]
        lines += [f"| `{key}` | {default(part, key)} | {cell(text)} |" for key, text in found["Args"].items()]
    while not lines[-1]:
        lines.pop()
    return lines


def sections(part: type) -> dict:
    """Return the sections of a docstring: summary, more, Paper, Formula, Differs, Graded, Needs, and Args by name."""
    doc, found = inspect.getdoc(part) or "", {"more": "", "Args": {}}
    head, _, arguments = doc.partition("\nArgs:\n")
    for name, text in re.findall(r"^    (\w+): (.*(?:\n        .*)*)", arguments, re.M):
        found["Args"][name] = " ".join(text.split())
    found["summary"], _, rest = head.partition("\n\n")
    for block in re.split(r"\n(?=\S)", "\n" + rest):
        word, colon, text = block.partition(":")
        if colon and word.strip() in ("Paper", "Formula", "Differs", "Graded", "Needs"):
            found[word.strip()] = text.strip()
        else:
            found["more"] += block.rstrip() + "\n"
    found["more"] = found["more"].strip()
    return found


def default(part: type, name: str) -> str:
    value = inspect.signature(part).parameters[name].default
    if name in FACT_NAMES and (value is inspect.Parameter.empty or name == "seed" or value is None):
        return "of&nbsp;the&nbsp;run"
    if value is inspect.Parameter.empty:
        return "must&nbsp;be&nbsp;given"
    plain = value is None or isinstance(value, bool | int | float | str | tuple)
    return f"`{repr(value) if plain else spec(value)}`"


def broken(text: str) -> str:
    """Return a long call broken into lines that fit a narrow screen."""
    if len(text) <= 72:
        return text
    name, inside = text.split("(", 1)
    lines = [""]
    for word in re.split(r", (?=\w+(?:=|,|\)$|$))", inside[:-1]):
        if len(lines[-1]) + len(word) > 66:
            lines.append("")
        lines[-1] += f"{word}, "
    return f"{name}(\n" + "\n".join(f"    {line.rstrip()}" for line in lines) + "\n)"


def prose(text: str) -> str:
    """Return docstring text as Markdown: lines joined, paragraphs kept, special characters escaped."""
    joined = "\n\n".join(" ".join(block.split()) for block in text.split("\n\n"))
    pieces = re.split(r"(`[^`]*`)", joined)
    return "".join(one if one.startswith("`") else re.sub(r"([*<\[])", r"\\\1", one) for one in pieces)


def cell(text: str) -> str:
    return prose(text).replace("|", "\\|").replace("\n\n", " ")


def typeset(text: str) -> str:
    """Return a formula of a docstring as HTML with indices and powers set; the formula itself is not changed."""
    joined = " ".join(text.split())
    ends = [found.end() for found in re.finditer("; ", joined) if _is_outside(joined[: found.end()])]
    return "<br>".join(_set(joined[start:end].strip()) for start, end in zip([0, *ends], [*ends, len(joined)]))


def _is_outside(text: str) -> bool:
    """Whether all brackets are closed again."""
    return all(text.count(opening) == text.count(closing) for opening, closing in ("()", "[]"))


def _set(text: str) -> str:
    out, at = "", 0
    while at < len(text):
        if code := re.match(r"`([^`]*)`", text[at:]):
            out, at = f"{out}<code>{escape(code[1])}</code>", at + code.end()
        elif word := re.match(r"[A-Za-z]+", text[at:]):
            out += GREEK.get(word[0], word[0])
            at += word.end()
            low = re.match(r"_(\{[^}]*\}|\([^()]*\)|[A-Za-z0-9]{1,4}(?![A-Za-z0-9_]))", text[at:])
            if low and (len(word[0]) <= 3 or low[1][0] in "{(1234567890" or word[0] in ("mean", "softmax")):
                out += f"<sub>{_set(low[1].strip('{}()'))}</sub>"
                at += low.end()
        elif text[at] == "_" and (low := re.match(r"_([a-z]{1,2})\b", text[at:])):
            out, at = f"{out}<sub>{low[1]}</sub>", at + low.end()
        elif text[at] == "^":
            end = _power(text, at + 1)
            inner = text[at + 1 : end]
            whole = inner.startswith("(") and _closing(inner, 0) == len(inner)
            out, at = f"{out}<sup>{_set(inner[1:-1] if whole else inner)}</sup>", end
        else:
            sign = next((s for s in SIGNS if text.startswith(s, at)), text[at])
            out, at = out + SIGNS.get(sign, escape(sign, quote=False)), at + len(sign)
    return out


def _power(text: str, at: int) -> int:
    """Return the end of the exponent that begins here: a bracket, or a word with its index and its own brackets."""
    if text[at] == "(":
        return _closing(text, at)
    if text[at] == "<":
        return text.index(">", at) + 1
    end = at + re.match(r"-?(?:[A-Za-z]+(?:_[A-Za-z0-9]+)?|[0-9.]*)", text[at:]).end()
    named = text[end - 1 : end].isalpha()
    return _closing(text, end) if named and text[end : end + 1] == "(" else end


def _closing(text: str, at: int) -> int:
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place + 1
    return len(text)


def names_page(registry: str, title: str, what: str, without: Collection[str] = ()) -> str:
    return f"# {title}\n\n{NOTE}\n\n{what}\n\n{table(but(entries(registry), without))}\n"


def table(lines: dict[str, str]) -> str:
    return "\n".join(
        ["| name | what it is |", "|---|---|", *(f"| `{name}` | {cell(line)} |" for name, line in lines.items())]
    )


def metrics_page(without: Collection[str] = ()) -> str:
    return f"""# Metrics

{NOTE}

`--metrics R@1 MAP@R NMI`: what is measured. k and x are numbers of yours, as in `R@10` and `TAR@FAR=0.001`.
[Evaluation](../evaluation.md) defines each, [parity](../parity.md) compares them with other libraries.

## Of each query

Six rankings for one query, whose class has four others, and the value of each metric. In the last ranking the four are
at ranks 97 to 100.

![what rankings score](metrics.svg)

{table(but(PER_QUERY, without))}

## Of a whole set

{table(but(SET_NAMES, without))}
"""
