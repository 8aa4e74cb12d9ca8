"""Plan of a review over the page's server: groups, orders, the update after decisions, undo, blindness and the stop rule."""

import asyncio
import csv
import json
import threading

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytest.importorskip("httpx", reason="its test client needs httpx")

from fastapi.testclient import TestClient
from likewise.errors import LikewiseError
from planned_audit import GAIN, NAMES, bounds, write_planned

from likewise.curate.audit.forecast import SECONDS_PER_DECISION
from likewise.curate.audit.read import ConsensusLine, read_findings
from likewise.curate.review import plan as module
from likewise.curate.review.plan import Pace, PaceMeter
from likewise.curate.review.review_page import Served, make_app
from likewise.curate.review.store import Decision, Store, Stored

KEY = "a token of 24 characters"
KINDS = (("wren", "tit", 30, 0.95), ("robin", "tit", 14, 0.9), ("gull", "finch", 20, 0.7), ("tit", "gull", 5, 0.55))


@pytest.fixture
def visit(tmp_path):
    """A function that opens the audit in the test's folder."""
    opened = []

    def visit(folder=tmp_path, **settings):
        opened.append(Store(folder / "decisions.sqlite", read_findings(folder)))
        app = make_app(opened[-1], KEY, Served(**{"folder": folder, **settings}))
        return TestClient(app, base_url="http://127.0.0.1:8017", headers={"authorization": f"Bearer {KEY}"})

    yield visit
    [store.close() for store in opened]


def plan(browser, reviewer="ann", **asked):
    told = browser.get("/api/plan", params={"reviewer": reviewer, **asked})
    assert told.status_code == 200, told.text
    return told.json()


def decide(browser, items, choice, label="", reviewer="ann", **more):
    choices = [{"item": item, "choice": choice, "label": label} for item in items]
    told = browser.post("/api/decide", json={"reviewer": reviewer, "choices": choices, **more})
    assert told.status_code == 200, told.text


def items_of(found):
    return [item for one in found["groups"] for item in one["items"]]


def group_of(found, item):
    return next(one for one in found["groups"] if item in one["items"])


def test_groups_and_gains_by_hand(tmp_path, visit):
    write_planned(tmp_path, KINDS, off_topic=(0.9, 0.8), copies=[("wren", "robin")])
    found = plan(visit())
    first = found["groups"][0]
    assert found["order"] == "gain" and found["orders"] == ["suspicion", "gain"]
    assert (first["kind"], first["suggested"], len(first["items"])) == ("same", "tit", 24)
    wrong = {100 + at: 1 - row for at, row in enumerate(scores(tmp_path))}
    suspects = [row for row in wrong if row < 169] + [169]  # row 170 is the copy whose label is probably right
    unit = GAIN / sum(wrong[row] for row in suspects)
    for one in found["groups"]:
        own = [wrong[int(item)] for item in one["items"]]
        if one["kind"] == "same":
            assert one["decisions"] == pytest.approx(1 + sum(1 - 0.97 * p for p in own))
        if one["kind"] in ("same", "each"):
            assert one["gain"] == pytest.approx(unit * sum(own))
    copies, outside = (next(one for one in found["groups"] if one["kind"] == kind) for kind in ("copies", "off-topic"))
    assert copies["items"] == ["169"] and copies["gain"] == pytest.approx(unit * 0.7) and not copies["given"]
    assert outside["items"] == ["171", "172"] and outside["gain"] is None and outside["decisions"] == pytest.approx(1.3)
    rates = [(one["gain"] or 0.0) / one["decisions"] for one in found["groups"]]
    assert rates == sorted(rates, reverse=True)
    assert found["left"]["items"] == 72 and found["left"]["minutes"] == pytest.approx(73 * 4 / 60)
    assert found["left"]["gain"] == pytest.approx(GAIN)
    parts = []  # gain and decisions; lone suspects are one decision each
    for one in found["groups"]:
        lone = one["kind"] == "each"
        parts += [(unit * wrong[int(i)], 1) for i in one["items"]] if lone else [(one["gain"] or 0, one["decisions"])]
    gain, left = 0.0, 20.0
    for own, cost in parts:
        gain += own * max(0.0, min(1.0, left / cost))
        left -= cost
    assert found["next"] == {"decisions": 20, "gain": pytest.approx(gain)}


