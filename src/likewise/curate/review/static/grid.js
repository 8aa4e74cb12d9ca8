// The contact sheet: many labels at once. A click selects; Shift selects up to here; a decision is for all that are selected.
import { byId } from "/static/server.js";
import { broken, make, percent, picture, plural, set, state, zoom } from "/static/elements.js";
import { zoomable } from "/static/item.js";

const CHUNK = 120;
const DONE = { keep: "kept", add: "added", relabel: "changed", remove: "removed", unsure: "unsure" };
let listed = [];
let drawn = new Map();
let hooks = { changed: () => undefined, more: () => undefined, open: () => undefined };

export const hook = (given) => { hooks = given; };
export const selected = () => listed.filter((tile) => state.chosen.has(tile.item));
const selectable = (tile) => tile.rows.length === 1;
const isListed = (tile) => byId("show").value !== "open" || !tile.choice;

function badge(tile) {
  if (tile.choice) return make("span", "badge done", DONE[tile.choice] + (tile.new_label ? ` to ${tile.new_label}` : ""));
  if (!tile.flagged) return make("span", "badge", "not flagged");
  return tile.probability === null ? null : make("span", "badge", percent(tile.probability));
}

function words(tile) {
  if (tile.question) return [make("span", "given", ...broken(tile.tags.join(", "))), make("span", "new", tile.question === "missing" ? "+ " : "− ", ...broken(tile.label))];
  if (!selectable(tile)) return [make("span", "given", `${plural(tile.rows.length, "copy", "copies")}, ${new Set(tile.labels).size} labels: decide one by one`)];
  if (tile.state === "off-topic") return [make("span", "given", ...broken(tile.label)), make("span", "new", "fits no class")];
  return [make("span", "given", ...broken(tile.label)), tile.suggested ? make("span", "new", "→ ", ...broken(tile.suggested)) : null];
}

function card(tile) {
  const name = tile.question ? `${tile.label} ${tile.question}, ${tile.name}` : `${tile.label}${tile.suggested ? `, looks like ${tile.suggested}` : ""}, ${tile.name}`;
  const pick = make("button", "pick", make("span", "frame", picture(tile.rows[0], tile.name, "", false)), make("span", "words", ...words(tile)));
  pick.querySelectorAll("img").forEach((image) => set(image, { loading: "lazy", alt: "" }));
  set(pick, { type: "button", tabIndex: -1, ariaLabel: name, title: `${tile.name}: double-click to open`, onclick: (event) => click(tile, event), ondblclick: () => hooks.open(tile) });
  const look = set(make("button", "look", "⤢"), { type: "button", tabIndex: -1, title: "Show it large (Z)", ariaLabel: `Show ${tile.name} large`, onclick: () => zoom(zoomable(tile), 0) });
  const one = make("div", "tile", pick, look, badge(tile));
  pick.setAttribute("aria-pressed", String(state.chosen.has(tile.item)));
  one.dataset.item = tile.item;
  return one;
}

function click(tile, event) {
  if (!selectable(tile)) return hooks.open(tile);
  if (event.shiftKey && state.anchor !== null) range(state.anchor, tile.item);
  else {
    if (state.chosen.has(tile.item)) state.chosen.delete(tile.item);
    else state.chosen.add(tile.item);
    state.anchor = tile.item;
  }
  focus(tile.item, false);
  mark();
}

function range(from, to) {
  const places = [from, to].map((item) => listed.findIndex((tile) => tile.item === item)).sort((a, b) => a - b);
  listed.slice(Math.max(places[0], 0), places[1] + 1).filter(selectable).forEach((tile) => state.chosen.add(tile.item));
}

function focus(item, move = true) {
  drawn.forEach((one, own) => { one.firstChild.tabIndex = own === item ? 0 : -1; });
  if (move && drawn.has(item)) drawn.get(item).firstChild.focus();
}

function mark() {
  drawn.forEach((one, item) => one.firstChild.setAttribute("aria-pressed", String(state.chosen.has(item))));
  hooks.changed();
}

