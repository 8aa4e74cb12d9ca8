"""What a review leaves: the store, and how many decisions of how many people are in it."""

import pytest

pytest.importorskip("fastapi", reason="the review page needs FastAPI")

from audit_folder import write_audit

from likewise.config import Review
from likewise.web.review import serve as module
from likewise.web.review.serve import Reviewed, serve_review


def test_decisions_are_counted_and_ctrl_c_ends_it(tmp_path, monkeypatch):
    write_audit(tmp_path)

    def serve(store, *arguments):
        store.decide("ann", "1", "keep")
        store.decide("bob", "1", "remove")
        arguments[-1]("review: http://...")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "serve", serve)
    said = []
    found = serve_review(Review(str(tmp_path)), said.append)
    assert found == Reviewed(tmp_path / "decisions.sqlite", 2, 2) and said == ["review: http://..."]
    assert str(found) == f"2 decisions of 2 reviewers stored in {found.file}"
    assert str(Reviewed(found.file, 1, 1)).startswith("1 decision of 1 reviewer ") and "2" in found._repr_html_()
