"""A page as tests read it."""

from html.parser import HTMLParser


class Reader(HTMLParser):
    """The page as a browser takes it: tags with attributes, ids, texts; every tag must be closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "input", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join("".join(self.texts).split())

    def sections(self):
        return [attrs["id"] for tag, attrs in self.tags if tag == "section"]
