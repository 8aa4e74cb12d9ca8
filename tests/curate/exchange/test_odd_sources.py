"""Odd inputs to `receive`, tool by tool: an error with four parts and nothing stored, or exactly the right decisions."""

import bz2
import io
import json
import lzma
import os
import re
import struct
import zipfile
import zlib
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exchange_rows import PNG
from likewise.errors import LikewiseError

import likewise
from likewise.curate.audit.read import read_findings
from likewise.curate.review.store import Store

IMAGES = ("a/0.png", "a/1.png", "a/2.png", "b/0.png", "xa/1.png", "b/2.png")
LABELS = ("owl", "owl", "owl", "wren", "wren", "wren")
OWNERS = "csv|cvat|features|hf|hugging-face|label-studio|parquet|receive|review|table"
FOUR_PARTS = re.compile(rf"^({OWNERS}): .+\b(got|but|has|is|are)\b.+(; |\? ).+", re.S)
"""Who raises it, what must hold, what came, what to do."""


@pytest.fixture
def audit(tmp_path):
    """An audit of six images in three folders, without decisions."""
    place, root = tmp_path / "audit", tmp_path / "images"
    place.mkdir()
    lines = ["row,path,label,score,state,suggested,confidence,margin,reason,split"]
    for row, (path, label) in enumerate(zip(IMAGES, LABELS)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(PNG)
        lines.append(f"{row},{path},{label},0.5,ok,,,,,train")
    (place / "audit.csv").write_text("\n".join(lines) + "\n")
    (place / "audit.json").write_text(json.dumps({"title": "b", "root": str(root), "rows": 6, "pictures": True}))
    return place


def stored(audit):
    """Return item -> choice and label; None: there is no store."""
    if not (audit / "decisions.sqlite").exists():
        return None
    with closing(Store(audit / "decisions.sqlite", read_findings(audit))) as store:
        return {d.item: (d.choice, d.label) for d in store.current_decisions()}


def check_all(subtests, audit, tool, cases, write):
    """Receive every case: a text is the reason of the error, a dict the decisions that must be stored.

    Args:
        cases: name -> (content, expected).
        write: name, content -> what to receive.
    """
    for name, (content, expected) in cases.items():
        (audit / "decisions.sqlite").unlink(missing_ok=True)
        with subtests.test(name):
            source = write(name, content)
            if isinstance(expected, str):
                with pytest.raises(LikewiseError, match=expected) as caught:
                    likewise.receive(source, tool, audit, reviewer="Ann")
                assert FOUR_PARTS.match(str(caught.value)), str(caught.value)
                assert stored(audit) is None
            else:
                likewise.receive(source, tool, audit, reviewer="Ann")
                assert stored(audit) == expected


def test_tables(audit, tmp_path, subtests):
    root = tmp_path / "images"
    wren, moved = {"1": ("relabel", "wren")}, f"{tmp_path}/elsewhere"
    both = {"0": ("relabel", "wren"), "4": ("relabel", "owl")}
    cases = {
        "labels alone": ("label\nwren\nowl\nowl\nowl\nowl\nowl\n", "must have a column row or path, got: label; name it"),
        "labels alone, one for every row": ("label\n" + "wren\n" * 6, "must have a column row or path"),
        "labels and another column": ("name,label\n0.png,wren\n", "must have a column row or path, got: name, label"),
        "rows alone": ("row,label\n1,wren\n", wren),
        "rows in another order": ("row,label\n4,owl\n0,wren\n1,owl\n", both),
        "relative paths in another order": ("path,label\nxa/1.png,owl\na/0.png,wren\n", both),
        "absolute paths": (f"path,label\n{root}/xa/1.png,owl\n{root}/a/0.png,wren\n", both),
        "paths with dots": (f"path,label\n./a/../xa/1.png,owl\n{root}//a/0.png,wren\n", both),
        "paths with backslashes": ("path,label\nxa\\1.png,owl\na\\0.png,wren\n", both),
        "both, in a moved folder": (f"row,path,label\n1,{moved}/a/1.png,wren\n", wren),
        "paths of another folder": (f"path,label\n{moved}/a/1.png,wren\n", "every path must be one image .* is none"),
        "names of files alone": ("path,label\n1.png,wren\n", "every path must be one image of the audit"),
        "an unknown path": ("path,label\na/1.png,wren\na/9.png,wren\n", "but 'a/9.png' of line 2 is none"),
        "an empty path": ("path,label\na/1.png,wren\n,wren\n", "but '' of line 2 is none"),
        "a path twice": ("path,label\na/1.png,wren\na/1.png,owl\n", "must have one line about a row, but 'Ann' has two"),
        "a path in two ways": (f"path,label\na/1.png,wren\n{root}/a/1.png,owl\n", "'Ann' has two about row 1"),
        "another image at a row": ("row,path,label\n1,a/2.png,wren\n", "row 1 must be the image of the audit, 'a/1.png'"),
        "an image with a longer name": ("row,path,label\n1,xa/1.png,wren\n", "got 'xa/1.png'; receive into"),
        "an image in a longer folder": (f"row,path,label\n1,{moved}/za/1.png,wren\n", "must be the image of the audit"),
        "a row twice": ("row,label\n1,wren\n1,owl\n", "every row must occur once, but row 1 occurs twice"),
        "a row twice, written in two ways": ("row,label\n1,wren\n01,owl\n", "row 1 occurs twice"),
        "a row twice for one reviewer": ("row,label,reviewer\n1,wren,Ann\n1,owl,\n", "but 'Ann' has two about row 1"),
        "a reviewer in two spellings": ("row,label,reviewer\n1,wren,Bo B\n1,owl, Bo  B\n", "but 'Bo B' has two"),
        "a row outside": ("row,label\n6,wren\n", "every row must be in the audit, but row 6 is not"),
        "a negative row": ("row,label\n-1,wren\n", "row must be a whole number from 0, got '-1'"),
        "a row with a fraction": ("row,label\n1.5,wren\n", "row must be a whole number from 0, got '1.5'"),
        "a row as a float": ("row,label\n1.0,wren\n", "row must be a whole number from 0, got '1.0'"),
        "a row NaN": ("row,label\nNaN,wren\n", "row must be a whole number from 0, got 'NaN'"),
        "an empty row": ("row,label\n,wren\n1,wren\n", "row must be a whole number from 0, got ''"),
        "an empty row beside a path": ("row,path,label\n,a/1.png,wren\n", "row must be a whole number from 0, got ''"),
        "a huge row": (f"row,label\n{10**30},wren\n", "row must be a whole number from 0"),
        "another digit": ("row,label\n\u0661,wren\n", "row must be a whole number from 0"),
        "a formula": ("row,label\n=1,wren\n", "row must be a whole number from 0"),
        "the label before, of another audit": ("row,label_before,label\n1,wren,owl\n", "got 'wren' as its label_before"),
        "the label before": ("row,label_before,label\n1,owl,wren\n", wren),
        "an unknown class": ("row,label\n1,wren\n2,emu\n", "must be a class of this audit, got 'emu'"),
        "an empty label": ("row,label\n1,\n", "must be a class of this audit, got ''"),
        "a label with spaces": ("row,label\n1, wren  \n", wren),
        "no change": ("row,label\n1,owl\n", "at least one decision or changed label, got none in 1 rows"),
        "an unknown choice": ("row,label,choice\n1,owl,Keep\n", "must be one of keep, .* got 'Keep'"),
        "a new label without a column choice": ("row,label,new_label\n1,owl,wren\n", "must come with a column choice"),
        "a new label without a choice": ("row,label,choice,new_label\n1,owl,,wren\n", "must have a choice beside its new"),
        "relabel to the given label": ("row,label,choice,new_label\n1,owl,relabel,owl\n", "is labelled 'owl' already"),
        "relabel to nothing": ("row,label,choice\n1,owl,relabel\n", "must be a class of this audit, got ''"),
        "another label beside a choice": ("row,label,choice\n1,wren,keep\n", "row 1 must have the label of the audit, 'owl'"),
        "a byte order mark": ("\ufeffrow,label\n1,wren\n", wren),
        "carriage returns": ("row,label\r\n1,wren\r\n", wren),
        "UTF-16": ("row,label\n1,wren\n".encode("utf-16"), "UTF-8"),
        "other bytes": (b"row,label\n1,wr\xffn\n", "must be UTF-8"),
        "a zero byte": (b"row,label\n1,wr\0en\n", "NUL|zero byte"),
        "empty": ("", "must hold a header and rows, but it is empty"),
        "a header": ("row,label\n", "must hold at least one row, but it has only a header"),
        "semicolons": ("row;label\n1;wren\n", "must be separated by commas"),
        "too many cells": ("row,label\n1,wren,x\n", "must have 2 cells like the header, got 3"),
        "an open quote": ('row,label\n1,"wren\n', "is not CSV"),
        "a column twice": ("row,label,label\n1,wren,owl\n", "has the column 'label' more than once"),
        "an archive": (b"PK\x03\x04" + bytes(range(256)), "UTF-8"),
    }  # fmt: skip

    def write(name, content):
        file = tmp_path / "t.csv"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    check_all(subtests, audit, "csv", cases, write)
    check_all(subtests, audit, "csv", {"a folder": (None, "the source must be a file")}, lambda *_: tmp_path)


def test_columns_are_renamed_in_any_order(audit, tmp_path):
    (tmp_path / "t.csv").write_text("row,label,new\n1,owl,wren\n")
    for columns in (("label=new", "label_before=label"), ("label_before=label", "label=new")):
        likewise.receive(tmp_path / "t.csv", "csv", audit, columns=columns)
        assert stored(audit) == {"1": ("relabel", "wren")}


def annotation(**values):
    parts = [{"from_name": name, "value": {"choices": value}} for name, value in values.items()]
    return {"completed_by": 1, "updated_at": "2026-01-01T00:00:00Z", "result": parts}


def task(*notes, row=1, label="owl", **data):
    return {"id": 5, "data": {"row": row, "label": label, "path": "a/1.png"} | data, "annotations": list(notes)}


def test_label_studio(audit, tmp_path, subtests):
    keep = annotation(choice=["keep"])
    good, kept = json.dumps([task(keep)]), {"1": ("keep", "")}
    line = {"id": 1, "row": 1, "label": "owl", "choice": "relabel", "new_label": "wren"}
    twice = annotation(choice=["keep"])
    twice["result"] *= 2
    older = annotation(choice=["remove"]) | {"updated_at": "2026-01-01T00:00:00.5+01:00"}  # 23:00 of the day before
    pipe = annotation(choice=["relabel"], new_label=["wren", "owl"])
    cases = {
        "a byte order mark": (b"\xef\xbb\xbf" + good.encode(), kept),
        "UTF-16": (good.encode("utf-16"), kept),
        "UTF-32": (good.encode("utf-32-be"), kept),
        "Latin-1": ('[{"a": "Zaunk\u00f6nig"}]'.encode("latin-1"), "is damaged"),
        "empty": ("", "is damaged"),
        "cut off": (good[:-5], "is damaged"),
        "zero bytes": (b"\0" * 99, "is damaged"),
        "nested too deep": ("[" * 200_000, "is damaged"),
        "a number of 10,000 digits": (f"[{'1' * 10_000}]", "is damaged"),
        "a list of numbers": ("[1, 2]", "every task must have the data row and label"),
        "no list": ({"a": 1}, "is damaged .it holds a dict, not a list.; export the project again"),
        "not annotated": ([task()], "must hold annotations, got tasks without any"),
        "an unknown class": ([task(annotation(choice=["relabel"], new_label=["emu"]))], "must be a class of this audit"),
        "no new label": ([task(annotation(choice=["relabel"]))], "must have another label, but row 1 has 'none'"),
        "an unknown choice": ([task(annotation(choice=["maybe"]))], "must be one of keep, .* got 'maybe'"),
        "a row outside": ([task(keep, row=99)], "every row must be in the audit, but row 99 is not"),
        "no tasks": ("[]", "must hold annotations, got tasks without any"),
        "an archive": (b"PK\x03\x04" + bytes(99), "is damaged"),
        "JSON-MIN": ([line], {"1": ("relabel", "wren")}),
        "choices as a dict": ([task(annotation(choice={"0": "keep"}))], "the selected values of choice must be texts"),
        "choices in a dict of JSON-MIN": ([line | {"choice": {"choices": ["keep"]}}], kept),
        "choices as numbers": ([task(annotation(choice=[1]))], "must be texts, got .1. for row 1"),
        "a choice of JSON-MIN as a bool": ([line | {"choice": True}], "must be texts, got True"),
        "a nested choice": ([task(annotation(choice=[["keep"]]))], "must be texts"),
        "no choices in the value": ([task({"result": [{"from_name": "choice", "value": {}}]})], "every task must have"),
        "several choices": ([task(annotation(choice=["keep", "remove"]))], "must have one choice, but row 1 has keep, remove"),
        "a control twice": ([task(twice)], "must use a control once, but row 1 has choice twice"),
        "several new labels": ([task(pipe)], r"must be a class of this audit, got 'owl\|wren'"),
        "a rating beside": ([task(keep | {"result": [*keep["result"], {"from_name": "rating", "value": {"rating": 3}}]})], kept),
        "the later of two times": ([task(keep, older)], kept),
        "no time": ([task({"result": keep["result"]})], kept),
        "a strange time": ([task(keep | {"updated_at": "yesterday"})], "updated_at must be a time .* got 'yesterday'"),
        "a time as a number": ([task(keep | {"updated_at": 5})], "updated_at must be a time .* got 5"),
        "a skipped one alone": ([task(keep | {"was_cancelled": True})], "must hold annotations"),
        "a row as a float": ([task(keep, row=1.0)], kept),
        "a row with a fraction": ([task(keep, row=1.5)], "row must be a whole number from 0, got 1.5"),
        "a negative row": ([task(keep, row=-1)], "row must be a whole number from 0, got -1"),
        "a row NaN": ([task(keep, row=float("nan"))], "row must be a whole number from 0, got nan"),
        "an infinite row": ([task(keep, row=float("inf"))], "row must be a whole number from 0, got inf"),
        "a row as a list": ([task(keep, row=[1])], "every task must have the data row and label"),
        "a row true": ([task(keep, row=True)], "row must be a whole number from 0, got True"),
        "no row": ([{"data": {"label": "owl"}, "annotations": [keep]}], "every task must have the data row"),
        "a row in two tasks": ([task(keep), task(keep) | {"id": 7}], "every row must be one task, but row 1 is in two"),
        "an image with a longer name": ([task(keep, path="/data/xa/1.png")], "must be the image of the audit"),
        "a path as a list": ([task(keep, path=["a/1.png"])], "path must be one text"),
        "a zero byte in a path": ([task(keep, path="a/1.png\0")], "path must be one text without NUL"),
        "another label": ([task(keep, label="wren")], "must have the label of the audit, 'owl'"),
        "annotations as a dict": ([task() | {"annotations": {"a": 1}}], "every task must have"),
        "annotations as null": ([task() | {"annotations": None}], "every task must have"),
    }  # fmt: skip

    def write(name, content):
        file = tmp_path / "export.json"
        content = json.dumps(content) if isinstance(content, list | dict) else content
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    check_all(subtests, audit, "label-studio", cases, write)
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "none.json", tmp_path / "pipe"):
        with pytest.raises(LikewiseError, match="must be an exported JSON file"):
            likewise.receive(place, "label-studio", audit)


