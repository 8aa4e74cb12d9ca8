import os

from likewise.config import Report

from likewise.cli.stages.report import report


def test_a_page_is_a_path_and_a_link(run):
    page = report(Report((str(run.path),), map="none", device="cpu", quiet=True), lambda line: None)
    assert os.fspath(page) == str(page) == str(run.path / "report.html") and page.path.exists()
    assert f'<a href="{page.path.as_posix()}">' in page._repr_html_()
