import shutil

from likewise.config import Audit

from likewise.cli.stages.audit import audit
from likewise.curate.audit.audit import Audited
from likewise.runs.folder import Run
from likewise.score.error_overlap import ErrorOverlap

FEW = {"max_errors": 1, "max_classes": 0, "device": "cpu", "quiet": True}


def test_one_run_is_audited_and_shows_its_suspects(run):
    found = audit(Audit((str(run.path),), **FEW))
    assert isinstance(found, Audited) and found.folder == run.path / "audit"
    html = found._repr_html_()
    assert "wrong labels, estimated" in html and "the most suspect labels" in html and "audit.html" in html


def test_several_runs_are_compared(finished, tmp_path):
    other = Run(shutil.copytree(finished.path, tmp_path / "other"))
    said = []
    settings = Audit(
        (str(finished.path), str(other.path)), overlap=True, k=2, out=str(tmp_path / "overlap"), quiet=True
    )
    found = audit(settings, said.append)
    assert isinstance(found, ErrorOverlap) and said == [f"overlap.json, overlap.csv and overlap.png: {found.folder}"]
    assert "2 of 2" in found._repr_html_() and "share 100 %" in found._repr_html_()