def image(name="a/1.png", choice="keep", label="owl"):
    return (
        f'<image id="0" name="{name}"><tag label="{label}"><attribute name="choice">{choice}</attribute></tag></image>'
    )


def annotations(*images, version="1.1"):
    return f"<annotations><version>{version}</version>{''.join(images)}</annotations>"


def archive(content, name="annotations.xml", method=zipfile.ZIP_DEFLATED):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as out:
        out.writestr(name, content)
    return bytearray(made.getvalue())


def with_fields(raw, **fields):
    """Return an archive of one member with other values in both of its headers."""
    offsets = {"flag": (6, 8, "<H"), "method": (8, 10, "<H"), "size": (22, 24, "<I"), "crc": (14, 16, "<I")}
    central = raw.rindex(b"PK\x01\x02")
    for name, value in fields.items():
        local, beside, form = offsets[name]
        struct.pack_into(form, raw, local, value)
        struct.pack_into(form, raw, central + beside, value)
    return raw


def test_cvat(audit, tmp_path, subtests, monkeypatch):
    good, kept = annotations(image()), {"1": ("keep", "")}
    lzma_zip = archive(good, method=zipfile.ZIP_LZMA)
    lzma_zip[60:80] = b"\xff" * 20
    head = '<?xml version="1.0" encoding="{}"?>'
    entity = '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij")
    )
    monkeypatch.setattr("likewise.curate.exchange.cvat.MAX_XML_BYTES", 10**6)
    big = annotations(image()) + " " * 10**6
    cases = {
        "as XML": (good, kept),
        "as an archive": (archive(good), kept),
        "a byte order mark": (b"\xef\xbb\xbf" + good.encode(), kept),
        "UTF-16": (good.encode("utf-16"), kept),
        "UTF-16 in an archive": (archive(good.encode("utf-16")), kept),
        "an unknown encoding": (head.format("x-unknown") + good, "cannot be read .unknown encoding|cannot be read"),
        "an encoding that is no text": (head.format("base64") + good, "cannot be read"),
        "a wrong encoding": (head.format("UTF-16") + good, "cannot be read"),
        "damaged LZMA": (lzma_zip, "cannot be read"),
        "LZMA": (archive(good, method=zipfile.ZIP_LZMA), "compressed by method 14, not deflated"),
        "bzip2": (archive(good, method=zipfile.ZIP_BZIP2), "compressed by method 12, not deflated"),
        "an unknown method": (with_fields(archive(good), method=99), "compressed by method 99, not deflated"),
        "encrypted": (with_fields(archive(good), flag=1), "cannot be read .*encrypted"),
        "another checksum": (with_fields(archive(good), crc=1), "cannot be read .*CRC"),
        "a size that is too small": (with_fields(archive(good), size=9), "cannot be read"),
        "a size that is too large": (with_fields(archive(good), size=10**9), kept),
        "a bomb": (archive(big), "more than 0 MiB of XML"),
        "a bomb that declares a small size": (with_fields(archive(big), size=200), "cannot be read"),
        "too large a file": (big, "more than 0 MiB of XML"),
        "damaged deflate": (archive(good)[:50] + b"\xff" * 9 + archive(good)[59:], "cannot be read"),
        "cut off": (archive(good)[:-30], "cannot be read"),
        "another member": (archive(good, "default.xml"), "cannot be read .*no item named"),
        "a member in a folder": (archive(good, "task/annotations.xml"), "cannot be read .*no item named"),
        "an empty member": (archive(""), "cannot be read .no element found"),
        "zlib": (zlib.compress(good.encode()), "cannot be read"),
        "a bzip2 file": (bz2.compress(good.encode()), "cannot be read"),
        "an xz file": (lzma.compress(good.encode()), "cannot be read"),
        "empty": ("", "cannot be read .no element found"),
        "cut off XML": (good[:-9], "cannot be read"),
        "two documents": (good + good, "cannot be read .junk after document element"),
        "a zero byte": (good.replace("owl", "o\0wl"), "cannot be read"),
        "ten to the ninth entities": (entity + "]>" + good.replace("<version>", "&j;<version>"), "cannot be read"),
        "a file as an entity": (
            '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///none">]>' + good.replace("owl", "&x;"), "cannot be read"
        ),
        "nested deep": (annotations("<a>" * 100_000 + "</a>" * 100_000), "must hold at least one row, got none"),
        "another version": (annotations(image(), version="1.0"), "got another format"),
        "no version": ("<annotations/>", "got another format"),
        "HTML": ("<html><body/></html>", "got another format"),
        "no images": (annotations(), "must hold at least one row, got none"),
        "no name": (annotations('<image id="0"/>'), "every image must be in the audit, but '' is not"),
        "an absolute name": (annotations(image("/a/1.png")), "must be in the audit, but '/a/1.png' is not"),
        "a name outside": (annotations(image("../a/1.png")), "must be in the audit, but '../a/1.png' is not"),
        "a name alone": (annotations(image("1.png")), "must be in the audit, but '1.png' is not"),
        "two tags": (annotations(image().replace("</image>", '<tag label="wren"/></image>')), "must have one tag, but 'a/1"),
        "a video": (good.replace("<image", "<track").replace("</image>", "</track>"), "got another format"),
        "an unknown class": (annotations(image(choice="relabel", label="emu")), "must be a class of this audit, got 'emu'"),
        "an image twice": (annotations(image(), image(choice="remove")), "must occur once, but 'a/1.png' occurs twice"),
        "an unknown choice": (annotations(image(choice="maybe")), "must be one of keep, .* got 'maybe'"),
        "two choices": (
            annotations(image().replace("</tag>", '<attribute name="choice">remove</attribute></tag>')),
            "must have one choice, but 'a/1.png' has keep, remove",
        ),
        "relabel without a tag's label": (annotations(image(choice="relabel", label="")), "must have another label"),
        "nothing decided": (annotations(image(choice="not reviewed")), "at least one decision"),
    }  # fmt: skip

    def write(name, content):
        file = tmp_path / "export"
        file.write_bytes(content.encode() if isinstance(content, str) else bytes(content))
        return file

    check_all(subtests, audit, "cvat", cases, write)
    for place in (tmp_path, tmp_path / "none.xml"):
        with pytest.raises(LikewiseError, match="export as CVAT for images 1.1"):
            likewise.receive(place, "cvat", audit)


