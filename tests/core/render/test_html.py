"""HTML pages: how numbers and names are written, pictures as data URIs, and the frame that every page shares."""

import base64
import io

import numpy as np
from PIL import Image

from likewise.core.render.html import TEMPLATES, data_uri, environment, score_text, shrunk


def written(expression, **values):
    return environment().from_string(f"{{{{ {expression} }}}}").render(values)


def test_numbers_are_written_where_there_are_any():
    assert [written("v | n", v=v) for v in (1234.4, None, float("nan"))] == ["1,234", "", ""]
    assert [written("v | pct", v=v) for v in (0.1234, 0.0004, 0)] == ["12.3%", "&lt; 0.1%", "0.0%"]
    assert [score_text(v) for v in (0.0, 0.0004, 0.25)] == ["0.000", "< 0.001", "0.250"]
    assert (
        written("v | signed(2)", v=-1.5) == "\N{MINUS SIGN}1.50"
        and written("v | sentence", v="so it is.") == "So it is."
    )


def test_names_are_text_and_may_be_broken():
    assert written("v | name", v="a_b/<i>\n") == "a_<wbr>b/<wbr>&lt;i&gt; "


def test_pictures_are_shrunk_in_their_proportions_and_come_back():
    image = Image.fromarray(np.zeros((20, 40, 3), np.uint8))
    assert shrunk(image, 10).size == (10, 5) and shrunk(image, 100) is image
    head, _, body = data_uri(image, "WEBP").partition(",")
    assert head == "data:image/webp;base64" and Image.open(io.BytesIO(base64.b64decode(body))).size == (40, 20)


def test_every_page_extends_one_frame_and_writes_no_head_of_its_own():
    pages = {"audit.html", "benchmark.html", "report.html"}
    heads = {file.name for file in TEMPLATES.glob("*.html") if "<head>" in file.read_text("utf-8")}
    children = {
        file.name for file in TEMPLATES.glob("*.html") if '{%- extends "page.html" %}' in file.read_text("utf-8")
    }
    assert heads == {"page.html"} and children == pages
