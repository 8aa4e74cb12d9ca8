"""CVAT: tags of images in its XML format "CVAT for images 1.1" go out, and its export comes back as decisions.

Every image has one tag, or one per label if rows have several labels. Its label is the suggested one, if the audit suggests to
relabel, otherwise the given one; its attribute `choice` is "not reviewed" until a person chooses. The format is written here: the
package datumaro brings torch and OpenCV.
"""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from io import BufferedIOBase
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, first_line, make_folder, write_json
from likewise.core.image_files import open_image
from likewise.core.settings import Receive, Send
from likewise.curate.audit.read import find_audit
from likewise.curate.audit.states import suggested_decision
from likewise.curate.exchange.row_records import (
    CHOICE_NAMES,
    Records,
    check_free,
    check_source,
    class_of,
    from_cells,
    image_root,
    xml_problem,
)
from likewise.curate.exchange.transfer import of_audit
from likewise.data.label_sets import split_labels

NOT_REVIEWED = "not reviewed"
"""Value of the attribute `choice` that is no decision."""
MAX_XML_BYTES = 2**28
"""Largest unpacked export that is read: 1.6 million images. The parsed elements took 8 to 20 times as much memory."""
BLOCK_BYTES = 2**18
"""Bytes that are unpacked and parsed at a time."""


def send(records: Records, config: Send) -> list[str]:
    """Write annotations.xml and labels.json (for the raw label constructor of CVAT) into the folder `--out`."""
    root, classes = image_root(records), records.classes
    for text in [*classes, *records.columns["path"]]:
        if problem := xml_problem(text):
            raise LikewiseError(f"cvat: names must not hold {problem}, got {text!r}; rename it")
    path, count = Counter(records.columns["path"]).most_common(1)[0]
    if count > 1:
        raise LikewiseError(
            f"cvat: every row must be an image of its own, but '{path}' has {count} rows (boxes); choose --to label-studio or csv"
        )
    out = Path(config.out).expanduser()
    check_free([out / "labels.json", out / "annotations.xml"], "cvat", config.replace)
    values = [NOT_REVIEWED, *CHOICE_NAMES]
    top = ElementTree.Element("annotations")
    ElementTree.SubElement(top, "version").text = "1.1"
    task = ElementTree.SubElement(ElementTree.SubElement(top, "meta"), "task")
    labels = ElementTree.SubElement(task, "labels")
    for name in classes:
        label = ElementTree.SubElement(labels, "label")
        ElementTree.SubElement(label, "name").text = name
        attribute = ElementTree.SubElement(ElementTree.SubElement(label, "attributes"), "attribute")
        facts = {"name": "choice", "mutable": "False", "input_type": "select", "default_value": NOT_REVIEWED}
        for key, value in (facts | {"values": "\n".join(values)}).items():
            ElementTree.SubElement(attribute, key).text = value
    for number, line in enumerate(records.lines()):
        size = image_size(line["path"])
        place = {"id": str(number), "name": Path(os.path.relpath(line["path"], root)).as_posix(), **size}
        choice = suggested_decision(line.get("state", ""), line.get("score"), line.get("confidence"))
        shown = line["suggested"] if choice == "relabel" else line["label"]
        image = ElementTree.SubElement(top, "image", place)
        for name in split_labels(shown) if "labels" in line else (shown,):
            tag = ElementTree.SubElement(image, "tag", {"label": name, "source": "file"})
            ElementTree.SubElement(tag, "attribute", {"name": "choice"}).text = NOT_REVIEWED
    folder = make_folder(config.out, "cvat")
    select = {
        "name": "choice",
        "input_type": "select",
        "mutable": False,
        "values": values,
        "default_value": NOT_REVIEWED,
    }
    write_json(folder / "labels.json", [{"name": name, "type": "tag", "attributes": [select]} for name in classes])
    with atomic_write(folder / "annotations.xml") as aside:
        ElementTree.ElementTree(top).write(aside, encoding="utf-8", xml_declaration=True)
    return [
        f"in CVAT: a new task with the raw labels of {folder / 'labels.json'} and the images of {root}; then upload "
        f"{folder / 'annotations.xml'} as CVAT 1.1"
    ]


def image_size(path: str) -> dict[str, str]:
    """Return width and height of an image file, as attributes."""
    try:
        with open_image(path) as image:
            return {"width": str(image.width), "height": str(image.height)}
    except OSError as error:
        raise LikewiseError(
            f"cvat: every image must be readable, but '{path}' is not ({first_line(error)}); restore it"
        ) from None