def test_images_with_several_rows(audit, tmp_path):
    """Two boxes in one image: a path alone does not say which row is meant."""
    text = (audit / "audit.csv").read_text().replace("a/2.png", "a/1.png")
    (audit / "audit.csv").write_text(text)
    (tmp_path / "t.csv").write_text("path,label\na/1.png,wren\n")
    with pytest.raises(LikewiseError, match="'a/1.png' of line 1 is 2 of its rows"):
        likewise.receive(tmp_path / "t.csv", "csv", audit)
    (tmp_path / "t.xml").write_text(annotations(image()))
    with pytest.raises(LikewiseError, match="'a/1.png' is 2 of its rows"):
        likewise.receive(tmp_path / "t.xml", "cvat", audit)
    with pytest.raises(LikewiseError, match="cvat: .*a/1.png' has 2 rows"):
        likewise.send(audit, "cvat", tmp_path / "cvat")
    assert stored(audit) is None and not (tmp_path / "cvat").exists()
    (tmp_path / "t.csv").write_text("row,path,label\n2,a/1.png,wren\n")
    likewise.receive(tmp_path / "t.csv", "csv", audit)
    assert stored(audit) == {"2": ("relabel", "wren")}


def test_parquet(audit, tmp_path, subtests):
    vector, wren = [0.0, 1.0], {"1": ("relabel", "wren")}
    good = {"row": 1, "label": "wren", "x": vector}
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([good]), buffer)
    cases = {
        "a changed label": ([good], wren),
        "a row as a float": ([good | {"row": 1.0}], wren),
        "paths alone": ([{"path": "a/1.png", "label": "wren", "x": vector}], wren),
        "labels alone": ([{"label": "wren", "x": vector}], "must be identified by a column row or path"),
        "a row twice": ([good, good | {"label": "owl"}], "row 1 occurs twice"),
        "a missing row": ([good, good | {"row": None}], "row must be a whole number"),
        "a negative row": ([good | {"row": -1}], "row must be a whole number from 0, got -1"),
        "a label as a struct": ([good | {"label": {"a": 1}}], "label must be one text"),
        "no vectors": ([{"row": 1, "label": "wren"}], "must hold the vectors"),
        "no changed label": ([good | {"label": "owl"}], "at least one decision or changed label"),
        "NaN": ([good | {"x": [0.0, float("nan")]}], "vectors must be finite"),
        "an empty file": (b"", "is not a readable Parquet file"),
        "text": (b"row,label\n" * 20, "is not a readable Parquet file"),
        "cut off": (buffer.getvalue()[:-5], "is not a readable Parquet file"),
    }

    def write(name, content):
        if isinstance(content, bytes):
            (tmp_path / "t.parquet").write_bytes(content)
        else:
            pq.write_table(pa.Table.from_pylist(content), tmp_path / "t.parquet")
        return tmp_path / "t.parquet"

    check_all(subtests, audit, "parquet", cases, write)


