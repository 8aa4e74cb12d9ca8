"""Trees from WordNet: from its files in small, and, where it is installed, all the birds of the shipped tree."""

import pytest
from likewise.types import LikewiseError

from likewise.data.taxonomies import taxonomy
from likewise.data.taxonomies.wordnet import BIRD_SYNONYMS, build, open_wordnet, read_files

SYNSETS = {
    # key: (words, keys above)
    "thing": (["thing"], []),
    "animal": (["animal"], ["thing"]),
    "bird": (["bird"], ["animal"]),
    "meat": (["bird", "fowl"], ["thing"]),
    "wader": (["wading_bird", "wader"], ["bird"]),
    "crane": (["crane"], ["wader"]),
    "lift": (["crane"], ["thing"]),
    "gull": (["gull", "sea_gull"], ["bird"]),
    "herring": (["herring_gull", "Larus_argentatus"], ["gull"]),
    "wilson": (["Wilson's_petrel"], ["bird"]),
    "roast": (["roast_gull", "gull_roast"], ["meat"]),
    "pet": (["pet_crane"], ["lift", "crane"]),  # two ways up, the second leads to bird
}
SENSES = {"crane": ["lift", "crane"], "bird": ["bird", "meat"], "wilson's_petrel": ["wilson"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dozen synsets in WordNet's own format."""
    folder = tmp_path_factory.mktemp("dict")
    head = "  1 This is a licence.\n"

    def line(key, number):
        words, above = SYNSETS[key]
        spelled = " ".join(f"{word} 0" for word in words)
        pointers = "".join(f"{'@i' if key == 'wilson' else '@'} {number[up]:08d} n 0000 " for up in above)
        other = f"~ {number['thing']:08d} n 0000 "  # a pointer of another kind
        return f"{number[key]:08d} 05 n {len(words):02x} {spelled} {len(above) + 1:03d} {pointers}{other}| what it is\n"

    number, place = dict.fromkeys(SYNSETS, 0), len(head)
    for key in SYNSETS:
        number[key] = place
        place += len(line(key, number))
    (folder / "data.noun").write_text(head + "".join(line(key, number) for key in SYNSETS))
    senses = {word.lower(): [key] for key, (words, _) in SYNSETS.items() for word in words} | SENSES
    index = "".join(
        f"{word} n {len(keys)} 1 @ {len(keys)} 0 {' '.join(f'{number[k]:08d}' for k in keys)}  \n"
        for word, keys in sorted(senses.items())
    )
    (folder / "index.noun").write_text(head + index)
    return str(folder), number


def test_the_sense_that_reaches_the_root_wins(folder):
    where, _ = folder
    assert build(["crane"], "bird", where) == {"crane": ("bird", "wading_bird", "crane")}
    assert build(["crane"], "thing", where) == {"crane": ("thing", "crane")}  # the usual sense
    assert build(["Pet crane"], "bird", where) == {"Pet crane": ("bird", "wading_bird", "crane", "pet_crane")}


def test_how_names_are_matched(folder):
    where, _ = folder
    gull = ("bird", "gull", "herring_gull")
    for name in ("Herring_Gull", "herring-gull", "HerringGull", "larus argentatus"):
        assert build([name], "bird", where) == {name: gull}
    assert build(["Wilson_Petrel"], "bird", where) == {"Wilson_Petrel": ("bird", "Wilson's_petrel")}
    assert build(["Laysan_Gull"], "bird", where) == {"Laysan_Gull": ("bird", "gull")}  # by its last word
    assert build(["wader"], "bird", where) == {"wader": ("bird", "wading_bird")}
    assert build(["bird"], "bird", where) == {"bird": ("bird",)}


def test_extra_says_what_wordnet_does_not(folder):
    where, number = folder
    extra = {
        "Gull": "crane",
        "Sayornis": "Larus_argentatus",
        "Kite": ("toy", "flyer"),
        "Roc": f"n{number['wader']:08d}",
    }
    assert build(["Laysan_Gull", "Sayornis", "Kite", "Roc", "Herring_Gull"], "bird", where, extra) == {
        "Laysan_Gull": ("bird", "wading_bird", "crane"),
        "Sayornis": ("bird", "gull", "herring_gull"),
        "Kite": ("bird", "toy", "flyer"),
        "Roc": ("bird", "wading_bird"),
        "Herring_Gull": ("bird", "gull", "herring_gull"),  # has a meaning of its own, so its last word is not asked
    }


def test_bad_input(folder, tmp_path, monkeypatch, refused):
    where, _ = folder
    refused(
        (lambda: build(["Unicorn", "gull", "lift"], "bird", where), "2 are not: Unicorn, lift"),
        (lambda: build(["gull"], "brid", where), "the root must be .* got 'brid'"),
        (lambda: read_files(tmp_path), r"index\.noun cannot be read"),
    )
    (tmp_path / "index.noun").write_text("gull n 1 0 1 0 00000007  \n")
    (tmp_path / "data.noun").write_text("nothing of the kind\n")
    with pytest.raises(LikewiseError, match=r"no synset 00000007"):
        build(["gull"], "gull", str(tmp_path))
    monkeypatch.setenv("WNSEARCHDIR", where)
    assert taxonomy("wordnet:bird", ["gull"]) == {"gull": ("bird", "gull")}
    monkeypatch.delenv("WNSEARCHDIR")
    monkeypatch.setattr("likewise.data.taxonomies.wordnet.WORDNET_FOLDERS", ())
    monkeypatch.setitem(__import__("sys").modules, "nltk.corpus", None)
    with pytest.raises(LikewiseError, match="neither its files nor NLTK's"):
        open_wordnet()


def test_the_shipped_birds_come_out_again():
    try:
        nouns = open_wordnet()
    except LikewiseError:
        pytest.skip("WordNet is not installed here (wordnet-base, or nltk with its data)")
    birds = taxonomy("cub200")
    assert build(birds, "bird", nouns, BIRD_SYNONYMS) == birds
