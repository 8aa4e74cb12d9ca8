"""A class tree from WordNet, for anybody's class names: each class stands below its own synset, and that below the root."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from likewise.errors import LikewiseError

BIRDS: dict[str, str] = {
    "flycatcher": "New_World_flycatcher", "warbler": "New_World_warbler", "sparrow": "New_World_sparrow",
    "oriole": "New_World_oriole", "jay": "New_World_jay", "grackle": "crow_blackbird", "lark": "n01527617",
    "European_Goldfinch": "Carduelis_carduelis", "Tree_Sparrow": "Spizella_arborea", "Rock_Wren": "Salpinctes_obsoletus",
    "Gadwall": "dabbling_duck", "Sayornis": "phoebe", "Geococcyx": "roadrunner", "Green_Violetear": "hummingbird",
}  # fmt: skip
"""`extra` for the names of CUB-200-2011: American birds whose words mean another bird first, and names WordNet lacks."""

FOLDERS = ("/usr/share/wordnet", "/usr/share/wordnet-3.0/dict", "/usr/local/WordNet-3.0/dict")


@dataclass(frozen=True, eq=False)
class Nouns:
    """WordNet's nouns. A synset is known by its number, the offset in data.noun."""

    senses: Callable[[str], list[int]]  # spelling in small letters and figures alone -> synsets, the usual sense first
    synset: Callable[[int], tuple[str, list[int]]]  # -> its first word, and the synsets above it


def build(
    names: Iterable[str],
    root: str,
    wordnet: str | Nouns | None = None,
    extra: dict[str, str | tuple[str, ...]] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Class name -> its ancestors from the root down to its own synset.

    A depth-first search climbs from every sense of a name, and the first way that reaches the root wins; so a crane stands
    below bird or below machine, as the root wants. Names match whatever stands between their words, with a possessive s
    where one is missing; a name that is not found stands below what its last word means (Laysan_Albatross: albatross).

    Paper: Barbany et al., ProcSim, WACV 2024, whose authors placed missing names by hand and published no table.

    Args:
        names: of the classes.
        root: a word, meant in its first sense, or a synset such as n02958343.
        wordnet: a folder with index.noun and data.noun, or "nltk". By default the usual folders are tried, then NLTK.
        extra: for names, or last words of names, that WordNet lacks or that mean something else first: another word for
            it or a synset; or, outright, its ancestors below the root. `BIRDS` is such a table.
    """
    nouns = wordnet if isinstance(wordnet, Nouns) else open_wordnet(wordnet)
    goal = next(iter(_senses(nouns, root)), None)
    if goal is None:
        raise LikewiseError(f"wordnet: the root must be a noun that WordNet knows, got '{root}'; try a plainer word")
    table = {_plain(name): value for name, value in (extra or {}).items()}
    tree, missing = {}, []
    for name in names:
        for word in _readings(name, table):
            found = (nouns.synset(goal)[0], *word) if isinstance(word, tuple) else _place(nouns, word, goal)
            if found:
                tree[name] = found
                break
        else:
            missing.append(name)
    if missing:
        raise LikewiseError(
            f"wordnet: {len(missing)} classes are no kind of '{root}' that WordNet knows: {', '.join(missing[:5])}"
            f"{', ...' if len(missing) > 5 else ''}; say in `extra` what they are, or write the tree to a file"
        )
    return tree


def open_wordnet(where: str | None = None) -> Nouns:
    """WordNet from its own files or from NLTK, whichever is there."""
    if where is not None and where != "nltk":
        return read_files(Path(where).expanduser())
    for folder in (os.environ.get("WNSEARCHDIR", ""), *FOLDERS) if where is None else ():
        if folder and os.path.isfile(os.path.join(folder, "index.noun")):
            return read_files(Path(folder))
    try:
        return through_nltk()
    except (ImportError, LookupError):
        raise LikewiseError(
            "wordnet: neither its files nor NLTK's copy were found; install the package wordnet-base, set WNSEARCHDIR to the "
            "folder with index.noun, or install nltk and run nltk.download('wordnet')"
        ) from None


def read_files(folder: Path) -> Nouns:
    """From the plain files index.noun and data.noun."""
    try:
        lines, data = (folder / "index.noun").read_text("utf-8").splitlines(), (folder / "data.noun").read_bytes()
    except OSError as error:
        raise LikewiseError(f"wordnet: {error.filename} cannot be read ({error.strerror}); give its folder") from None
    index = defaultdict(list)
    for line in lines:
        if not line.startswith(" "):  # the licence is indented
            words = line.split()
            index[_plain(words[0])] += map(int, words[-int(words[2]) :])

    def synset(number: int) -> tuple[str, list[int]]:
        words = data[number : data.find(b"\n", number)].decode().partition("|")[0].split()
        if words[:1] != [f"{number:08d}"]:
            raise LikewiseError(f"wordnet: data.noun has no synset {number:08d}; take both files from one release")
        pointers = words[
            5 + 2 * int(words[3], 16) :
        ]  # after number, file, kind, count of words, words, count of pointers
        above = [int(pointers[i + 1]) for i in range(0, len(pointers) - 3, 4) if pointers[i] in ("@", "@i")]
        return words[4], above

    return Nouns(lambda word: list(index.get(word, ())), synset)


def through_nltk() -> Nouns:
    from nltk.corpus import wordnet  # pyright: ignore[reportMissingImports]

    index = defaultdict(list)
    for lemma in wordnet.all_lemma_names("n"):
        index[_plain(lemma)].append(lemma)

    def synset(number: int) -> tuple[str, list[int]]:
        found = wordnet.synset_from_pos_and_offset("n", number)
        above = found.hypernyms() + found.instance_hypernyms()
        return found.lemma_names()[0], [one.offset() for one in above]

    return Nouns(
        lambda word: [s.offset() for lemma in index.get(word, ()) for s in wordnet.synsets(lemma, "n")], synset
    )


def _plain(word: str) -> str:
    """Chuck-will's-widow -> chuckwillswidow, so that it does not matter how a name is punctuated."""
    return "".join(letter for letter in word.casefold() if letter.isalnum())


def _senses(nouns: Nouns, word: str) -> list[int]:
    return [int(word[1:])] if re.fullmatch(r"n\d{8}", word) else nouns.senses(_plain(word))


def _readings(name: str, table: dict[str, str | tuple[str, ...]]) -> Iterator[str | tuple[str, ...]]:
    """What a class name may mean, the likeliest first."""
    words = re.split(r"[\W_]+", name.strip())
    last = _plain(words[-1])
    if _plain(name) in table:
        yield table[_plain(name)]
        return
    yield name
    for end in range(1, len(words)):
        yield "".join(words[:end]) + "s" + "".join(words[end:])
    yield table.get(last, last)


def _place(nouns: Nouns, word: str, goal: int) -> tuple[str, ...] | None:
    """The words from the goal down to the first sense of a word that lies below it."""
    for sense in _senses(nouns, word):
        way = _climb(nouns, sense, goal)
        if way:
            return tuple(nouns.synset(number)[0] for number in way)
    return None


def _climb(nouns: Nouns, number: int, goal: int) -> list[int]:
    """The first way found from the goal down to a synset, both included; empty: there is none."""
    if number == goal:
        return [goal]
    for above in nouns.synset(number)[1]:
        way = _climb(nouns, above, goal)
        if way:
            return [*way, number]
    return []
