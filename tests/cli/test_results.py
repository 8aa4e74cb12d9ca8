"""Every command: what it returns in Python, and what it prints on the terminal."""

import os
import shutil

import pytest
import torch
from exchange_rows import write_audit
from likewise.config import (
    Audit,
    Bench,
    Calibrate,
    Compare,
    Embed,
    Export,
    Hierarchy,
    Published,
    RecipeDiff,
    RecipeShow,
    Report,
)
from likewise.errors import LikewiseError

import likewise
from likewise.cli.main import main
from likewise.core.render.tables import Table
from likewise.curate.audit.audit import Audited, audit_targets
from likewise.deploy.calibration.calibrate import calibrate
from likewise.deploy.export import export
from likewise.learn.recipe_view import recipe_diff, recipe_show
from likewise.papers.bench import bench
from likewise.papers.published.published_view import published
from likewise.report.write_report import report
from likewise.runs.folder import Run
from likewise.score.compare import Compared, compare
from likewise.score.embed_data import embed
from likewise.score.error_overlap import ErrorOverlap
from likewise.score.learned_hierarchy import hierarchy


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


def test_audit_of_one_run_shows_its_suspects(run):
    found = audit_targets(Audit((str(run.path),), max_errors=1, max_classes=0, device="cpu", quiet=True))
    assert isinstance(found, Audited) and found.folder == run.path / "audit"
    html = found._repr_html_()
    assert "wrong labels, estimated" in html and "the most suspect labels" in html and "audit.html" in html


def test_audit_compares_several_runs(finished, tmp_path):
    other = Run(shutil.copytree(finished.path, tmp_path / "other"))
    said = []
    settings = Audit(
        (str(finished.path), str(other.path)), overlap=True, k=2, out=str(tmp_path / "overlap"), quiet=True
    )
    found = audit_targets(settings, said.append)
    assert isinstance(found, ErrorOverlap) and said == [f"overlap.json, overlap.csv and overlap.png: {found.folder}"]
    assert "2 of 2" in found._repr_html_() and "share 100 %" in found._repr_html_()


def test_bench_lists_what_would_be_trained(features, tmp_path):
    (tmp_path / "grid.toml").write_text(f'[settings]\ndata = "{features}"\nsteps = 2\n[axes]\nseed = [0, 1]\n')
    found = bench(Bench(str(tmp_path / "grid.toml"), out=str(tmp_path / "out"), list=True, device="cpu"))
    assert isinstance(found, Table) and len(found.lines) == 2 and not (tmp_path / "out").exists()


def test_calibrate_of_a_run_without_enough_classes(run):
    found = calibrate(Calibrate(str(run.path), far=0.01, device="cpu", quiet=True))
    assert found.calibration.pair.value is None and (run.path / "calibration.json").exists()
    assert "4 validation classes can promise" in found.calibration.pair.reason


def test_compare_of_a_run_with_itself(finished):
    found = compare(Compare(str(finished.path), str(finished.path)))
    assert isinstance(found, Compared) and found["metrics"]["R@1"]["difference"] == 0 and found["same"]


def test_embed_writes_a_file_where_one_is_named(finished, features, tmp_path):
    found = embed(Embed(run=str(finished.path), data=features, out=str(tmp_path / "z.npz"), device="cpu", quiet=True))
    alone = likewise.embed(finished, features, device="cpu", quiet=True)
    assert (tmp_path / "z.npz").exists() and torch.equal(found.z, alone.z) and len(found.z) == 288


def test_export_is_a_path_that_can_be_loaded(run):
    made = export(Export(str(run.path), to="safetensors", quiet=True))
    assert made.folder == run.path / "export-safetensors" and "model.safetensors" in made._repr_html_()
    assert likewise.load(made, device="cpu").dim == 8


def test_hierarchy_has_the_tree_and_its_files(finished, tmp_path):
    found = hierarchy(Hierarchy(str(finished.path), clusters=3, out=str(tmp_path), device="cpu", quiet=True))
    assert len(found.levels) == 1 and len(set(found.levels[0].tolist())) == 3 and found.picture.exists()
    html = found._repr_html_()
    assert "tree of classes" in html and str(found.picture) in html


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
    found = recipe_show(RecipeShow("triplet", "cub200"))
    assert found.command.startswith("likewise train cub200") and found.recipe.name == "triplet"
    assert "Triplet" in found._repr_html_() and "for cub200" in found._repr_html_()
    found = recipe_diff(RecipeDiff("triplet", "margin"))
    assert "loss" in found.settings and found.settings["loss"][0] != found.settings["loss"][1]
    assert "<td" in found._repr_html_() and "margin" in found._repr_html_()
    assert recipe_diff(RecipeDiff("triplet", "triplet")).settings == {}


def test_report_is_a_path_and_a_link(run):
    page = report(Report((str(run.path),), map="none", device="cpu", quiet=True), lambda line: None)
    assert os.fspath(page) == str(page) == str(run.path / "report.html") and page.path.exists()
    assert f'<a href="{page.path.as_posix()}">' in page._repr_html_()


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
