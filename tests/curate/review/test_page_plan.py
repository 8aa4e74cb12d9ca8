"""Plan of a review on the page, in a real browser: order, forecast, when to stop, proof, votes."""

import json

import pytest

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytest.importorskip("playwright", reason="the browser is driven by playwright")

from playwright import sync_api as api
from review_page import press, see, write_audit, write_forecast, write_groups

pytestmark = pytest.mark.browser


@pytest.fixture
def audited(tmp_path):
    write_groups(tmp_path)
    write_forecast(tmp_path)
    return tmp_path


def test_without_a_forecast_the_page_says_how_to_get_one(visit, tmp_path, serve):
    write_audit(tmp_path)
    made = serve(tmp_path)
    page = visit(made.address, "ann")
    see(page, "6 labels left · less than 1 min at an assumed pace of 4.0 s per label", "#plan")
    press(page, "k", "Saved.")
    see(page, "5 labels left", "#plan")  # the plan is asked for after ten decisions, and the line counts them
    press(page, "Backspace", "Undone")
    see(page, "6 labels left", "#plan")
    page.keyboard.press("w")
    see(page, "likewise audit … --forecast", "#forecast")
    api.expect(page.locator("#rule")).to_be_hidden()


def test_the_curve_and_when_to_stop(enter, tmp_path):
    page = enter("ann")
    see(page, "points of MAP@R · about 1 min left at an assumed pace", "#plan")
    page.keyboard.press("w")
    assert page.locator("#forecast svg.curve").count() == 2
    assert "MAP@R: +5.00 points after 20 labels, 90 % interval +2.50 to +7.50" in page.locator(
        "svg.curve"
    ).first.get_attribute("aria-label")
    see(page, "you are here", "#forecast svg >> nth=0")
    see(page, "flattens", "#forecast svg >> nth=0")
    see(page, "The curve flattens after 10 labels", "#forecast")
    see(page, "test split", "#forecast")
    assert page.locator("#enough").is_hidden()
    page.fill("#limit", "50")
    page.locator("#limit").blur()
    see(page, "expected to bring less than 50 points: you can stop here.", "#enough")
    page.keyboard.press("Escape")
    api.expect(page.locator("#forecast")).not_to_be_visible()
    press(page, "k", "Saved.")  # the banner does not block
    page.click("#enough button")
    see(page, "So far: ")
    see(page, "What the review brings", ".card")
    see(page, f"likewise review {tmp_path} --retrain", ".proven")
    api.expect(page.locator("#finish")).to_be_hidden()  # the only Finish is the one of the end
    page.click("button:text('Back to the review')")
    api.expect(page.locator("#finish")).to_be_visible()
    page.reload()
    see(page, "less than 50 points", "#enough")
    page.keyboard.press("w")
    page.fill("#limit", "")
    page.locator("#limit").blur()
    api.expect(page.locator("#enough")).to_be_hidden(timeout=60_000)


def test_forecast_and_what_came_true_at_the_end(enter, tmp_path):
    rows = [
        {"metric": name, "forecast": {"gain": 0.05, "low": 0.02, "high": 0.08}, "inside": inside,
         "realised": {"gain": gain, "low": gain - 0.01, "high": gain + 0.01}, "note": ""}
        for name, gain, inside in (("MAP@R", 0.06, True), ("R@1", 0.1, False))
    ]  # fmt: skip
    parts = [{"of": of, "rows": rows, "note": f"Of the {of}."} for of in ("head", "network")]
    found = {"reviewed": 20, "labels": "decisions", "parts": parts, "reason": ""}
    (tmp_path / "proof.json").write_text(json.dumps(found))
    page = enter("ann")
    page.click("#finish")
    see(page, "Forecast and what came true, after 20 labels", ".proven")
    assert page.locator("svg.proof").count() == 2
    assert page.locator("svg.proof").first.get_attribute("aria-label") == (
        "MAP@R: forecast +5.00 points, realised +6.00; R@1: forecast +5.00 points, realised +10.00"
    )
    see(
        page,
        "forecast +5.00 points (+2.00 to +8.00), realised +6.00 (+5.00 to +7.00): inside of the interval.",
        ".inside >> nth=0",
    )
    see(page, "outside of the interval.", ".outside >> nth=0")
    see(page, "The network, trained again", ".proven")
    see(page, "Of the network.", ".proven")


def order_of(page):
    return page.evaluate("import('/static/elements.js').then(m => m.state.tiles.map(tile => tile.item))")


def test_a_new_plan_sorts_what_comes_next_and_loses_no_key(enter, server):
    page = enter("ann")
    page.keyboard.press("f")
    with page.expect_response("**/api/queue*"):
        page.select_option("#order", "suspicion")
    page.wait_for_selector("body:not(.loading)")
    with page.expect_response("**/api/queue*order=gain*"):
        page.select_option("#order", "gain")
    page.wait_for_selector("body:not(.loading)")
    page.locator("#order").blur()
    before, held = order_of(page), []
    page.route("**/api/plan*", lambda route: held.append(route))
    for _ in range(11):  # the tenth requests a new plan, which is late
        here = page.locator("main").get_attribute("data-item")
        page.keyboard.press("1" if here == "17" else "k")
    while not held:
        page.wait_for_timeout(20)
    here = page.locator("main").get_attribute("data-item")
    open_items = [item for item in before[11:] if item != here]
    plan = held[0].fetch().json()
    groups = [{**plan["groups"][0], "kind": "each", "items": open_items[::-1]}]
    held[0].fulfill(json={**plan, "groups": groups, "next": {"decisions": 7, "gain": 0.01}})
    see(page, "Next 7 decisions", "#plan")
    assert order_of(page) == [*before[:11], here, *open_items[::-1]]
    assert page.locator("main").get_attribute("data-item") == here  # not changed under the reviewer's eyes
    page.keyboard.press("u")
    api.expect(page.locator("main")).to_have_attribute("data-item", open_items[-1], timeout=60_000)
    see(page, "12 of 20", "#count")
    decided = {*before[:11], here}
    assert server.said()[here] == "unsure" and set(server.said()) == decided | ({"18"} if "17" in decided else set())


def test_votes_of_workers_and_their_quality(visit, tmp_path, serve):
    write_audit(tmp_path)
    (tmp_path / "annotator_votes.csv").write_text("row,worker,label\n0,anna,wren\n0,bo,robin\n0,cy,robin\n")
    (tmp_path / "consensus.csv").write_text(
        "row,path,label,consensus,wrong,state,label_score,votes,for_consensus,voted\n"
        "0,0.png,wren,robin,0.08,other label,0.05,3,2,robin x 2|wren x 1\n"
    )
    (tmp_path / "annotators.csv").write_text(
        "worker,votes,accuracy,low,high,disagreement,confused,with,confused_votes\n"
        "anna,40,0.71,0.55,0.84,0.3,wren,robin,4\nbo,41,0.9,0.8,0.97,,,,0\n"
    )
    made = serve(tmp_path)
    page = visit(made.address, "ann")
    see(page, "Votes. Consensus: robin, 2 of 3 votes, estimated to be right with 92 %", ".votes")
    assert page.locator(".votes .chip").all_inner_texts() == ["anna: wren", "bo: robin", "cy: robin"]
    assert page.locator(".votes .chip.given").all_inner_texts() == ["anna: wren"]
    page.keyboard.press("f")
    assert page.locator("#order option").all_inner_texts() == [
        "by suspicion", "by expected gain", "votes that differ first",
    ]  # fmt: skip
    page.keyboard.press("p")
    see(page, "anna4071 %55 % to 84 %", "#table")
