// View of ReviewWidget: one question, its buttons and keys. Python holds the decisions; images come as bytes, by row.

function make(tag, name, ...children) {
  const one = document.createElement(tag);
  if (name) one.className = name;
  one.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return one;
}

// JupyterLab matches its shortcuts (X cuts the cell) against the focused element: everything that takes focus opts out.
function focusable(one) {
  one.setAttribute("data-lm-suppress-shortcuts", "true");
  return one;
}

const asUrl = (view) => new Promise((done) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.readAsDataURL(new Blob([view], { type: "image/jpeg" }));
});

const MAX_IMAGES = 400;

// Images by row and size: each is requested once, when it is first shown.
function imageStore(model) {
  const known = new Map(), waiting = new Map();
  const fill = (slot, { url, error }) => {
    if (url) slot.replaceChildren(Object.assign(make("img"), { src: url, alt: "" }));
    else slot.replaceChildren(make("span", "lw-missing", error));
  };
  const request = (row, large, slot) => {
    const key = `${row} ${large}`;
    if (known.has(key)) return slot && fill(slot, known.get(key));
    if (waiting.has(key)) return slot && waiting.get(key).push(slot);
    waiting.set(key, slot ? [slot] : []);
    model.send({ do: "image", row, large });
  };
  const receive = async (content, buffers) => {
    if (!content || content.image === undefined) return;
    const key = `${content.image} ${content.large}`;
    const found = content.error ? { error: content.error } : { url: await asUrl(buffers[0]) };
    if (known.size >= MAX_IMAGES) known.delete(known.keys().next().value);
    known.set(key, found);
    (waiting.get(key) || []).forEach((slot) => fill(slot, found));
    waiting.delete(key);
  };
  return { request, receive };
}

