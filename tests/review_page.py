"""The review page in a browser: a small audit, its server, and what tests do on the page."""

import csv
import threading

from PIL import Image

from likewise.errors import LikewiseError

KEY = "a-token-of-24-characters"


def picture(row):
    if row == 8:
        raise LikewiseError("8.png: there is no such file")
    return Image.new("RGB", (90, 60), (row * 40 % 256, 120, 200))


class Server:
    """The page, served by a thread of this process."""

    def __init__(self, folder, picture, token=KEY, user=""):
        import uvicorn

        from likewise.audit.read import read_findings
        from likewise.web.http import take_port
        from likewise.web.review.app import Served, make_app
        from likewise.web.review.serve import write_corrected_table
        from likewise.web.review.store import Store

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
