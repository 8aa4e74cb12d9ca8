"""The served search, in a process of its own: a picture in, rows out, changes kept, a polite end; bytes that are no picture."""

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

pytest.importorskip("fastapi", reason="the search page needs FastAPI")

from likewise.config import Search
from likewise.errors import LikewiseError

from likewise.core.http import take_port
from likewise.deploy.index.search_index import search
from likewise.deploy.index.vector_index import Index
from likewise.deploy.search.search_page import check_serving, decode, open_image


class Process:
    """`likewise search --serve`, in a process of its own."""

    def __init__(self, *words):
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-m", "likewise", "search", *words, "--serve", "--port", "0", "--device", "cpu"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=here)
        self.said = []
        while not self.said or "http://" not in self.said[-1]:
            self.said.append(self.process.stdout.readline())
        self.address, _, token = self.said[-1].split()[1].partition("?token=")
        self.headers = {"Authorization": f"Bearer {urllib.parse.unquote(token)}"}

    def ask(self, path, body=None, method=None):
        request = urllib.request.Request(self.address + path, body, self.headers, method=method)
        return urllib.request.urlopen(request, timeout=600).read()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        said, wrong = self.process.communicate(timeout=600)
        return self.process.returncode, said, wrong


def test_from_run_to_page_and_back(picture_run, pictures, tmp_path):
    folder = tmp_path / "shop"
    served = Process(str(picture_run.path), "--save", str(folder), "--quiet")
    body = (pictures / "4 färg" / "bild 3.png").read_bytes()
    try:
        about = json.loads(served.ask("api/about"))
        assert about["rows"] == 36 and about["network"] and about["changes"]
        told = json.loads(served.ask("api/search?k=5", body))
        expected = search(Search(str(folder), query=str(pictures / "4 färg" / "bild 3.png"), device="cpu"))
        assert [one["row"] for one in told["found"]] == [one["row"] for one in expected]
        assert Image.open(io.BytesIO(served.ask("picture/20"))).size == (24, 20)
        assert json.loads(served.ask("api/rows?class=new", body))["row"] == 36
        served.ask("api/rows/18", method="DELETE")
        with pytest.raises(urllib.error.HTTPError, match="415"):
            served.ask("api/search", b"no picture")
    finally:
        code, _, wrong = served.interrupt()
    assert code == 0 and wrong == "" and served.said[0] == f"index: {folder} (36 rows, exact)\n"
    assert served.said[1] == f"searched: 36 images, 6 classes: all of {pictures.name}\n"
    again = Index.open(folder)
    assert (
        again.rows.table["row"][again.rows.here].tolist() == [*range(18), *range(19, 37)]
        and again.rows.label(36) == "new"
    )


def test_what_stands_in_the_way_is_told_before_the_work(picture_run, monkeypatch):
    monkeypatch.setenv("LIKEWISE_TOKEN", "a token of 24 characters")
    target = str(picture_run.path)
    for settings, says in [
        ({"token_file": "nowhere"}, "search: --token-file must be a text file, got 'nowhere'"),
        ({"max_upload": "lots"}, "search: --max-upload must be an amount such as '20MB', got 'lots'"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            search(Search(target, serve=True, **settings))
    with take_port("search", "127.0.0.1", 0) as held, pytest.raises(LikewiseError, match="is in use; choose another"):
        search(Search(target, serve=True, port=held.getsockname()[1], device="cpu"))
    assert check_serving(Search(target, max_upload="2MB")) == (2 * 2**20, "a token of 24 characters")


@pytest.mark.slow
@pytest.mark.process
def test_without_the_extra_it_says_what_to_install(picture_run):
    code = "import sys; sys.modules['fastapi'] = None; from likewise.cli.main import main; main(sys.argv[1:])"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", code, "search", str(picture_run.path), "--serve"]
    told = subprocess.run(command, capture_output=True, text=True, env=here)
    assert told.returncode == 2 and "pip install 'likewise[serve]'" in told.stderr and "Traceback" not in told.stderr


def coded(image, kind, **how):
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def seen(body):
    return decode(open_image(body))


def test_bytes_become_the_picture_that_people_see():
    turned = Image.new("RGB", (20, 10))
    exif = turned.getexif()
    exif[0x112] = 6  # the camera was held upright
    image = seen(coded(turned, "JPEG", exif=exif))
    assert image.size == (10, 20) and image.mode == "RGB"
    image = seen(coded(Image.new("RGBA", (4, 4), (0, 0, 0, 0)), "PNG"))
    assert image.getpixel((0, 0)) == (255, 255, 255)  # transparent parts on white
    frames = [Image.new("L", (5, 5), grey) for grey in (0, 200)]
    image = seen(coded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert image.getpixel((0, 0)) == (0, 0, 0)  # the first frame
    pair = coded(Image.new("RGB", (8, 8)), "MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))])
    assert seen(pair).size == (8, 8)  # as phones write them
    assert open_image(b"%PDF-1.7") is None and open_image(b"") is None


def test_a_decoded_picture_leaves_nothing_behind():
    opened = open_image(coded(Image.new("RGB", (8, 8)), "PNG"))
    decode(opened)
    with pytest.raises(ValueError, match="closed image"):
        opened.getpixel((0, 0))


def test_huge_and_broken_pictures_are_told(monkeypatch):
    monkeypatch.setattr("likewise.deploy.search.search_page.MAX_IMAGE_PIXELS", 50)
    with pytest.raises(LikewiseError, match="got 10 x 10; shrink it first"):
        seen(coded(Image.new("L", (10, 10)), "PNG"))
    monkeypatch.undo()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(LikewiseError, match="got many more"):
        seen(coded(Image.new("L", (10, 10)), "PNG"))
    with pytest.raises(LikewiseError, match="damaged or incomplete"):
        seen(coded(Image.new("RGB", (3, 3)), "BMP")[:40])