function render({ model, el }) {
  const images = imageStore(model);
  const root = focusable(make("div", "likewise-widget lw-review"));
  root.tabIndex = 0;
  const main = make("div", "lw-main"), buttons = make("div", "lw-buttons"), moves = make("div", "lw-buttons");
  const bar = make("progress"), count = make("span", "lw-count"), message = make("p", "lw-message");
  message.setAttribute("role", "status");
  const list = make("datalist"), field = focusable(make("input")), other = make("form", "lw-other");
  list.id = `likewise-${Math.random().toString(36).slice(2)}`;
  field.setAttribute("list", list.id);
  field.placeholder = "Other label";
  const fresh = focusable(Object.assign(make("input"), { type: "checkbox" }));
  other.append(field, list, make("label", "", fresh, " new class"), press("", "Change", () => sendOther()));
  other.hidden = true;
  root.append(make("div", "lw-head", bar, count), main, buttons, other, moves, message);
  el.append(root);

  const question = () => model.get("question");
  const isShown = () => Boolean(question().item);
  const send = (action, more = {}) => model.send({ do: action, ...more });
  const decide = (choice, label = "", isNew = false) => isShown() && send("decide", { item: question().item, choice, label, new_class: isNew });

  function press(key, words, act, name = "") {
    const one = focusable(make("button", name, words, key ? make("kbd", "", key.length === 1 ? key.toUpperCase() : { Backspace: "⌫", ArrowLeft: "←", ArrowRight: "→" }[key]) : null));
    one.type = "button";
    if (key) one.dataset.key = key;
    one.addEventListener("click", () => act());
    return one;
  }

  function openOther() {
    if (!isShown()) return;
    other.hidden = false;
    field.value = "";
    fresh.checked = false;
    field.focus();
  }

  function sendOther() {
    if (field.value.trim()) decide("relabel", field.value.trim(), fresh.checked);
    root.focus({ preventScroll: true });
  }

  function picture(one, large = false, caption = one.label) {
    const slot = make("div", large ? "lw-image lw-large" : "lw-image");
    if (model.get("pictures")) images.request(one.row, large, slot);
    else slot.append(make("span", "lw-missing", one.name));
    const figure = make("figure", "", slot, caption ? make("figcaption", "", caption) : null);
    figure.title = one.name;
    return figure;
  }

  function strip(words, label, found) {
    if (!found.length) return null;
    return make("section", "", make("h4", "", `${words} `, make("b", "", label)), make("div", "lw-strip", ...found.map((one) => picture(one, false, label ? "" : one.label))));
  }

  function draw() {
    const asked = question(), many = isShown() && asked.rows.length > 1, hadFocus = root.contains(root.getRootNode().activeElement);
    const { done = 0, whole = 0, place = 0 } = model.get("progress");
    Object.assign(bar, { max: Math.max(whole, 1), value: done });
    count.textContent = `${done} of ${whole} reviewed${isShown() ? `, label ${place + 1}` : ""}`;
    list.replaceChildren(...model.get("classes").map((name) => Object.assign(make("option"), { value: name })));
    other.hidden = true;
    main.replaceChildren(...(isShown() ? (many ? copies(asked) : sample(asked)) : [make("p", "lw-end", whole ? `The last label is reached: ${done} of ${whole} are reviewed.` : "The audit flags no label.")]));
    buttons.replaceChildren(...(isShown() ? actions(asked, many) : []));
    buttons.querySelectorAll("button").forEach((one) => one.classList.toggle("lw-chosen", Boolean(asked.choice) && one.dataset.choice === asked.choice));
    moves.replaceChildren(press("Backspace", "Undo", () => send("undo")), press("ArrowLeft", "Back", () => send("go", { step: -1 })),
      press("ArrowRight", "Next", () => send("go", { step: 1 })), press("", "Write corrected.csv", () => send("write"), "lw-write"));
    if (hadFocus) root.focus({ preventScroll: true });
    (isShown() ? asked.ahead : []).forEach((row) => model.get("pictures") && images.request(row, true));
  }

  function sample(asked) {
    const panel = asked.panels[0];
    const made = asked.choice ? make("p", "lw-quiet", `Your decision: ${asked.choice} ${asked.new_label}`) : null;
    const title = asked.state === "off-topic" ? "This image seems to fit no class." : make("span", "", "Labelled ", make("b", "", asked.label), ...(asked.suggested ? [", looks like ", make("b", "", asked.suggested)] : []));
    const sure = asked.probability === null ? "" : ` (${Math.round(100 * asked.probability)} %)`;
    return [make("div", "lw-asked", make("h3", "", title, sure), picture(panel, true, panel.name), made),
      make("div", "lw-side", strip("Labelled", asked.label, panel.claimed), asked.suggested ? strip("Looks like", asked.suggested, panel.instead) : null,
        strip("Nearest images", "", panel.near), strip("The same image", "", panel.copies))];
  }

  function copies(asked) {
    const words = make("h3", "", `The same image exists ${asked.rows.length} times, with different labels. Which one is right?`);
    return [make("div", "lw-asked", words, make("div", "lw-strip", ...asked.panels.slice(0, 4).map((panel) => picture(panel, true, panel.label))))];
  }

  function actions(asked, many) {
    const choice = (one, name) => { one.dataset.choice = name; return one; };
    const last = [press("l", "Other label…", openOther), choice(press("x", many ? "Remove all" : "Remove", () => decide("remove")), "remove"), choice(press("u", "Unsure", () => decide("unsure")), "unsure")];
    if (many) return [...[...new Set(asked.labels)].slice(0, 9).map((label, n) => press(String(n + 1), `It is ${label}`, () => decide("relabel", label))), ...last];
    const change = asked.suggested ? [choice(press("r", `Change to ${asked.suggested}`, () => decide("relabel", asked.suggested)), "relabel")] : [];
    return [choice(press("k", `Keep ${asked.label}`, () => decide("keep")), "keep"), ...change, ...last];
  }

  root.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.target === field) {
      if (event.key === "Escape") { other.hidden = true; root.focus({ preventScroll: true }); }
      return;
    }
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const found = [...root.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
    if (!found) return;
    event.preventDefault();
    found.click();
  });
  other.addEventListener("submit", (event) => { event.preventDefault(); sendOther(); });

  const tell = () => { message.textContent = model.get("message"); };
  const reactions = [["change:question", draw], ["change:progress", draw], ["change:classes", draw], ["change:message", tell], ["msg:custom", images.receive]];
  reactions.forEach(([event, act]) => model.on(event, act));
  draw();
  tell();
  return () => reactions.forEach(([event, act]) => model.off(event, act));
}

export default { render };
