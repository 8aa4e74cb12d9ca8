"""A widget's view in a browser, with a small model in place of the notebook's: tests drive the view and read its messages."""

import base64
import json

from browser import listen

MODEL = """
class Model {
  constructor(state) { Object.assign(this, { state, sent: [], saved: [], acts: {}, changed: {} }); }
  get(name) { return this.state[name]; }
  set(name, value) { this.state[name] = value; this.changed[name] = value; this.emit(`change:${name}`); }
  save_changes() { this.saved.push(this.changed); this.changed = {}; }
  send(content) { this.sent.push(content); }
  on(event, act) { (this.acts[event] ||= []).push(act); }
  off(event, act) { this.acts[event] = (this.acts[event] || []).filter((one) => one !== act); }
  emit(event, ...values) { (this.acts[event] || []).forEach((act) => act(...values)); }
}
const bytes = (text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
window.deliver = (content, coded) => model.emit("msg:custom", content, coded.map(bytes));
window.start = async (state) => {
  const source = URL.createObjectURL(new Blob([state._esm], { type: "text/javascript" }));
  const revive = (value) => (value && value.bytes !== undefined ? bytes(value.bytes) : value);
  window.model = new Model(Object.fromEntries(Object.entries(state).map(([name, value]) => [name, revive(value)])));
  document.head.append(Object.assign(document.createElement("style"), { textContent: state._css }));
  window.leave = (await import(source)).default.render({ model: window.model, el: document.getElementById("cell") });
};
"""


class View:
    """The view of a widget on an empty page. `answer` passes the view's messages to the widget, and its replies to the view."""

    def __init__(self, browser, widget):
        self.widget, self.page, self.replies = widget, browser.new_page(), []
        self.page.set_default_timeout(10_000)
        self.asked, self.wrong = listen(self.page)
        self.page.set_content('<!doctype html><meta charset="utf-8"><div id="cell" style="width: 800px"></div>')
        self.page.evaluate(f"() => {{ {MODEL} }}")
        widget.send = lambda content, buffers=None: self.replies.append((content, buffers or []))
        self.page.evaluate("(state) => start(state)", self.state())

    def state(self):
        """Return the widget's state as JSON, with bytes as base64."""
        plain = {k: v for k, v in self.widget.get_state().items() if k in ("_esm", "_css") or not k.startswith("_")}
        return json.loads(json.dumps(plain, default=lambda value: {"bytes": base64.b64encode(value).decode()}))

    def sent(self):
        """Return the messages of the view since the last call."""
        return self.page.evaluate("() => model.sent.splice(0)")

    def answer(self):
        """Pass the messages of the view to the widget, and its replies to the view; return the messages."""
        new = self.sent()
        for content in new:
            self.widget._handle_custom_msg(content, [])
        for content, buffers in self.replies:
            coded = [base64.b64encode(body).decode() for body in buffers]
            self.page.evaluate("([content, coded]) => deliver(content, coded)", [content, coded])
        self.replies.clear()
        return new

    def close(self):
        """Remove the view and check that it loaded nothing from elsewhere and raised no error."""
        self.page.evaluate("() => leave()")
        assert not any(self.page.evaluate("() => Object.values(model.acts)"))
        self.page.close()
        assert [url for url in self.asked if not url.startswith(("blob:", "data:"))] == [] and self.wrong == []
