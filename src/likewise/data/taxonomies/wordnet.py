"""A class tree from WordNet for any class names: the ancestors of a class are the synsets from the root down to its own."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from likewise.core.errors import LikewiseError

BIRD_SYNONYMS: dict[str, str] = {
    "flycatcher": "New_World_flycatcher", "warbler": "New_World_warbler", "sparrow": "New_World_sparrow",
    "oriole": "New_World_oriole", "jay": "New_World_jay", "grackle": "crow_blackbird", "lark": "n01527617",
    "European_Goldfinch": "Carduelis_carduelis", "Tree_Sparrow": "Spizella_arborea", "Rock_Wren": "Salpinctes_obsoletus",
    "Gadwall": "dabbling_duck", "Sayornis": "phoebe", "Geococcyx": "roadrunner", "Green_Violetear": "hummingbird",
}  # fmt: skip
"""`extra` for the names of CUB-200-2011: American birds whose words first mean another bird, and names not in WordNet."""

WORDNET_FOLDERS = ("/usr/share/wordnet", "/usr/share/wordnet-3.0/dict", "/usr/local/WordNet-3.0/dict")
"""Folders that are searched for the WordNet files."""


@dataclass(frozen=True, eq=False)
class Nouns:
    """The nouns of WordNet. The number of a synset is its offset in data.noun.

    `senses` maps a word, in lower-case letters and digits only, to its synsets, the most frequent sense first.
    """

    senses: Callable[[str], list[int]]
    synset: Callable[[int], tuple[str, list[int]]]  # number -> its first word, and its hypernyms


def build(
    names: Iterable[str],
    root: str,
    wordnet: str | Nouns | None = None,
    extra: dict[str, str | tuple[str, ...]] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Return class name -> its ancestors from the root down to its own synset.

    A depth-first search goes up from every sense of a name, and the first path that reaches the root is used; a crane is thus
    below bird or below machine, depending on the root. Punctuation between words is ignored, and a missing possessive s is tried;
    a name that is not found is placed below the synset of its last word (Laysan_Albatross: albatross).

    Paper: Barbany et al., ProcSim, WACV 2024, whose authors placed missing names by hand and published no table.

    Args:
        names: names of the classes.
        root: a word in its first sense, or a synset such as n02958343.
        wordnet: a folder with index.noun and data.noun, or "nltk". None: `WORDNET_FOLDERS`, then NLTK.
        extra: for names, or last words of names, that are not in WordNet or have another first sense: a synonym, a synset, or
            the ancestors below the root. `BIRD_SYNONYMS` is such a table.
    """
    nouns = wordnet if isinstance(wordnet, Nouns) else open_wordnet(wordnet)
    goal = next(iter(_senses(nouns, root)), None)
    if goal is None:
        raise LikewiseError(
            f"wordnet: the root must be a noun that WordNet knows, got '{root}'; try a more common word"
        )
    table = {_plain(name): value for name, value in (extra or {}).items()}
    tree, missing = {}, []
    for name in names:
        for word in _readings(name, table):
            path = (nouns.synset(goal)[0], *word) if isinstance(word, tuple) else _place(nouns, word, goal)
            if path:
                tree[name] = path
                break
        else:
            missing.append(name)
    if missing:
        raise LikewiseError(
            f"wordnet: every class must be below '{root}' in WordNet, but {len(missing)} are not: {', '.join(missing[:5])}"
            f"{', ...' if len(missing) > 5 else ''}; add synonyms in `extra`, or write the tree to a file"
        )
    return tree


def open_wordnet(where: str | None = None) -> Nouns:
    """Return the nouns of WordNet from its own files or, if there are none, from NLTK."""
    if where is not None and where != "nltk":
        return read_files(Path(where).expanduser())
    for folder in (os.environ.get("WNSEARCHDIR", ""), *WORDNET_FOLDERS) if where is None else ():
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
    """Read the nouns of WordNet from the files index.noun and data.noun of a folder."""
    try:
        lines, data = (folder / "index.noun").read_text("utf-8").splitlines(), (folder / "data.noun").read_bytes()
    except OSError as error:
        raise LikewiseError(
            f"wordnet: {error.filename} cannot be read ({error.strerror}); pass the folder that holds it"
        ) from None
    index = defaultdict(list)
    for line in lines:
        if not line.startswith(" "):  # the licence is indented
            words = line.split()
            index[_plain(words[0])] += map(int, words[-int(words[2]) :])

    def synset(number: int) -> tuple[str, list[int]]:
        words = data[number : data.find(b"\n", number)].decode().partition("|")[0].split()
        if words[:1] != [f"{number:08d}"]:
            raise LikewiseError(
                f"wordnet: data.noun has no synset {number:08d}; use index.noun and data.noun of one release"
            )
        # after number, file, kind, count of words, words, count of pointers
        pointers = words[5 + 2 * int(words[3], 16) :]
        above = [int(pointers[i + 1]) for i in range(0, len(pointers) - 3, 4) if pointers[i] in ("@", "@i")]
        return words[4], above

    return Nouns(lambda word: list(index.get(word, ())), synset)


def through_nltk() -> Nouns:
    from nltk.corpus import wordnet  # pyright: ignore[reportMissingImports]

    index = defaultdict(list)
    for lemma in wordnet.all_lemma_names("n"):
        index[_plain(lemma)].append(lemma)

    def synset(number: int) -> tuple[str, list[int]]:
        entry = wordnet.synset_from_pos_and_offset("n", number)
        above = entry.hypernyms() + entry.instance_hypernyms()
        return entry.lemma_names()[0], [one.offset() for one in above]

    return Nouns(
        lambda word: [s.offset() for lemma in index.get(word, ()) for s in wordnet.synsets(lemma, "n")], synset
    )


def _plain(word: str) -> str:
    """Return a word without punctuation, in lower case: Chuck-will's-widow -> chuckwillswidow."""
    return "".join(letter for letter in word.casefold() if letter.isalnum())


def _senses(nouns: Nouns, word: str) -> list[int]:
    return [int(word[1:])] if re.fullmatch(r"n\d{8}", word) else nouns.senses(_plain(word))


def _readings(name: str, table: dict[str, str | tuple[str, ...]]) -> Iterator[str | tuple[str, ...]]:
    """Yield the words or ancestors to look up for a class name, the most likely first."""
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
    """Return the words from the goal down to the first sense of a word that is below the goal; None if no sense is."""
    for sense in _senses(nouns, word):
        path = _climb(nouns, sense, goal)
        if path:
            return tuple(nouns.synset(number)[0] for number in path)
    return None


def _climb(nouns: Nouns, number: int, goal: int) -> list[int]:
    """Return the first path from the goal down to a synset, both included; an empty list if there is none."""
    if number == goal:
        return [goal]
    for above in nouns.synset(number)[1]:
        path = _climb(nouns, above, goal)
        if path:
            return [*path, number]
    return []
