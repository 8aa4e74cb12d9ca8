"""Answers of a search: a table for people, lines with tabs for programs, and nothing that steers a terminal."""

from likewise.render.neighbours import Neighbours, show_neighbours


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
