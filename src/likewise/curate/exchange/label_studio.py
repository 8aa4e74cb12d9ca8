"""Label Studio: tasks with predictions and a labelling config go out, its JSON or JSON-MIN export comes back as decisions.

The two files are plain JSON and XML, written here, because the package label-studio-sdk would replace numpy by an older one.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from likewise._version import __version__
from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, first_line, make_folder, write_json
from likewise.core.settings import Receive, Send
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
from likewise.data.label_sets import split_labels

OWNER_NAME = "label-studio"
CONTROL_NAMES = ("choice", "new_label")
"""Names of the controls of the labelling interface."""
MAX_BUTTON_CLASSES = 30
"""Up to this number of classes, every class is a button; above it, a list with a search field."""
LOCAL_FILES = "/data/local-files/?d="
"""Address under which Label Studio serves files below its LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT."""


def send(records: Records, config: Send) -> list[str]:
    """Write tasks.json (all tasks, in the order of the records) and config.xml into the folder `--out`."""
    folder, root = make_folder(config.out, OWNER_NAME), image_root(records)
    # Label Studio serves folders below its document root, and not the document root itself.
    start, base = (os.path.dirname(root), LOCAL_FILES) if config.url is None else (root, config.url.rstrip("/") + "/")
    xml = labelling_config(records.classes, "labels" in records.columns)
    tasks = [task(line, base + quote(os.fsencode(os.path.relpath(line["path"], start)))) for line in records.lines()]
    check_free([folder / "tasks.json", folder / "config.xml"], OWNER_NAME, config.replace)
    write_json(folder / "tasks.json", tasks)
    with atomic_write(folder / "config.xml") as aside:
        aside.write_text(xml, "utf-8")
    notes = [
        f"in Label Studio: Settings > Labeling Interface > Code: {folder / 'config.xml'}; Import: {folder / 'tasks.json'}"
    ]
    if config.url is None:
        notes.append(
            "start Label Studio with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and "
            f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={start}, and add the local storage {root} to the project"
        )
    return notes


def labelling_config(classes: list[str], several: bool = False) -> str:
    """Return the XML of the labelling interface: the image, the decision, and the new label or, with `several`, labels."""
    how = "multiple" if several else "single"
    layout = "inline" if len(classes) <= MAX_BUTTON_CLASSES else "select"
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in CHOICE_NAMES)
    labels = "".join(f"    <Choice value={attribute(name)}/>\n" for name in classes)
    return (
        '<View>\n  <Image name="image" value="$image"/>\n  <Text name="given" value="$label"/>\n'
        f'  <Choices name="choice" toName="image" choice="single-radio" showInline="true">\n{choices}  </Choices>\n'
        f'  <Choices name="new_label" toName="image" choice="{how}" layout="{layout}">\n{labels}  </Choices>\n</View>\n'
    )


def attribute(text: str) -> str:
    """Return a text as a quoted XML attribute; raise if XML cannot hold it."""
    if problem := xml_problem(text):
        raise LikewiseError(f"{OWNER_NAME}: a class name must not hold {problem}, got {text!r}; rename the class")
    return quoteattr(text)


def task(line: dict[str, Any], image: str) -> dict[str, Any]:
    """Return a task: the columns of a row as its data, and what the audit suggests as its prediction.

    The score of the prediction is the probability that the predicted label is right.
    """
    one: dict[str, Any] = {"data": {"image": image} | line}
    score, confidence = line.get("score"), line.get("confidence")
    choice = suggested_decision(line.get("state", ""), score, confidence)
    if score is None and choice == "keep":  # nothing is known about this label
        return one
    label = line["suggested"] if choice == "relabel" else line["label"]
    chosen = split_labels(label) if "labels" in line else (label,)
    result = [selected("choice", choice), *([selected("new_label", *chosen)] if choice != "remove" else [])]
    sure = (1 - (score or 0.0)) * (confidence or 0.0) if choice == "relabel" else score or 0.0
    return one | {"predictions": [{"model_version": f"likewise {__version__}", "score": sure, "result": result}]}


def selected(control: str, *values: str) -> dict[str, Any]:
    """Return the part of a prediction that selects values of a control."""
    return {"id": control, "from_name": control, "to_name": "image", "type": "choices", "value": {"choices": [*values]}}


def receive(config: Receive) -> Records:
    """Return the decisions in an export of Label Studio (JSON or JSON-MIN): the last one of every annotator about every task."""
    file = Path(config.source).expanduser()
    made: list[tuple[datetime, dict[str, Any]]] = []
    task_of_row: dict[Any, Any] = {}
    for place, one in enumerate(read_tasks(file), 1):
        try:
            data, own = one.get("data", one), one.get("id", place)
            made += [
                (when, {name: data.get(name) for name in ("row", "path", "label")} | by) for when, by in decisions(one)
            ]
            is_new = task_of_row.setdefault(data["row"], own) == own
        except (AttributeError, KeyError, TypeError, IndexError):
            raise LikewiseError(
                f"{OWNER_NAME}: every task must have the data row and label, and annotations, but task {place} of {file.name} "
                "has not; export a project whose tasks `likewise send` wrote, as JSON or JSON-MIN"
            ) from None
        if not is_new:
            raise LikewiseError(
                f"{OWNER_NAME}: every row must be one task, but row {data['row']} is in two; delete one of them"
            )
    last = {(line["row"], line["reviewer"]): line for _, line in sorted(made, key=lambda one: one[0])}
    if not last:
        raise LikewiseError(
            f"{OWNER_NAME}: {file.name} must hold annotations, got tasks without any; export it after labelling"
        )
    names = ("row", "path", "label", "choice", "new_label", "reviewer")
    return from_cells({name: [line[name] for line in last.values()] for name in names}, OWNER_NAME)


def read_tasks(file: Path) -> list:
    """Return the tasks of an export in UTF-8, UTF-16 or UTF-32, with or without a byte order mark."""
    check_source(file, OWNER_NAME, "an exported JSON file")
    try:
        tasks = json.loads(file.read_bytes())
        problem = "" if isinstance(tasks, list) else f"it holds a {type(tasks).__name__}, not a list"
    except (ValueError, RecursionError) as error:  # no text, no JSON, a number with too many digits, nested too deeply
        tasks, problem = [], first_line(error)
    if problem:
        raise LikewiseError(
            f"{OWNER_NAME}: {file} is damaged ({problem}); export the project again as JSON or JSON-MIN"
        )
    return tasks


def decisions(one: dict[str, Any]) -> list[tuple[datetime, dict[str, str]]]:
    """Return time and decision of all annotations of a task, without skipped ones. A line of JSON-MIN is one annotation."""
    found = []
    is_line = "data" not in one
    data = one if is_line else one["data"]
    for note in [one] if is_line else one.get("annotations", []):
        if note.get("was_cancelled"):
            continue
        values = note if is_line else selected_values(note["result"], data["row"])
        made = decision(values.get("choice"), values.get("new_label"), data["label"], data["row"])
        if made:
            who = person(note.get("annotator" if is_line else "completed_by"))
            found.append((moment(note.get("updated_at"), data["row"]), made | {"reviewer": who}))
    return found


def moment(text: Any, row: Any) -> datetime:
    """Return the time of an annotation; the earliest time if there is none."""
    if not text:
        return datetime.min.replace(tzinfo=UTC)
    try:
        when = datetime.fromisoformat(text)
        return when if when.tzinfo else when.replace(tzinfo=UTC)
    except (ValueError, TypeError):
        raise LikewiseError(
            f"{OWNER_NAME}: updated_at must be a time such as 2026-01-31T12:00:00Z, got {text!r} for row {row}; export again"
        ) from None


def selected_values(result: list, row: Any) -> dict[str, Any]:
    """Return control -> selected values of an annotation; other controls than ours are left out."""
    found: dict[str, Any] = {}
    for part in result:
        name = part["from_name"]
        if name in found:
            raise LikewiseError(
                f"{OWNER_NAME}: an annotation must use a control once, but row {row} has {name} twice; correct it in Label Studio"
            )
        if name in CONTROL_NAMES:
            found[name] = part["value"]["choices"]
    return found


def decision(choice: Any, label: Any, given: str, row: Any) -> dict[str, str] | None:
    """Return choice and new label; None without both. A label without a choice means keep, if it is the given one, or relabel.

    Several labels are joined by "|", as in the given label, in the order of their names.
    """
    chosen = texts(choice, "choice", row)
    if len(chosen) > 1:
        raise LikewiseError(
            f"{OWNER_NAME}: a task must have one choice, but row {row} has {', '.join(chosen)}; choose one in Label Studio and "
            "export again"
        )
    choice, label = "".join(chosen), class_of(texts(label, "new_label", row), given)
    if not choice and not label:
        return None
    choice = choice or ("keep" if label == given else "relabel")
    if choice == "relabel" and label in ("", given):
        raise LikewiseError(
            f"{OWNER_NAME}: a task to relabel must have another label, but row {row} has {label or 'none'!r}; choose one in "
            "Label Studio and export again"
        )
    return {"choice": choice, "new_label": label if choice == "relabel" else ""}


def texts(value: Any, control: str, row: Any) -> list[str]:
    """Return the selected values of a control. JSON has a list; JSON-MIN has a text for one value, and a dict for several."""
    if isinstance(value, dict) and value.keys() == {"choices"}:
        value = value["choices"]
    several = value if isinstance(value, list) else [] if value in (None, "") else [value]
    found = [one for one in several if isinstance(one, str)]
    if len(found) < len(several):
        raise LikewiseError(
            f"{OWNER_NAME}: the selected values of {control} must be texts, got {value!r:.200} for row {row}; export the project "
            "again as JSON or JSON-MIN"
        )
    return found


def person(who: Any) -> str:
    """Return the name of an annotator: the address if it is exported, otherwise the number."""
    if isinstance(who, dict):
        who = who.get("email") or who.get("id")
    return who if isinstance(who, str) else f"annotator {who}" if who is not None else ""
