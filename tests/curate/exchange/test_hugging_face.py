"""Hugging Face `datasets`: an imagefolder that the package loads, 10,000 rows there and back, and our own reader of it."""

import csv

import pytest
from exchange_rows import PNG, write_audit
from likewise.errors import LikewiseError

import likewise
from likewise.curate.exchange.transfer import of_audit
from likewise.data import load

datasets = pytest.importorskip("datasets", reason="needs likewise[datasets]")


def load_folder(folder, tmp_path):
    """Return the splits as the package itself loads them, with the bytes of the images."""
    found = datasets.load_dataset("imagefolder", data_dir=str(folder), cache_dir=str(tmp_path / "cache"))
    return found.cast_column("image", datasets.Image(decode=False))


@pytest.mark.slow
def test_10000_rows_there_and_back(tmp_path):
    audit = write_audit(tmp_path, images=True)
    assert likewise.send(audit, "hugging-face", tmp_path / "hf").rows == 10_000
    sent = {line["row"]: line for line in of_audit(audit, None).lines()}
    splits = load_folder(tmp_path / "hf", tmp_path)
    assert {name: len(split) for name, split in splits.items()} == {"train": 3334, "validation": 3333, "test": 3333}
    for split in splits.values():
        for line in split:
            image = line.pop("image")
            content = image["bytes"]
            if content is None:
                with open(image["path"], "rb") as file:
                    content = file.read()
            assert content == PNG + str(line["row"]).encode()
            assert line == sent[line["row"]]
    got = likewise.receive(tmp_path / "hf", "hugging-face", tmp_path / "back.csv")
    assert (got.rows, got.kind) == (10_000, "labels")
    with open(tmp_path / "back.csv", newline="", encoding="utf-8") as text:
        for line in csv.DictReader(text):
            cells = {name: "" if cell is None else str(cell) for name, cell in sent[int(line["row"])].items()}
            assert line == cells


def test_our_reader_reads_it(tmp_path):
    audit = write_audit(tmp_path, n=54, images=True)
    likewise.send(audit, "hugging-face", tmp_path / "hf")
    items = load(f"hf:{tmp_path / 'hf'}")
    sent = of_audit(audit, None)
    given = sorted(zip(sent.columns["label"], sent.columns["split"]))
    assert sorted((items.class_name[y], str(split)) for y, split in zip(items.y, items.split)) == given


def test_rows_without_a_split_are_one_folder(tmp_path):
    audit = write_audit(tmp_path, n=12, images=True, split=False)
    likewise.send(audit, "hugging-face", tmp_path / "hf", top=5)
    (split,) = load_folder(tmp_path / "hf", tmp_path).values()
    assert split["row"][:1] == [3] and set(split["split"]) == {""} and len(split) == 5


def test_bad_folders(tmp_path, subtests):
    audit = write_audit(tmp_path, n=3, images=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x.txt").write_text("mine")
    with pytest.raises(LikewiseError, match="--out must be a new or empty"):
        likewise.send(audit, "hugging-face", tmp_path / "full")
    for name, reason in {
        "none": "hugging-face: the source must be a folder",
        "full": "must be a folder of images with metadata.parquet, .jsonl or .csv, got none",
    }.items():
        with subtests.test(name), pytest.raises(LikewiseError, match=reason):
            likewise.receive(tmp_path / name, "hugging-face", tmp_path / "back.csv")
    next((tmp_path / "images").iterdir()).unlink()
    with pytest.raises(LikewiseError, match="cannot write .*No such file"):
        likewise.send(audit, "hugging-face", tmp_path / "hf")
    assert {file.name for file in tmp_path.iterdir()} == {"audit", "images", "full"}