def receive(config: Receive) -> Records:
    """Return the decisions in an export "CVAT for images 1.1" (.xml, or .zip with annotations.xml) about the audit `--into`."""
    if Path(config.into).suffix.lower() in (".npz", ".csv"):
        raise LikewiseError(
            f"cvat: --into must be the audit that was sent, which knows the rows of the images, got '{config.into}'"
        )
    audit = of_audit(find_audit(config.into, "receive"), None)
    root = image_root(audit)
    names = [Path(os.path.relpath(path, root)).as_posix() for path in audit.columns["path"]]
    place_of, rows_of = {name: at for at, name in enumerate(names)}, Counter(names)
    top = read_annotations(Path(config.source).expanduser())
    who = next((one.text or "" for at in ("assignee", "owner") for one in top.findall(f"./meta//{at}/username")), "")
    lines: dict[int, dict] = {}
    for image in top.findall("image"):
        name = image.get("name", "")
        if rows_of[name] != 1:
            problem = f"is {rows_of[name]} of its rows" if rows_of[name] else "is not"
            raise LikewiseError(
                f"cvat: every image must be in the audit, but {name!r} {problem}; receive into the audit that was sent"
            )
        if place_of[name] in lines:
            raise LikewiseError(f"cvat: every image must occur once, but {name!r} occurs twice; export one task alone")
        tags = image.findall("tag")
        if len(tags) > 1 and "labels" not in audit.columns:
            raise LikewiseError(
                f"cvat: every image must have one tag, but {name!r} has several; delete all but one in CVAT"
            )
        choices = {one.text for tag in tags for one in tag.findall("attribute") if one.get("name") == "choice"}
        choices -= {None, "", NOT_REVIEWED}
        if len(choices) > 1:
            raise LikewiseError(
                f"cvat: an image must have one choice, but {name!r} has {', '.join(sorted(map(str, choices)))}; correct its tags"
            )
        choice = next(iter(choices), NOT_REVIEWED)
        at = place_of[name]
        given = audit.columns["label"][at]
        label = class_of([tag.get("label", "") for tag in tags], given)
        if choice == "relabel" and label in ("", given):
            raise LikewiseError(
                f"cvat: an image to relabel must have another label, but {name!r} has {given!r}; change its tag"
            )
        lines[at] = {
            "row": int(audit.row[at]), "path": audit.columns["path"][at], "label": given, "reviewer": who,
            "choice": "" if choice == NOT_REVIEWED else choice, "new_label": label if choice == "relabel" else "",
        }  # fmt: skip
    columns = ("row", "path", "label", "reviewer", "choice", "new_label")
    return from_cells({name: [line[name] for line in lines.values()] for name in columns} if lines else {}, "cvat")


def xml_member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Return annotations.xml; raise unless its compression is one that unpacks piece by piece, as CVAT writes it."""
    member = archive.getinfo("annotations.xml")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"annotations.xml is compressed by method {member.compress_type}, not deflated")
    return member


def parse(content: IO[bytes] | BufferedIOBase) -> ElementTree.Element:
    """Return the root of an XML file of at most `MAX_XML_BYTES`."""
    parser, left = ElementTree.XMLParser(), MAX_XML_BYTES
    while block := content.read(BLOCK_BYTES):
        left -= len(block)
        if left < 0:
            raise ValueError(f"it has more than {MAX_XML_BYTES >> 20} MiB of XML")
        parser.feed(block)
    return parser.close()


def read_annotations(file: Path) -> ElementTree.Element:
    """Return the XML of an export; raise unless it is one of "CVAT for images 1.1"."""
    check_source(file, "cvat", "an export as CVAT for images 1.1 (.xml or .zip)")
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive, archive.open(xml_member(archive)) as content:
                top = parse(content)
        else:
            with file.open("rb") as content:
                top = parse(content)
    except Exception as error:  # zipfile, its decompressors, codecs and expat raise many types
        raise LikewiseError(
            f"cvat: the source must be an export as CVAT for images 1.1 (.xml or .zip), but '{file}' cannot be read "
            f"({first_line(error)}); export it again"
        ) from None
    if top.tag != "annotations" or top.findtext("version") != "1.1" or top.find("track") is not None:
        raise LikewiseError(
            f"cvat: '{file}' must be an export as CVAT for images 1.1, got another format; export it again"
        )
    return top
