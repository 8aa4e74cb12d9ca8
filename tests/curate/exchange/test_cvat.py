"""CVAT: its XML with tags, checked by an independent reader, and decisions back from 10,000 images."""

import json
import zipfile
from contextlib import closing
from xml.etree import ElementTree

import pytest
from exchange_rows import LABELS, write_audit
from likewise.errors import LikewiseError

import likewise
from likewise.curate.audit.read import read_findings
from likewise.curate.exchange.transfer import of_audit
from likewise.curate.review.store import Store


def send(folder, n=10_000):
    audit = write_audit(folder, n, images=True)
    likewise.send(audit, "cvat", folder / "cvat")
    return audit, folder / "cvat" / "annotations.xml"


def stored(audit):
    with closing(Store(audit / "decisions.sqlite", read_findings(audit))) as store:
        return {d.item: (d.reviewer, d.choice, d.label) for d in store.current_decisions()}


def decide(file, out, owner="ann"):
    """Write the export of a person who keeps, relabels, removes, or does not look at, every fourth row; return it by hand."""
    top, made = ElementTree.parse(file).getroot(), {}
    person = ElementTree.SubElement(top.find("meta/task"), "owner")
    ElementTree.SubElement(person, "username").text = owner
    for image in top.findall("image"):
        row = int(image.get("name").split()[1].rstrip(","))
        choice = ("keep", "relabel", "remove", None)[row % 4]
        tag, other = image.find("tag"), LABELS[(row + 2) % len(LABELS)]
        if choice:
            tag.find("attribute").text = choice
            tag.set("label", other)
            made[str(row)] = (owner, choice, other if choice == "relabel" else "")
    ElementTree.ElementTree(top).write(out, encoding="utf-8")
    return made


@pytest.mark.slow
def test_10000_images_there_and_back(tmp_path):
    audit, file = send(tmp_path)
    sent = of_audit(audit, None)
    images = ElementTree.parse(file).getroot().findall("image")
    assert [image.get("name") for image in images] == [f"ü {row}, 'a'.png" for row in sent.row.tolist()]
    shown = [other or label for other, label in zip(sent.columns["suggested"], sent.columns["label"])]
    assert [image.find("tag").get("label") for image in images] == shown
    assert {(image.get("width"), image.get("height")) for image in images} == {("1", "1")}
    labels = json.loads((tmp_path / "cvat" / "labels.json").read_text("utf-8"))
    assert sorted(label["name"] for label in labels) == sorted(LABELS)
    made = decide(file, tmp_path / "export.xml")
    got = likewise.receive(tmp_path / "export.xml", "cvat", audit)
    assert (got.rows, got.kind) == (7_500, "decisions") and stored(audit) == made


def test_an_independent_reader_reads_the_same_tags(tmp_path):
    datumaro = pytest.importorskip("datumaro", reason="needs the package datumaro")
    audit, file = send(tmp_path)
    (file.parent / "images").symlink_to(tmp_path / "images")  # datumaro looks for the images beside the XML
    found = datumaro.Dataset.import_from(str(file.parent), "cvat")
    names = [one.name for one in found.categories()[datumaro.AnnotationType.label]]
    assert sorted(names) == sorted(LABELS)
    sent = of_audit(audit, None)
    shown = {
        f"ü {r}, 'a'": o or g for r, o, g in zip(sent.row.tolist(), sent.columns["suggested"], sent.columns["label"])
    }
    read = {item.id: [(names[a.label], a.attributes["choice"]) for a in item.annotations] for item in found}
    assert read == {name: [(label, "not reviewed")] for name, label in shown.items()}


def test_a_zipped_export(tmp_path):
    audit, file = send(tmp_path, n=40)
    made = decide(file, tmp_path / "annotations.xml")
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.write(tmp_path / "annotations.xml", "annotations.xml")
    with pytest.raises(LikewiseError, match="--into must be the audit that was sent"):
        likewise.receive(tmp_path / "export.zip", "cvat", tmp_path / "labels.csv")
    likewise.receive(tmp_path / "export.zip", "cvat", audit)
    assert stored(audit) == made


def test_an_image_that_cannot_be_read(tmp_path):
    audit = write_audit(tmp_path, n=3, images=True)
    next((tmp_path / "images").iterdir()).write_text("no image")
    with pytest.raises(LikewiseError, match="cvat: every image must be readable"):
        likewise.send(audit, "cvat", tmp_path / "cvat")
    assert not (tmp_path / "cvat").exists()
