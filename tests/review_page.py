"""The review page in a browser: a small audit, its server, and what tests do on the page."""

import csv
import json
import os
import subprocess
import sys
import threading

from likewise.errors import LikewiseError
from PIL import Image

KEY = "a-token-of-24-characters"


def picture(row):
    if row == 8:
        raise LikewiseError("8.png: there is no such file")
    return Image.new("RGB", (90, 60), (row * 40 % 256, 120, 200))


class Server:
    """The page, served by a thread of this process."""

    def __init__(self, folder, picture, token=KEY, user=""):
        import uvicorn

        from likewise.core.http import take_port
        from likewise.curate.audit.read import read_findings
        from likewise.curate.review.review_page import Served, make_app, write_corrected_table
        from likewise.curate.review.store import Store

        self.store, door = (
            Store(folder / "decisions.sqlite", read_findings(folder)),
            take_port("review", "127.0.0.1", 0),
        )
        self.address = f"http://127.0.0.1:{door.getsockname()[1]}/?token={token}"
        self.table = folder / "corrected.csv"
        finish = lambda: write_corrected_table(self.store, self.table, "/birds")  # noqa: E731
        app = make_app(self.store, token, Served(picture, "/birds", "birds", self.table, finish, user, folder))
        self.server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=2)
        )
        app.state.stop = lambda: setattr(self.server, "should_exit", True)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [door]})
        self.thread.start()

    def said(self):
        """Return what was decided: item -> choice and label."""
        return {d.item: f"{d.choice} {d.label}".strip() for d in self.store.current_decisions()}

    def stop(self):
        self.server.should_exit = True
        self.thread.join()
        self.store.close()