def scores(folder):
    with open(folder / "audit.csv", newline="") as file:
        return [float(line["score"]) for line in csv.DictReader(file)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("forecast", [True, False])
def test_every_open_question_is_in_the_plan_once(tmp_path, visit, seed, forecast):
    rng = np.random.default_rng(seed)
    kinds = []
    for _ in range(rng.integers(1, 12)):
        given, suggested = rng.choice(NAMES, 2, False)
        kinds.append((given, suggested, int(rng.integers(1, 40)), float(rng.uniform(0.55, 1))))
    pairs = [tuple(rng.choice(NAMES, 2, False)) for _ in range(rng.integers(0, 4))]
    write_planned(tmp_path, kinds, forecast=forecast, copies=pairs, off_topic=rng.uniform(0.6, 1, rng.integers(0, 30)))
    vote(tmp_path, rng.choice(np.arange(100, 110), 5, False))
    browser = visit()
    everything = browser.get("/api/queue", params={"reviewer": "ann", "kind": "sample"}).json()["items"]
    rows = {one["item"]: [str(row) for row in one["rows"]] for one in everything}
    decided = set()
    for _ in range(4):
        for order in ("suspicion", "gain", "votes"):
            found = plan(browser, order=order)
            assert sorted(items_of(found)) == sorted(item for item in rows if not decided.issuperset(rows[item]))
            assert all(len(one["items"]) <= (1 if one["kind"] == "copies" else 24) for one in found["groups"])
            queue = browser.get("/api/queue", params={"reviewer": "ann", "kind": "sample", "order": order}).json()
            assert [one["item"] for one in queue["items"]] == items_of(found)
            for one in found["groups"]:
                assert one["kind"] != "same" or (len(one["items"]) > 1 and one["suggested"])
        some = [row for item in rng.permutation(list(rows))[:7] for row in rows[item]]
        choice = ("keep", "remove", "unsure", "relabel")[rng.integers(4)]
        decide(browser, some, choice, "owl" if choice == "relabel" else "", new_class=choice == "relabel")
        decided |= set(some)


def vote(folder, rows):
    """Write a consensus with differing votes about these rows, the least disputed first, and one row that all agree about."""
    lines = [
        [row, "", "wren", "wren", 0.1, "votes differ", 0.9, 12, 11 - at, f"wren x {11 - at}|tit x {at + 1}"]
        for at, row in enumerate(rows)
    ]
    lines.append([111, "", "tit", "wren", 0.1, "other label", 0.9, 3, 0, "tit x 3"])
    with open(folder / "consensus.csv", "w", newline="") as file:
        csv.writer(file).writerows([ConsensusLine._fields, *lines])


def test_labels_whose_votes_differ_come_first(tmp_path, visit):
    write_planned(tmp_path, KINDS)
    vote(tmp_path, [103, 120, 160])
    found = plan(visit(order="votes"), order="votes")
    assert found["orders"] == ["suspicion", "gain", "votes"] and found["groups"][0]["kind"] == "each"
    assert found["groups"][0]["items"] == ["160", "120", "103"]  # the most disputed first
    assert visit(order="votes").get("/api/about").json()["order"] == "votes"


def test_by_suspicion_the_most_suspect_group_is_first(tmp_path, visit):
    write_planned(
        tmp_path, (("wren", "tit", 9, 0.6), ("gull", "finch", 2, 0.99), ("tit", "robin", 1, 0.8)), order="suspicion"
    )
    found = plan(visit())
    assert found["order"] == "suspicion"
    assert [(one["kind"], len(one["items"])) for one in found["groups"]] == [("same", 2), ("each", 10)]
    assert found["groups"][1]["items"][0] == "111"  # 0.6 * 0.97 is too little to be decided in a group


def test_ten_rejected_suggestions_change_the_rest(tmp_path, visit):
    write_planned(tmp_path, KINDS)
    browser = visit()
    before = plan(browser)
    rejected = before["groups"][0]["items"][:10]
    assert set(rejected) <= {str(row) for row in range(100, 130)}
    decide(browser, rejected, "keep")
    after = plan(browser)
    same = ["127", "128", "129"]  # wren, suggested tit, as those that were rejected
    other = ["145", "146", "147"]  # gull, suggested finch
    fall = [per_item(after, item) / per_item(before, item) for item in (*same, *other)]
    assert max(fall[:3]) < 0.9 and max(fall[:3]) < min(fall[3:])
    place = {item: at for at, item in enumerate(items_of(after))}
    assert place["145"] < place["127"] and items_of(before).index("127") < items_of(before).index("145")
    assert after["next"]["gain"] < before["next"]["gain"] and after["here"]["k"] == 10
    # decisions about labels that nobody flagged count too
    decide(browser, [str(row) for row in range(169, 179)], "relabel", "owl", new_class=True)
    assert plan(browser)["left"]["gain"] != after["left"]["gain"] and plan(browser)["left"]["items"] == 59


def per_item(found, item):
    one = group_of(found, item)
    return one["gain"] / len(one["items"])


def test_unsure_is_decided_without_evidence(tmp_path, visit):
    write_planned(tmp_path, KINDS)
    browser = visit()
    before = plan(browser)
    decide(browser, ["100"], "unsure")
    after = plan(browser)
    assert "100" not in items_of(after) and after["left"]["items"] == 68
    assert per_item(after, "150") == per_item(before, "150")


def test_undo_restores_the_plan(tmp_path, visit):
    write_planned(tmp_path, KINDS, copies=[("wren", "robin")])
    browser = visit()
    decide(browser, ["140"], "remove")
    before = plan(browser)
    decide(browser, before["groups"][0]["items"], "relabel", before["groups"][0]["suggested"])
    between = plan(browser)
    assert len(items_of(between)) == len(items_of(before)) - 24 and between["groups"] != before["groups"]
    undone = browser.post("/api/undo", params={"reviewer": "ann"}).json()["undone"]
    assert len(undone) == 24 and plan(browser) == before
    decide(browser, before["groups"][0]["items"], "relabel", before["groups"][0]["suggested"])
    assert plan(browser)["groups"] == between["groups"]


def test_reviewers_do_not_influence_each_other(tmp_path, visit):
    write_planned(tmp_path, KINDS)
    browser = visit()
    before = plan(browser, "bob")
    decide(browser, items_of(before)[:24], "keep", reviewer="ann")
    assert plan(browser, "bob") == before and len(items_of(plan(browser, "ann"))) == 45
    decide(browser, items_of(before)[:24], "keep", reviewer="bob")
    assert plan(browser, " bob ")["groups"] == plan(browser, "ann")["groups"]


def test_the_stop_rule_by_hand(tmp_path, visit):
    write_planned(tmp_path, KINDS)
    browser = visit(stop_below=0.5)
    about, gain = browser.get("/api/about").json(), plan(browser)["next"]["gain"]
    assert about["stop_below"] == 0.5 and about["order"] == "gain"
    assert plan(browser)["stop"] is None
    assert (
        plan(browser, least=100 * gain * 0.999)["stop"] is False
        and plan(browser, least=100 * gain * 1.001)["stop"] is True
    )
    decide(browser, items_of(plan(browser)), "keep")
    done = plan(browser, least=0.01)
    assert done["stop"] is True and done["groups"] == [] and done["left"] == {"items": 0, "gain": 0, "minutes": 0}
    assert done["here"] == {"k": 69, "R@1": bounds(GAIN), "MAP@R": bounds(GAIN)}


def test_a_forecast_without_gain_stops_at_once(tmp_path, visit):
    write_planned(tmp_path, KINDS, gain=-0.01)
    found = plan(visit(), least=0.01)
    assert found["stop"] is True and found["next"]["gain"] == found["left"]["gain"] == 0


def test_without_a_forecast(tmp_path, visit):
    write_planned(tmp_path, (*KINDS, ("wren", "gull", 1, 0.6)), forecast=False, off_topic=[0.9])
    browser = visit()
    found = plan(browser, order="gain", least=1)
    assert found["forecast"] is found["stop"] is found["here"] is found["next"]["gain"] is found["left"]["gain"] is None
    assert browser.get("/api/about").json()["order"] == "suspicion" and {one["gain"] for one in found["groups"]} == {
        None
    }
    # by hand: P(wrong) / size of the class; gull 30, robin 24, tit 15, wren 41 rows, and 24 samples of a group cost one decision
    assert found["groups"][0]["suggested"] == "tit" and found["groups"][-1]["kind"] == "off-topic"
    with pytest.raises(LikewiseError, match="--stop-below .*--forecast"):
        visit(stop_below=0.1)
    told = browser.get("/api/plan", params={"reviewer": "ann", "order": "votes"})
    assert told.status_code == 400 and "must be one of suspicion, gain, got 'votes'" in told.json()["error"]


def test_a_forecast_that_could_not_be_made(tmp_path, visit):
    write_planned(tmp_path, KINDS)
    about = json.loads((tmp_path / "forecast.json").read_text()) | {"reason": "20 samples are too few", "curve": []}
    (tmp_path / "forecast.json").write_text(json.dumps(about))
    found = plan(visit())
    assert found["next"]["gain"] is None and found["here"] is None and found["forecast"]["reason"]
    with pytest.raises(LikewiseError, match="because 20 samples are too few"):
        visit(stop_below=0.1)


def test_a_posterior_of_another_audit(tmp_path, visit):
    write_planned(tmp_path, KINDS)
    text = (tmp_path / "audit.csv").read_text()
    (tmp_path / "audit.csv").write_text(text.replace("100,0.png,wren", "100,0.png,gull"))
    with pytest.raises(LikewiseError, match="samples and labels of audit.csv"):
        visit()


def test_the_proof(tmp_path, visit):
    write_planned(tmp_path, KINDS)
    browser = visit()
    assert plan(browser)["proof"] is None
    proof = {"reviewed": 69, "labels": "decisions", "parts": [], "reason": ""}
    (tmp_path / "proof.json").write_text(json.dumps(proof))
    assert plan(browser)["proof"] == proof


LABELS = "row,label,kind,chance,state\n{}"


def test_several_labels_per_sample(tmp_path, visit):
    lines = [(row, "red", "missing", 0.9 - row / 100, "flagged") for row in range(30)]
    lines += [(row, "dress", "superfluous", 0.95, "flagged") for row in range(3)] + [(9, "blue", "missing", 0.2, "ok")]
    (tmp_path / "labels.csv").write_text(LABELS.format("\n".join(",".join(map(str, line)) for line in lines)))
    names = [{"label": name} for name in ("red", "dress", "blue")]
    about = {"title": "", "root": "", "rows": 30, "pictures": False, "labels": names}
    (tmp_path / "audit.json").write_text(json.dumps(about))
    head = "row,path,label,score,suggested,confidence,margin,reason,split"
    (tmp_path / "audit.csv").write_text("\n".join([head, *(f"{row},,dress,0.9,,,,,train" for row in range(30))]) + "\n")
    browser = visit()
    found = plan(browser)
    assert found["orders"] == ["suspicion"] and found["left"]["items"] == 33
    assert [(one["question"], one["suggested"], one["given"], len(one["items"])) for one in found["groups"]] == [
        ("superfluous", "", "dress", 3),
        ("missing", "red", "", 24),
        ("missing", "red", "", 6),
    ]
    assert found["groups"][0]["decisions"] == pytest.approx(1.15) and found["groups"][0]["gain"] is None
    decide(browser, ["0:dress", "1:dress"], "remove")
    assert [len(one["items"]) for one in plan(browser)["groups"]] == [1, 24, 6]


def test_a_request_gets_the_newest_plan_while_another_is_made(monkeypatch):
    monkeypatch.setattr(module, "MAX_INLINE_SECONDS", -1)  # all plans are made by the thread
    last, made, go = [1], [], threading.Event()

    def make(reviewer, order):
        made.append(last[0])
        stored = last[0]
        assert go.wait(600)
        return module.Plan(stored, [], None, "{}")

    async def work():
        worker = module.PlanWorker(make, lambda reviewer: last[0])
        go.set()
        assert (await worker.find("ann", "gain")).stored == 1
        go.clear()
        last[0] = 2
        assert (await worker.find("ann", "gain", since=0)).stored == 1  # at once; the next one is begun
        while made != [1, 2]:
            await asyncio.sleep(0)
        last[0] = 3
        late = [asyncio.create_task(worker.find("ann", "gain", since)) for since in (2, 3, None, 10**9)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in late) and made == [1, 2]
        go.set()
        found = [(await one).stored for one in late]
        assert found[0] >= 2 and found[1:] == [3, 3, 3] and made == [1, 2, 3]  # one plan for all who wait

    asyncio.run(work())


def test_short_plans_are_made_at_once_and_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr(module, "MAX_PLANS_COUNT", 2)
    threads = []

    def make(reviewer, order):
        threads.append(threading.current_thread() is threading.main_thread())
        return module.Plan(1, [], None, "{}")

    async def work():
        worker = module.PlanWorker(make, lambda reviewer: 1)
        for reviewer in ("ann", "ann", "bob", "cleo", "ann"):
            await worker.find(reviewer, "gain")
        assert len(worker.newest) == 2

    asyncio.run(work())
    assert threads == [False, True, True, True]  # ann once more after she was forgotten; the first cost is unknown


def test_the_number_of_decisions_of_a_plan(tmp_path, visit):
    write_planned(tmp_path, KINDS)
    browser = visit()
    assert plan(browser)["decisions"] == 0
    decide(browser, ["100", "101"], "keep")
    assert plan(browser, since=0)["decisions"] == 0 and plan(browser)["decisions"] == 2  # the first is made already


FLAGGED = {str(row) for row in range(100)}


def history(*acts):
    """Return stored decisions: each act has its second and the items that it decides at once; an item "-1" is an undo of 1."""
    found = []
    for second, items in acts:
        bulk = len(found) + 1 if len(items) > 1 else None
        for item in items:
            time = f"2026-11-18T04:{int(second) // 60:02d}:{second % 60:06.3f}Z"
            choice = "undo" if item.startswith("-") else "keep"
            name = item.removeprefix("-")
            one = Decision(len(found) + 1, time, "ann", "pair" if "x" in item else "sample", name, choice, "", "")
            found.append(Stored(one, bulk))
    return found


def measure_pace(history, current):
    """Return the pace of a reviewer who stored this."""
    meter = PaceMeter(FLAGGED)
    for one in history:
        meter.add(one)
    return meter.pace(current)


def test_pace_by_hand():
    many = [str(row) for row in range(24)]
    made = history((0, ["50"]), (3, ["51"]), (15, many), (200, ["52"]), (202.5, ["53"]), (210, ["7x"]), (214, ["54"]))
    current = {one.decision.id for one in made}
    # 51 after 3 s, 24 labels after 12 s, 53 after 2.5 s, 54 after 4 s; 50 is the first, 52 follows a break, 7x is a pair
    assert measure_pace(made, current) == Pace(pytest.approx(21.5 / 27), 27)


def test_a_minute_is_work_and_more_is_a_break():
    ten = [str(row) for row in range(10)]
    for second, seconds in ((60, 6.0), (60.001, None)):
        made = history((0, ["50"]), (second, ten))
        found = measure_pace(made, {one.decision.id for one in made})
        assert found == (Pace(SECONDS_PER_DECISION, 0) if seconds is None else Pace(pytest.approx(seconds), 10))


def test_the_time_of_undone_decisions_counts_and_their_labels_do_not():
    ten = [str(row) for row in range(10)]
    made = history((0, ["50"]), (5, ["51"]), (7, ["-51"]), (10, ["51"]), (20, ten))
    current = {one.decision.id for one in made} - {2, 3}
    assert measure_pace(made, current) == Pace(pytest.approx(20 / 11), 11)


def test_few_labels_have_the_assumed_pace():
    assert measure_pace([], set()) == Pace(SECONDS_PER_DECISION, 0)
    made = history((0, ["50"]), (1, [str(row) for row in range(9)]))
    assert measure_pace(made, {one.decision.id for one in made}).measured == 0
