"""The language of the project: plain words in docstrings, comments, messages and docs; constants named after what they hold.

Findings are listed per package: `./test -n 0 tests/test_language.py -k losses`.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

HOME = Path(__file__).resolve().parent.parent
SOURCE = HOME / "src" / "likewise"
PACKAGES = [*sorted(p.name for p in SOURCE.iterdir() if p.is_dir() and (p / "__init__.py").exists()), "root"]
PAGES = [HOME / "README.md", HOME / "CONTRIBUTING.md", HOME / "SECURITY.md", *sorted((HOME / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if page.name != "glossary.md"]

OLD_WORDS = {
    "a person or 'none' for a data item": r"nobody|somebody|whom|whoever|those who|who (asks?|answers?|tells?)",
    "a verb of speech for data flow": r"tells?|telling|told|says?|said|saying|asks|asked|is silent|in a word",
    "a vague count": r"so many|so much|so long as|as far as there (is|are)|however many",
    "a vague place": r"(stand|stands|stood|standing)(?! for| alone|-alone)|at hand|on the way|somewhere else",
    "a vague verb": r"worked out|works? out|goes on|go on|went on|going on|makes of|made of it|is handed|are handed|anew",
    "a vague noun": r"slip|riddle|doors?|the others'|one a (line|row|sample|query|class)|a (line|number|file) a",
    "trust, belief or doubt for a number": r"believed?|believes|believing|doubts?|doubted|doubtful|trusted|distrust",
    "a court for a computation": r"judges?|judged|judging|judgement|verdicts?|acquit(s|ted)?|accused?",
}
"""What is wrong with a word -> the words, as a regular expression."""

ALLOWED = (
    r"people can trust",  # the motto
    r"spoil_labels",  # a public name
    r"trusted (code|source|file|machine|network|people|person)",  # security
    r"\bsay\(|\bsay\b[=:]|`say`",  # the argument that takes messages
    r"[Jj]udged? (pairs|triplets|by (people|a person|persons))",  # human judgements
    r"human judge",
)
"""Real uses of these words, as regular expressions."""

BOUND_WORDS = re.compile(
    "MAX|MIN|LIMIT|SIZE|COUNT|SECONDS|BYTES|PIXELS|STEPS|EPOCHS|TOLERANCE|EPS|EPSILON|THRESHOLD|RATE|FACTOR|FRACTION|SHARE|SCALE"
    "|SIDE|BINS|BITS|ITERATIONS|ROUNDS|TRIES|ATTEMPTS|RESAMPLES|THREADS|WORKERS|PORT|SEED|VERSION|FORMAT|LEVELS?|WIDTH|HEIGHT"
    "|DEPTH|MOMENTUM|TEMPERATURE|WEIGHT|PERPLEXITY|RADIUS|DISTANCE|PROBABILITY|BUDGET|CHUNK|BLOCK|BATCH|TILE|STRIDE|ROWS|LINES"
    "|LETTERS|DIGITS|POINTS|SAMPLES|CLASSES|NEIGHBOURS|RESULTS|FILES|PAGES|ITEMS|OPSET|DPI|INFINITY|UNIT|QUALITY|LENGTH"
    "|CAPACITY|AREA|GAIN|AGE|CODE|OFFSET|BASE|LOG2"
)
"""Words of which the name of a number has one: what it bounds or counts."""

SINGLE_WORDS = re.compile("COMMANDS|USAGE|SPECS|NAMES|SECTIONS?|FORMAT|VERSION|METRICS|REGISTRIES|TEMPLATES|COLOURS")
"""Constants that are clear as one word."""


class Text(NamedTuple):
    """A piece of prose in a file."""

    place: str
    text: str


@pytest.mark.parametrize("package", PACKAGES)
def test_the_source_uses_plain_words(package):
    found = [line for file in files_of(package) for text in prose_of(file) for line in old_words(text)]
    assert not found, "\n".join(found)


def test_the_docs_use_plain_words():
    found = [line for page in PAGES for text in paragraphs(page) for line in old_words(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_constants_are_named_after_what_they_hold(package):
    found = [line for file in files_of(package) for line in odd_constants(file)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_source_has_no_name_that_the_glossary_rules_out(package):
    names, _ = ruled_out()
    found = []
    for file in files_of(package):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            name = {ast.arg: "arg", ast.ClassDef: "name", ast.FunctionDef: "name", ast.Attribute: "attr"}.get(
                type(node)
            )
            if name and getattr(node, name) in names:
                found.append(f"{file.relative_to(HOME)}:{node.lineno}: {getattr(node, name)}")  # pyright: ignore
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "Nobody is to be compared with.",
        "What the run says of itself.",
        "one a line",
        "The label is believed.",
        "It is told.",
    ],
)
def test_the_old_dialect_is_found(sentence):
    assert old_words(Text("here:1", sentence))


def test_a_constant_named_by_mood_is_found(tmp_path):
    (tmp_path / "x.py").write_text("DEAR = 2**32\nFAINT = 1e-19\nMAX_ROWS = 3\nGOOD_ROWS = 3\nMAX = 3\nODD_MOOD = 7\n")
    assert [line.split()[1] for line in odd_constants(tmp_path / "x.py")] == ["DEAR", "FAINT", "MAX", "ODD_MOOD"]


def test_the_glossary_rules_out_names_and_words():
    names, words = ruled_out()
    assert {"Trust", "Verdict", "shelf"} <= names and {"doubted", "believed", "picture"} <= words


def files_of(package: str) -> list[Path]:
    """Return the Python files of a package of likewise; "root" is its own folder."""
    return sorted(SOURCE.glob("*.py")) if package == "root" else sorted((SOURCE / package).rglob("*.py"))


@cache
def ruled_out() -> tuple[set[str], set[str]]:
    """Return the glossary's last column: names (in backticks), and words of prose."""
    rows = re.findall(r"^\|.*\|([^|]*)\|$", (HOME / "docs" / "glossary.md").read_text("utf-8"), re.M)
    entries = {entry.strip() for row in rows for entry in row.split(",")} - {"", "do not use", "---"}
    return {e.strip("`") for e in entries if e[0] == "`"}, {e for e in entries if e[0] != "`"}


