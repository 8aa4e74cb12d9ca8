"""What commands return and print whose rooms do not test it: apply, published, receive, recipe, send."""

import pytest
from exchange_rows import write_audit
from likewise.config import Published, ShowRecipe
from likewise.errors import LikewiseError

from likewise.cli.main import main
from likewise.learn.recipe_view import show_recipe
from likewise.papers.published.published_view import published


@pytest.fixture
def table(tmp_path):
    """A corrected table of two images in class folders, one of which moves."""
    for path in ("photos/a/1.jpg", "photos/b/2.jpg"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(path)
    file = tmp_path / "corrected.csv"
    file.write_text(f"path,label\n{tmp_path}/photos/a/1.jpg,b\n{tmp_path}/photos/b/2.jpg,b\n")
    return file


def error_of(words, capsys):
    """Return the error of a command that must end with 2."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert end.value.code == 2
    return capsys.readouterr().err


def test_apply_prints_the_plan_then_moves_and_the_command_that_reverses_them(table, tmp_path, capsys):
    main(["apply", str(table), "--root", str(tmp_path / "photos")])
    printed = capsys.readouterr().out
    assert "would change" in printed and "1 images relabelled" in printed and "add --to FOLDER" in printed
    assert (tmp_path / "photos/a/1.jpg").exists()
    main(["apply", str(table), "--root", str(tmp_path / "photos"), "--in-place"])
    assert (tmp_path / "photos/b/1.jpg").exists() and f"undo: likewise apply {table} --undo" in capsys.readouterr().out
    main(["apply", str(table), "--undo"])
    assert (tmp_path / "photos/a/1.jpg").exists()


def test_published_numbers_that_are_chosen_are_tables_and_all_numbers_an_overview(tmp_path):
    chosen = published(Published(paper="procsim", table="5", csv=str(tmp_path / "n.csv")))
    assert chosen.is_chosen and {(n.paper, n.table) for n in chosen} == {("procsim", "5")}
    assert len((tmp_path / "n.csv").read_text().splitlines()) == len(chosen) + 1
    assert "procsim, table 5" in chosen._repr_html_() and chosen[0].about[0][:20] in chosen._repr_html_()
    every = published(Published())
    assert not every.is_chosen and len(every) > len(chosen) and f"{len(every):,} numbers" in every._repr_html_()
    with pytest.raises(LikewiseError, match=r"--csv must end in \.csv"):
        published(Published(paper="procsim", csv=str(tmp_path / "n.txt")))


def test_receive_prints_what_was_received(tmp_path, capsys):
    audit = write_audit(tmp_path, n=5)
    (tmp_path / "t.csv").write_text("id,class\n2,wren\n")
    words = ["receive", f"{tmp_path}/t.csv", "--from", "csv", "--columns", "label=class", "row=id"]
    main([*words, "--into", f"{tmp_path}/u.csv"])
    assert capsys.readouterr().out == f"1 labels received from csv: {tmp_path}/u.csv\n"
    main([*words, "--into", str(audit), "--reviewer", "Ann"])
    assert capsys.readouterr().out == f"1 decisions received from csv: {audit}/decisions.sqlite\n"


def test_recipe_show_and_diff():
    found = show_recipe(ShowRecipe("triplet", data="cub200"))
    assert found.command.startswith("likewise train cub200") and found.recipe.name == "triplet"
    assert "Triplet" in found._repr_html_() and "for cub200" in found._repr_html_()
    found = show_recipe(ShowRecipe("triplet", "margin"))
    assert "loss" in found.settings and found.settings["loss"][0] != found.settings["loss"][1]
    assert "<td" in found._repr_html_() and "margin" in found._repr_html_()
    assert show_recipe(ShowRecipe("triplet", "triplet")).settings == {}


def test_send_prints_rows_and_place(tmp_path, capsys):
    audit = write_audit(tmp_path, n=5)
    words = ["send", str(audit), "--to", "csv", "--out", f"{tmp_path}/t.csv", "--columns", "label=class", "path=image"]
    main(words)
    assert capsys.readouterr().out == f"5 rows sent to csv: {tmp_path}/t.csv\n"
    assert (tmp_path / "t.csv").read_text("utf-8").startswith("image,class,split,score")
    main([*words, "--quiet", "--replace"])
    assert capsys.readouterr() == ("", "")
    before = (tmp_path / "t.csv").read_bytes()
    assert "must be a new file, but it exists" in error_of([*words, "--top", "1"], capsys)
    assert (tmp_path / "t.csv").read_bytes() == before
    words = ["send", tmp_path / "none", "--to", "csv", "--out", tmp_path / "t.csv"]
    assert "is neither a known name nor an existing path" in error_of(words, capsys)
