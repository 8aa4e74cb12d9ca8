"""Print advice about the layout and the prose of the source: tools/advice.py [WORD OF A PATH].

Nothing here is a rule: `tools/check.py` prints the counts, and passes. A file or function that is one thing may be long.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
SOURCE = HOME / "src" / "likewise"
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_ARGUMENTS = 10

UNCLEAR_WORDS = {
    "a person or 'none' for a data item": r"nobody|somebody|whom|whoever|those who|who (asks?|answers?|tells?)",
    "a verb of speech for data flow": r"tells?|telling|told|asks|asked|is silent",
    "a vague count": r"so many|so much|so long as|as far as there (is|are)",
    "belief or judgement for a number": r"believed|believes|doubts?|doubted|verdicts?|acquit(s|ted)?|accused?",
}
"""What is wrong with a word -> the words, as a regular expression; the glossary's last column has more."""


def advice(file: Path) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) for everything in a file that a reader may find hard."""
    source, place = file.read_text("utf-8"), file.relative_to(HOME)
    lines = source.count("\n")
    if lines > MAX_FILE_LINES:
        yield "long file", f"{place}: {lines} lines; is it one thing?"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from advice_on_function(node, f"{place}:{node.lineno}: {node.name}")
    unclear = UNCLEAR_WORDS | {"the glossary has another word": "|".join(sorted(ruled_out()))}
    for number, text in prose(source):
        for why, pattern in unclear.items():
            for match in re.finditer(rf"(?i)(?<![\w.\-])({pattern})(?![\w\-])", text):
                yield "unclear word", f"{place}:{number}: '{match[0]}' ({why})"
    for number, line in enumerate(source.splitlines(), 1):
        if re.match(r"\s*[)\]}]+,?\s+# (?!fmt: skip|noqa|pyright|type:)", line):
            yield "comment behind a bracket", f"{place}:{number}: {line.strip()}"


def advice_on_function(node: ast.FunctionDef | ast.AsyncFunctionDef, place: str) -> Iterator[tuple[str, str]]:
    first = node.body[0]
    doc = first if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None
    lines = (node.end_lineno or 0) - node.lineno - ((doc.end_lineno or 0) - doc.lineno if doc else 0)
    if lines > MAX_FUNCTION_LINES:
        yield "long function", f"{place} has {lines} lines without its docstring"
    arguments = [
        a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs) if a.arg not in ("self", "cls")
    ]
    if len(arguments) > MAX_ARGUMENTS:
        yield "many arguments", f"{place} has {len(arguments)} arguments; can a frozen record carry some?"


def repeated_names() -> Iterator[tuple[str, str]]:
    """Yield the names of files that occur more than once."""
    files = [file for file in sorted(SOURCE.rglob("*.py")) if file.name not in ("__init__.py", "__main__.py")]
    for name, count in Counter(file.name for file in files).items():
        if count > 1:
            places = ", ".join(str(file.relative_to(SOURCE)) for file in files if file.name == name)
            yield "name of several files", f"{name}: {places}"


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every comment, and of every string of two words or more without the names in backticks."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and len(token.string.split()) > 1):
            text = re.sub(r"`[^`]*`|\{[^{}]*\}", " ", token.string)
            yield (
                token.start[0],
                re.sub(r"people can trust|trusted (code|source|file)|judged? (pairs|triplets)", " ", text),
            )


def ruled_out() -> set[str]:
    """Return the words, not the names in backticks, of the glossary's last column."""
    rows = re.findall(r"^\|.*\|([^|]*)\|$", (HOME / "docs" / "glossary.md").read_text("utf-8"), re.M)
    entries = {entry.strip() for row in rows for entry in row.split(",")} - {"", "do not use", "---"}
    return {entry for entry in entries if entry[0] != "`"}


def main(words: Sequence[str]) -> int:
    found = [*repeated_names(), *(item for file in sorted(SOURCE.rglob("*.py")) for item in advice(file))]
    for _, text in found:
        if words and any(word in text for word in words):
            print(text)
    counts = Counter(kind for kind, _ in found)
    print("advice:", ", ".join(f"{count} x {kind}" for kind, count in counts.most_common()) or "none")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
