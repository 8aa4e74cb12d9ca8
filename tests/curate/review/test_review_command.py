"""The review command: pictures by row, decisions kept, a polite end, and what is wrong said plainly."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="the review page needs FastAPI")

from likewise.config import Review
from likewise.errors import LikewiseError

from likewise.curate.audit.read import find_audit
from likewise.curate.review import review
from likewise.data.images import check_files
from likewise.data.table import read_table

AUDIT = """row,path,label,score,suggested,confidence,margin,reason,split,left,top,right,bottom
0,0.png,wren,0.9,,,,,train,,,,
1,1.png,wren,0.1,robin,0.8,0.5,,train,10,0,40,15
2,2.png,robin,0.7,,,,,train,,,,
3,../1.png,robin,0.05,wren,0.6,0.2,,test,,,,
"""


@pytest.fixture
def run(tmp_path):
    """A run folder with an audit of four pictures, one of which is gone."""
    pictures, folder = tmp_path / "my pictures", tmp_path / "run" / "audit"
    pictures.mkdir()
    folder.mkdir(parents=True)
    for row in range(3):
        Image.new("RGB", (60, 40), (row * 100, 0, 0)).save(pictures / f"{row}.png")
    (folder / "audit.csv").write_text(AUDIT)
    (folder / "audit.json").write_text(
        json.dumps({"title": "birds", "root": str(pictures), "rows": 4, "pictures": True})
    )
    return tmp_path / "run"


class Process:
    """`likewise review`, in a process of its own."""

    def __init__(self, *words):
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-m", "likewise", "review", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=here)
        self.address = urllib.parse.urlsplit(self.process.stdout.readline().split()[1])
        self.token = dict(urllib.parse.parse_qsl(self.address.query))["token"]

    def ask(self, path, **post):
        url = f"http://{self.address.netloc}{path}"
        body = json.dumps(post).encode() if post else None
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Content-Type": "application/json"} if post else {})
        request = urllib.request.Request(url, body, headers)
        return urllib.request.urlopen(request, timeout=600).read()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        said, wrong = self.process.communicate(timeout=600)
        return self.process.returncode, said, wrong


@pytest.mark.slow
@pytest.mark.process
def test_from_audit_to_corrected_table(run):
    served = Process(str(run), "--port", "0")
    try:
        assert json.loads(served.ask("/api/about"))["title"] == "my pictures"
        assert Image.open(io.BytesIO(served.ask("/picture/0"))).size == (60, 40)
        assert Image.open(io.BytesIO(served.ask("/picture/1?large=true"))).size == (30, 15)  # its box alone
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            served.ask("/picture/3")
        assert "there is no such file" in missing.value.read().decode()
        served.ask("/api/decide", reviewer="ann", choices=[{"item": "1", "choice": "relabel", "label": "robin"}])
        served.ask("/api/decide", reviewer="bob", choices=[{"item": "3", "choice": "remove"}])
        corrected, changes = (served.ask(f"/export/{name}.csv").decode() for name in ("corrected", "changes"))
    finally:
        code, said, wrong = served.interrupt()
    assert code == 0 and wrong == f"next: likewise train {run / 'audit' / 'corrected.csv'}\n"
    store = run / "audit" / "decisions.sqlite"
    assert said.strip().startswith(f"review: 2 decisions of 2 reviewers stored in {store}") and store.exists()
    assert (run / "audit" / "corrected.csv").read_text() == corrected  # written at the end, as downloaded
    items = read_table(str(run / "audit" / "corrected.csv"))
    check_files(items)
    assert [items.class_name[y] for y in items.y] == ["wren", "robin", "robin"]
    assert items.split.tolist() == ["train"] * 3 and items.box[1].tolist() == [10, 0, 40, 15]
    assert [(c["row"], c["change"]) for c in csv.DictReader(io.StringIO(changes))] == [
        ("1", "relabel"),
        ("3", "remove"),
    ]


def test_an_audit_is_found_by_its_folder_or_its_run(run):
    assert find_audit(str(run), "review") == find_audit(str(run / "audit"), "review") == run / "audit"
    with pytest.raises(LikewiseError, match="nowhere'; run `likewise audit`"):
        review(Review(str(run / "nowhere")))


def test_what_stands_in_the_way_is_told(run, tmp_path):
    with pytest.raises(LikewiseError, match="--token-file .* got 'nowhere'"):
        review(Review(str(run), token_file="nowhere"))
    (tmp_path / "mine.sqlite").write_bytes(b"no store" * 1000)
    with pytest.raises(LikewiseError, match="mine.sqlite is damaged"):
        review(Review(str(run), store=str(tmp_path / "mine.sqlite")))


@pytest.mark.slow
@pytest.mark.process
def test_without_the_extra_it_says_what_to_install(run):
    code = (
        "import sys; sys.modules['fastapi'] = None; from likewise.cli.main import main; main(['review', sys.argv[1]])"
    )
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    told = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, env=here)
    assert told.returncode == 2 and "pip install 'likewise[serve]'" in told.stderr and "Traceback" not in told.stderr