def old_words(text: Text) -> list[str]:
    """Return one line for each word of the old dialect, or that the glossary rules out, in a text."""
    plain = text.text
    for allowed in ALLOWED:
        plain = re.sub(allowed, " ", plain)
    plain = re.sub(r"`[^`]*`", " ", plain)  # names in code
    patterns = OLD_WORDS | {"the glossary has another word": "|".join(sorted(ruled_out()[1]))}
    return [
        f"{text.place}: '{match[0]}' ({why}) in: {' '.join(plain[max(0, match.start() - 40) : match.end() + 40].split())}"
        for why, pattern in patterns.items()
        for match in re.finditer(rf"(?i)(?<![\w.\-])({pattern})(?![\w\-])", plain)
    ]


def prose_of(file: Path) -> Iterator[Text]:
    """Yield the docstrings, comments and messages of a file: every comment, and every string of two words or more."""
    place = str(file.relative_to(HOME))
    for token in tokenize.generate_tokens(io.StringIO(file.read_text("utf-8")).readline):
        text = token.string
        if token.type == tokenize.STRING:
            text = re.sub(r"^\w*(\"\"\"|'''|\"|')|(\"\"\"|'''|\"|')$", "", text)
            if text[:1] in "./#<" or len(text.split()) < 2:
                continue
            text = re.sub(r"\{[^{}]*\}", " ", text)  # values of an f-string
        elif token.type not in (tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            continue
        yield Text(f"{place}:{token.start[0]}", text)


def paragraphs(page: Path) -> Iterator[Text]:
    """Yield the lines of a page that are prose: no code blocks."""
    text = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), page.read_text("utf-8"), flags=re.S)
    for number, line in enumerate(text.splitlines(), 1):
        yield Text(f"{page.relative_to(HOME)}:{number}", re.sub(r"\]\([^)]*\)|<[^>]*>", " ", line))


def odd_constants(file: Path) -> Iterator[str]:
    """Yield the constants of a file that are one word, unless that word is clear, and numbers whose name bounds nothing."""
    for node in ast.parse(file.read_text("utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for name in (t.id for target in targets for t in ast.walk(target) if isinstance(t, ast.Name)):
            if not re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name):
                continue
            words = name.strip("_").split("_")
            is_number = isinstance(node, ast.Assign) and is_arithmetic(node.value)
            if len(words) == 1 and not SINGLE_WORDS.fullmatch(words[0]):
                yield f"{file.name}:{node.lineno}: {name} is one word; name what it holds or bounds"
            elif is_number and not any(map(BOUND_WORDS.fullmatch, words)):
                yield f"{file.name}:{node.lineno}: {name} is a number; its name must have the unit or bound: {name}_SECONDS"


def is_arithmetic(node: ast.expr) -> bool:
    """Whether an expression is a number written out."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.BinOp):
        return is_arithmetic(node.left) and is_arithmetic(node.right)
    return isinstance(node, ast.UnaryOp) and is_arithmetic(node.operand)