def test_hugging_face(audit, tmp_path, subtests):
    datasets = pytest.importorskip("datasets", reason="needs likewise[datasets]")
    names = datasets.Features({"file_name": datasets.Value("string"), "row": datasets.Value("int64"),
                               "label": datasets.ClassLabel(names=["owl", "wren"])})  # fmt: skip
    coded = datasets.Dataset.from_dict({"file_name": ["0.png"], "row": [1], "label": [1]}, names).data.table
    wren, root = {"1": ("relabel", "wren")}, tmp_path / "images"
    cases = {
        "a changed label": ({"row": [1], "label": ["wren"]}, wren),
        "paths alone": ({"path": [str(root / "a/1.png")], "label": ["wren"]}, wren),
        "labels as numbers with names": (coded, wren),
        "neither row nor path": ({"label": ["wren"]}, "every path must be one image of the audit"),
        "another path": ({"row": [1], "path": ["a/2.png"], "label": ["wren"]}, "must be the image of the audit"),
        "a row twice": ({"row": [1, 1], "label": ["wren", "owl"]}, "row 1 occurs twice"),
        "a row as a float": ({"row": [1.0], "label": ["wren"]}, wren),
        "a row with a fraction": ({"row": [1.5], "label": ["wren"]}, "row must be a whole number from 0, got 1.5"),
        "a missing row": ({"row": [1, None], "label": ["wren", "owl"]}, "row must be a whole number"),
        "no path beside a row": ({"row": [1, 2], "label": ["wren", "owl"]}, wren),
        "a label as a list": ({"row": [1], "label": [["wren"]]}, "label must be one text"),
        "a label as a struct": ({"row": [1], "label": [{"name": "wren"}]}, "label must be one text"),
        "a label as bytes": ({"row": [1], "label": [b"wren"]}, "label must be one text"),
        "no label": ({"row": [1], "name": ["wren"]}, "must have a column label or labels, got: "),
        "separators in a list": ({"row": [1], "labels": [["owl|wren"]]}, "separates labels"),
        "a file that is missing": ({"file_name": ["9.png"], "row": [1], "label": ["wren"]}, wren),
        "no table": (b"PAR1", "cannot be read"),
        "an empty table": (b"", "cannot be read"),
        "text as a table": (b"row,label\n1,wren\n", "cannot be read"),
    }  # fmt: skip
    number = iter(range(100))

    def write(name, content):
        folder = tmp_path / f"hf{next(number)}"
        folder.mkdir()
        for place in range(2):
            (folder / f"{place}.png").write_bytes(PNG)
        if isinstance(content, bytes):
            (folder / "metadata.parquet").write_bytes(content)
        else:
            if isinstance(content, dict):
                count = len(next(iter(content.values())))
                content = pa.table({"file_name": [f"{place}.png" for place in range(count)]} | content)
            pq.write_table(content, folder / "metadata.parquet")
        return folder

    check_all(subtests, audit, "hugging-face", cases, write)
