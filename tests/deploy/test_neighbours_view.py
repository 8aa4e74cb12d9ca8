"""Answers of a search: a table for people, lines with tabs for programs, and nothing that steers a terminal."""

import json

from made_calibration import make_calibration, threshold

from likewise.deploy.index.known_unknown import decide
from likewise.deploy.index.search_index import Neighbours, describe_decision, percent, show_neighbours


def test_answers_for_programs_are_lines_with_tabs(capsys):
    found = [{"row": 3, "similarity": 0.25, "class": "a b", "path": "x y.jpg", "same": False}]
    show_neighbours(Neighbours(found, "1"))
    assert capsys.readouterr().out == "0.2500\ta b\t3\tx y.jpg\n"


def test_names_in_data_do_not_steer_the_terminal(monkeypatch, capsys):
    """Escape sequences can retitle a window, hide lines or move the cursor."""
    found = [{"row": 3, "similarity": 0.25, "class": "a\x1b[2J\tb\nc", "path": "\x9b1m\u202e\udce9ü", "same": True}]
    show_neighbours(Neighbours(found, "1"))
    assert capsys.readouterr().out == "0.2500\ta\\x1b[2J\\tb\\nc\t3\t\\x9b1m\\u202e\\udce9ü\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    show_neighbours(Neighbours(found, "1\x1b[2J"))
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out and "\\x1b[2J" in out and "\x9b" not in out and "row 3 is the same image" in out


def test_a_notebook_shows_them_escaped():
    html = Neighbours([{"row": 3, "similarity": 0.25, "class": "<b>", "path": "p", "same": True}], "q")._repr_html_()
    assert "nearest to q" in html and "&lt;b&gt;" in html and "0.2500" in html and "row 3 is the same image" in html


def test_a_decision_is_one_sentence_and_the_lines_for_programs_stay(monkeypatch, capsys):
    found = [{"row": 3, "similarity": 0.25, "class": "a b", "path": "x.jpg", "same": False}]
    unknown = decide(make_calibration(0.5), 0.25, "a b")
    show_neighbours(Neighbours(found, "1", unknown))
    out, err = capsys.readouterr()
    said = "unknown: none of the known classes (similarity 0.2500, threshold 0.5000); if it is one of them: a b, probability 25 %"
    assert out == "0.2500\ta b\t3\tx.jpg\n" and err == f"{said}\n"
    known = decide(make_calibration(0.5), 0.995, "a b")
    assert describe_decision(known) == "a b, probability above 99 % (similarity 0.9950, threshold 0.5000)"
    refused = decide(make_calibration(unknown=threshold(None)), 0.75, "a b")
    assert describe_decision(refused) == (
        "nearest is a b, probability 75 %; known or unknown cannot be decided: 30 classes promise 0.2 at best"
    )
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    show_neighbours(Neighbours(found, "1", unknown))
    show_neighbours(Neighbours(found, "1", hint="run `likewise calibrate runs/a`"))
    out = capsys.readouterr().out
    assert "unknown: none of the known classes" in out and "run `likewise calibrate runs/a`" in out
    assert "none of the known classes" in Neighbours(found, "1", unknown)._repr_html_()
    assert percent(0.004) == "below 1 %" and percent(0.5) == "50 %"


def test_json_has_the_decision_and_the_new_classes():
    found = [{"row": 3, "similarity": 0.25, "class": "ü", "path": "x.jpg", "same": False}]
    told = json.loads(Neighbours(found, "1", decide(make_calibration(0.5), 0.25, "ü"), "", [{"class": "n"}]).as_json())
    assert told["unknown"] is True and told["label"] is None and told["probability"] == 0.25 and told["nearest"] == "ü"
    assert told["found"] == found and told["new_classes"] == [{"class": "n"}] and "hint" not in told