def write_audit(folder, rows=12):
    """Classes take turns, and every second row is flagged; row 8 has no image. Two errors."""
    names = ["wren", "robin", "tit"]
    (folder / "audit.json").write_text(f'{{"title": "birds", "root": "", "rows": {rows + 1}, "pictures": true}}')
    with open(folder / "audit.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["row", "path", "label", "score", "suggested", "confidence", "margin", "reason", "split"])
        for row in range(rows):
            suspect = row % 2 == 0
            other = names[(row + 1) % 3] if suspect else ""
            score, split = 0.6 * row / rows if suspect else 0.9, "train" if row < rows * 2 // 3 else "test"
            table.writerow([row, f"{row}.png", names[row % 3], score, other, 0.8 * suspect, 0.5 * suspect, "", split])
        table.writerow([rows, f"{rows}.png", "gull", 0.9, "", "", "", "", "test"])
    (folder / "pairs.csv").write_text(
        "query,other,type,distance,wrong,mate\n0,1,confusion,0.25,1,3\n3,5,mis-similar,0.5,4,5\n"
    )
    (folder / "causes.csv").write_text(
        "error,kind,direction,place,row,influence,relative\n0-1,confusion,harmful,1,7,0.2,2.5\n0-1,confusion,helpful,1,6,-1,-3\n"
    )


def write_copies(folder):
    """Rows 0 and 3 are the same image with two labels; 2 fits no class."""
    (folder / "audit.json").write_text('{"title": "birds", "root": "", "rows": 7, "pictures": true}')
    head = "row,path,label,score,state,suggested,confidence,margin,reason,split,same_as,off_topic"
    lines = [
        '0,0.png,wren,0.1,conflict,robin,0.9,0.8,"same image as row 3, labelled robin",train,0,0.1',
        "1,1.png,robin,0.2,flagged,wren,0.5,0.1,far from its class,train,,0.2",
        "2,2.png,robin,0.6,off-topic,,,,fits no class,train,,0.97",
        '3,3.png,robin,0.85,conflict,,,,"same image as row 0, labelled wren",train,0,0.1',
        "4,4.png,wren,,unknown,,,,the only sample of its class,test,,",
        "5,5.png,wren,0.9,ok,,,,,train,,0",
        "6,6.png,robin,0.9,ok,,,,,train,,0",
    ]
    (folder / "audit.csv").write_text("\n".join([head, *lines]) + "\n")


def write_groups(folder, weak=()):
    """14 images look like tit (rows 0 to 13), 3 have suggestions of their own, 2 are one image, and 2 fit no class.

    Suggestions for the rows `weak` have a probability of 0.12.
    """
    head = "row,path,label,score,state,suggested,confidence,margin,reason,split,same_as,off_topic"
    lines = [f"{n},{n}.png,{'wren' if n < 8 else 'robin'},0.0{n + 10},flagged,tit,0.95,0.9,,train,," for n in range(14)]
    lines += [f"{n},{n}.png,{one},0.4,flagged,{other},{0.2 if n in weak else 0.9},0.1,,train,,"
              for n, one, other in ((14, "wren", "robin"), (15, "robin", "wren"), (16, "tit", "wren"))]  # fmt: skip
    lines += ["17,17.png,wren,0.3,conflict,robin,0.9,0.8,,train,17,", "18,18.png,robin,0.85,conflict,,,,,train,17,"]
    lines += [f"{n},{n}.png,tit,0.6,off-topic,,,,fits no class,train,,0.{n}7" for n in (9, 8)]
    lines[-2:] = [line.replace("9,9.png", "19,19.png").replace("8,8.png", "20,20.png") for line in lines[-2:]]
    lines += [f"{n},{n}.png,{('wren', 'robin', 'tit')[n % 3]},0.9,ok,,,,,train,," for n in range(21, 33)]
    about = f'{{"title": "birds", "root": "", "rows": {len(lines)}, "pictures": true}}'
    (folder / "audit.json").write_text(about)
    (folder / "audit.csv").write_text("\n".join([head, *lines]) + "\n")


def write_forecast(folder):
    """Write a forecast of the audit in the folder: 5 points of MAP@R after 20 labels."""
    from likewise.curate.audit.read import read_findings
    from likewise.curate.audit.review_queue import queue_of_findings

    queue_of_findings(read_findings(folder)).scaled(0.05).write(folder)
    gain = lambda share: {"gain": share, "low": share / 2, "high": share * 1.5}  # noqa: E731
    curve = [{"k": k, "wrong": k / 2, "minutes": k / 15, "MAP@R": gain(m), "R@1": gain(r)}
             for k, m, r in ((0, 0.0, 0.0), (5, 0.03, 0.01), (10, 0.046, 0.02), (20, 0.05, 0.03))]  # fmt: skip
    found = {
        "order": "gain", "coverage": 0.9, "seconds_per_decision": 4.0, "reason": "", "suspects": 20, "curve": curve,
        "flat_at": 10, "start": {"MAP@R": 0.5, "R@1": 0.7}, "scored": "test split",
    }  # fmt: skip
    (folder / "forecast.json").write_text(json.dumps(found))


def write_sets(folder):
    """Row 0 lacks "striped", row 1 has "red" wrongly, row 2 is right; "rare" cannot be told."""
    labels = json.dumps([{"label": name} for name in ("blue", "dress", "rare/odd", "red", "striped")])
    (folder / "audit.json").write_text(
        f'{{"title": "clothes", "root": "/c", "rows": 4, "pictures": true, "labels": {labels}, "expected_wrong": 2.5}}'
    )
    samples = ["0,0.png,dress|red,0.1,flagged,dress|red|striped,1,1,,,", "1,1.png,blue|red,0.2,flagged,blue,1,1,,,"]
    samples += ["2,2.png,dress|rare/odd,0.9,ok,,,,,,", "3,3.png,blue|striped,0.9,ok,,,,,,"]
    head = "row,path,label,score,state,suggested,confidence,margin,reason,split,same_as"
    (folder / "audit.csv").write_text("\n".join([head, *samples]) + "\n")
    head = "row,path,label,kind,chance,state,reason,nearest_with,nearest_without"
    lines = ["0,0.png,striped,missing,0.9,flagged,,3,1 2", "1,1.png,red,superfluous,0.8,flagged,,0,3"]
    lines += ["3,3.png,dress,missing,0.3,ok,,0 2,1", "2,2.png,rare/odd,superfluous,,unknown,few samples have it,,0 1"]
    (folder / "labels.csv").write_text("\n".join([head, *lines]) + "\n")
    return folder


SERVER = """
import sys
from likewise.curate.audit.read import read_findings
from likewise.core.http import run_app
from likewise.curate.review.review_page import make_app
from likewise.curate.review.store import Store
store = Store(sys.argv[1] + "/decisions.sqlite", read_findings(sys.argv[1]))
run_app(make_app(store, sys.argv[3]), "review", "127.0.0.1", int(sys.argv[2]), sys.argv[3])
"""


def start(folder, port):
    """Serve the page in a process of its own, which a test can kill; return it and the address."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", SERVER, str(folder), str(port), KEY]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=here)
    return process, process.stdout.readline().split()[1]


def kill(process):
    process.kill()
    process.wait()
    process.stdout.close()


def see(page, text, where="#main"):
    from playwright import sync_api as api

    api.expect(page.locator(where)).to_contain_text(text, timeout=60_000)


def press(page, key, told):
    page.keyboard.press(key)
    see(page, told, "#said")


def download(page, name):
    page.click("#who")
    with page.expect_download() as waiting:
        page.click(f"#people a[href='/export/{name}.csv']")
    with open(waiting.value.path(), newline="") as file:
        found = list(csv.DictReader(file))
    page.keyboard.press("Escape")
    return found
