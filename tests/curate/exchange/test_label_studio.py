"""Label Studio: tasks ordered by suspicion that the real package accepts, and decisions back from both exports."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import closing

import pytest
from exchange_rows import LABELS, write_audit
from likewise.errors import LikewiseError

import likewise
from likewise.curate.audit.read import read_findings
from likewise.curate.exchange.transfer import of_audit
from likewise.curate.review.store import Store


def send(folder, n=10_000, **settings):
    """Return the audit, the tasks and the config of n rows."""
    audit = write_audit(folder, n, images=settings.pop("images", False))
    likewise.send(audit, "label-studio", folder / "out", **settings)
    return (
        audit,
        json.loads((folder / "out" / "tasks.json").read_text("utf-8")),
        (folder / "out" / "config.xml").read_text("utf-8"),
    )


def chosen(**values):
    """Return the result of an annotation with these values of controls."""
    return [
        {"id": name, "from_name": name, "to_name": "image", "type": "choices", "value": {"choices": [value]}}
        for name, value in values.items()
    ]


def result_for(task):
    """Return a decision by rule: every fourth row is kept, relabelled, removed, or labelled without a choice."""
    row, label = task["data"]["row"], task["data"]["label"]
    other = LABELS[(LABELS.index(label) + 2) % len(LABELS)]
    return [
        chosen(choice="keep", new_label=other),
        chosen(choice="relabel", new_label=other),
        chosen(choice="remove"),
        chosen(new_label=other),
    ][row % 4]


def expected(tasks, reviewer):
    """Return the decisions of `result_for` by hand: {(reviewer, item): (choice, label)}."""
    made = {}
    for task in tasks:
        row, at = task["data"]["row"], LABELS.index(task["data"]["label"])
        choice = ("keep", "relabel", "remove", "relabel")[row % 4]
        made[reviewer, str(row)] = (choice, LABELS[(at + 2) % len(LABELS)] if choice == "relabel" else "")
    return made


def stored(audit):
    """Return the current decisions in the store of an audit."""
    with closing(Store(audit / "decisions.sqlite", read_findings(audit))) as store:
        return {(d.reviewer, d.item): (d.choice, d.label) for d in store.current_decisions()}


def write_export(folder, tasks, name="export.json"):
    """Write tasks with annotations as Label Studio exports them; return the file."""
    (folder / name).write_text(json.dumps(tasks), "utf-8")
    return folder / name


def annotated(tasks, who=7):
    for number, task in enumerate(tasks, 1):
        note = {"id": number, "completed_by": who, "was_cancelled": False, "updated_at": "2026-01-01T00:00:00Z"}
        yield {"id": number, "data": task["data"], "annotations": [note | {"result": result_for(task)}]}


@pytest.mark.slow
def test_10000_tasks_in_the_order_of_suspicion(tmp_path):
    audit, tasks, _ = send(tmp_path)
    sent = of_audit(audit, None)
    assert [{k: v for k, v in task["data"].items() if k != "image"} for task in tasks] == list(sent.lines())
    flagged = [task["data"]["state"] == "flagged" for task in tasks]
    assert flagged == sorted(flagged, reverse=True) and sum(flagged) == 1000
    scores = [task["data"]["score"] for task in tasks]
    assert scores == sorted(scores) and tasks[0]["data"]["row"] == 3
    first, last = tasks[0]["predictions"][0], tasks[-1]["predictions"][0]
    assert first["score"] == pytest.approx((1 - 4 / 40_000) * 0.9)  # row 3: (1 - score) * confidence
    assert [part["value"]["choices"] for part in first["result"]] == [["relabel"], [LABELS[4]]]
    assert last["score"] == tasks[-1]["data"]["score"] and last["result"][0]["value"]["choices"] == ["keep"]


def test_the_real_package_accepts_config_tasks_and_predictions(tmp_path):
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason="needs the package label-studio-sdk")
    _, tasks, config = send(tmp_path)
    checked = interface.LabelInterface(config)
    checked.validate()
    assert sorted(checked.get_control("new_label").labels_attrs) == sorted(LABELS)
    for task in tasks:
        assert checked.validate_task({"data": task["data"]})
        assert checked.validate_prediction(task["predictions"][0], return_errors=True) == []
        assert checked.validate_annotation({"result": result_for(task)})
    wrong = {"result": chosen(new_label="no such bird")}
    assert not checked.validate_annotation(wrong)


@pytest.mark.slow
def test_10000_decisions_back(tmp_path):
    audit, tasks, _ = send(tmp_path)
    file = write_export(tmp_path, list(annotated(tasks)))
    got = likewise.receive(file, "label-studio", audit)
    assert (got.rows, got.kind, got.notes) == (10_000, "decisions", ())
    assert stored(audit) == expected(tasks, "annotator 7")
    assert likewise.receive(file, "label-studio", audit).notes == ("10000 of them were stored already",)


def test_json_min_has_the_same_decisions(tmp_path):
    audit, tasks, _ = send(tmp_path, n=200)
    lines = []
    for number, task in enumerate(tasks, 1):
        values = {part["from_name"]: part["value"]["choices"][0] for part in result_for(task)}
        lines.append(task["data"] | values | {"id": number, "annotator": "ann@b.example", "annotation_id": number})
    likewise.receive(write_export(tmp_path, lines), "label-studio", audit)
    assert stored(audit) == expected(tasks, "ann@b.example")


def test_decisions_as_a_corrected_table(tmp_path):
    _, tasks, _ = send(tmp_path, n=8)
    got = likewise.receive(write_export(tmp_path, list(annotated(tasks))), "label-studio", tmp_path / "new.csv")
    items = likewise.data.load(str(tmp_path / "new.csv"))
    labels = {
        row: LABELS[row] if row % 4 == 0 else LABELS[row + 2] for row in (0, 1, 3, 4, 5, 7)
    }  # 2 and 6 are removed
    assert got.rows == 6 and sorted(items.class_name[y] for y in items.y) == sorted(labels.values())


def test_several_annotators_and_skipped_or_older_annotations(tmp_path):
    audit, tasks, _ = send(tmp_path, n=4)
    task = next(one for one in tasks if one["data"]["row"] == 0)

    def note(number, who, when, **values):
        return {"id": number, "completed_by": who, "updated_at": when, "result": chosen(**values)}

    notes = [
        note(3, {"id": 1, "email": "ann@b.example"}, "2026-01-02", choice="remove"),
        note(1, {"id": 1, "email": "ann@b.example"}, "2026-01-01", choice="keep"),
        note(2, 2, "2026-01-01", choice="unsure"),
        note(4, 3, "2026-01-01", choice="keep") | {"was_cancelled": True},
        note(5, 4, "2026-01-01"),
    ]
    file = write_export(tmp_path, [{"id": 1, "data": task["data"], "annotations": notes}])
    likewise.receive(file, "label-studio", audit)
    assert stored(audit) == {("ann@b.example", "0"): ("remove", ""), ("annotator 2", "0"): ("unsure", "")}
    with pytest.raises(LikewiseError, match="several reviewers"):
        likewise.receive(file, "label-studio", tmp_path / "new.csv")


def test_images_by_address_and_few_rows(tmp_path):
    _, tasks, config = send(tmp_path, n=40, url="https://images.example/birds/", top=2)
    assert [task["data"]["image"] for task in tasks] == [
        f"https://images.example/birds/%C3%BC%20{row}%2C%20%27a%27.png" for row in (3, 13)
    ]
    assert 'layout="inline"' in config


@pytest.fixture
def server(tmp_path):
    """Yield `call(path, body) -> value` of a real Label Studio that is started for the test."""
    program = shutil.which("label-studio")
    if program is None:
        pytest.skip(
            "needs the program label-studio on the PATH; pip install label-studio, in an environment of its own"
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(20)
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "LABEL_STUDIO_BASE_DATA_DIR": str(tmp_path / "server"), "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED": "true",
        "LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT": str(tmp_path), "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
        "COLLECT_ANALYTICS": "False",
    }  # fmt: skip
    words = [
        program,
        "start",
        "--no-browser",
        "--port",
        str(port),
        "--username",
        "ann@b.example",
        "--password",
        "secret1234",
    ]
    (tmp_path / "server").mkdir()

    def call(path, body=None, raw=False):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Token {token}"})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.read() if raw else json.load(answer)

    with open(tmp_path / "server.log", "w") as log:
        process = subprocess.Popen([*words, "--user-token", token], env=variables, stdout=log, stderr=log)
        try:
            end = time.monotonic() + 600
            while time.monotonic() < end and process.poll() is None:
                try:
                    call("/health")
                    break
                except (urllib.error.URLError, ConnectionError):
                    time.sleep(1)
            yield call
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.slow
@pytest.mark.process
def test_a_real_server_imports_the_tasks_and_its_exports_come_back(tmp_path, server):
    """10,000 tasks with predictions are imported; annotations go in by import and one by one; both exports are received."""
    audit, tasks, config = send(tmp_path, images=True)
    project = server("/api/projects", {"title": "birds", "label_config": config})["id"]
    place = {"path": str(tmp_path / "images"), "project": project, "use_blob_urls": True}
    server("/api/storages/localfiles", place)
    with_notes = [task | {"annotations": [{"result": result_for(task)}]} for task in tasks[100:]]
    assert server(f"/api/projects/{project}/import", tasks[:100])["task_count"] == 100
    assert server(f"/api/projects/{project}/import", with_notes)["task_count"] == 9_900
    shown = server(f"/api/tasks?project={project}&page_size=100&fields=all")["tasks"]
    assert [task["data"]["row"] for task in shown] == [
        task["data"]["row"] for task in tasks[:100]
    ]  # order of suspicion
    assert shown[0]["predictions"][0]["score"] == pytest.approx(tasks[0]["predictions"][0]["score"])
    content = (tmp_path / "images" / "ü 3, 'a'.png").read_bytes()
    assert server(shown[0]["data"]["image"], raw=True) == content
    for task in shown:
        server(f"/api/tasks/{task['id']}/annotations", {"result": result_for(task)})
    for kind in ("JSON", "JSON_MIN"):
        file = tmp_path / f"{kind}.json"
        file.write_bytes(server(f"/api/projects/{project}/export?exportType={kind}", raw=True))
        (audit / "decisions.sqlite").unlink(missing_ok=True)
        assert likewise.receive(file, "label-studio", audit).rows == 10_000
        found = stored(audit)
        assert len({reviewer for reviewer, _ in found}) == 1
        assert {item: made for (_, item), made in found.items()} == {
            item: made for (_, item), made in expected(tasks, "").items()
        }