export function clear() {
  state.chosen.clear();
  mark();
}

export const above = () => listed.filter((tile) => selectable(tile) && !tile.choice && tile.probability !== null && tile.probability >= Number(byId("above").value));

export function selectAbove() {
  above().forEach((tile) => state.chosen.add(tile.item));
  grow(listed.length && listed.indexOf(selected().at(-1)) + 1);
  mark();
}

function grow(upTo) {
  const sheet = byId("sheet");
  for (const tile of listed.slice(drawn.size, Math.max(upTo, 0))) {
    const one = card(tile);
    drawn.set(tile.item, one);
    sheet.append(one);
  }
}

function reach() {
  if (drawn.size < listed.length) grow(drawn.size + CHUNK);
  else hooks.more();
}

const watcher = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && reach(), { rootMargin: "600px" });

// Draw all tiles again; the place in the page is kept.
export function drawGrid() {
  const main = byId("main"), top = main.scrollTop, before = Math.max(drawn.size, CHUNK);
  listed = state.tiles.filter(isListed);
  drawn = new Map();
  const items = new Set(listed.map((tile) => tile.item));
  state.chosen.forEach((item) => items.has(item) || state.chosen.delete(item));
  const limit = byId("above") ? byId("above").value : "0.99";
  const least = set(make("input"), { id: "above", type: "number", min: 0, max: 1, step: 0.01, value: limit, ariaLabel: "Least probability", oninput: () => hooks.changed() });
  const all = set(make("button", "", "Select all"), { id: "all", type: "button", onclick: selectAbove });
  all.dataset.key = "a";
  const head = make("div", "bar", make("h2", "question", ""), make("span", "spread"), make("span", "together", all, make("label", "", "from a probability of ", least)));
  const sheet = set(make("div", "sheet"), { id: "sheet" });
  const end = set(make("div", "end"), { id: "end" });
  main.className = "grid";
  main.replaceChildren(head, sheet, end);
  grow(before);
  const first = drawn.values().next().value;
  if (first) first.firstChild.tabIndex = 0;
  main.scrollTop = top;
  watcher.disconnect();
  watcher.observe(end);
  sheet.onkeydown = keys;
  hooks.changed();
}

// Add tiles that were loaded, without drawing the others again.
export function extend() {
  const old = new Set(listed.map((tile) => tile.item));
  listed.push(...state.tiles.filter((tile) => isListed(tile) && !old.has(tile.item)));
  grow(drawn.size + CHUNK);
  watcher.disconnect();
  watcher.observe(byId("end"));
  hooks.changed();
}

export function headline() {
  const open = listed.filter((tile) => tile.flagged && !tile.choice).length;
  byId("all").disabled = !above().length;
  byId("all").replaceChildren(`Select all ${above().length}`, make("kbd", "", "A"));
  document.querySelector(".bar .question").textContent = listed.length ? `${plural(open, "label looks", "labels look")} ${state.about.several_labels ? "missing or wrong" : "wrong"}. Select the ones that you agree with.` : "";
  return listed.length;
}

export const focused = () => {
  const one = document.activeElement && document.activeElement.closest(".tile");
  return one ? listed.find((tile) => tile.item === one.dataset.item) : undefined;
};

function keys(event) {
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() }[event.key];
  const here = focused();
  if (by === undefined || !here) return;
  event.preventDefault();
  event.stopPropagation();
  const to = Math.min(Math.max(listed.indexOf(here) + by, 0), listed.length - 1);
  if (to >= drawn.size) grow(to + CHUNK);
  if (event.shiftKey) {
    if (state.anchor === null) state.anchor = here.item;
    range(state.anchor, listed[to].item);
    mark();
  }
  focus(listed[to].item);
}

const columns = () => getComputedStyle(byId("sheet")).gridTemplateColumns.split(" ").length;

export function start() {
  if (!focused() && drawn.size) focus(drawn.keys().next().value);
}
