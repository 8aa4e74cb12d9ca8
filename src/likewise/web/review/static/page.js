// The review page: what is shown, decisions, undo, keys. `state.tiles` is the queue; a sample outside of it is shown "aside", and
// after a decision about it the queue continues where it was. A decision takes effect on the page at once and is sent in the
// background, so that no key is lost; if the server refuses it, the page goes back to it.
import { ask, byId, say, send, settled } from "/static/server.js";
import { broken, details, known, make, plural, quoted, reviewer, set, source, state, zoom } from "/static/elements.js";
import { layout, view, zoomable } from "/static/item.js";
import { choose, ending, help, people } from "/static/ending.js";
import * as sheet from "/static/grid.js";

const PAGE = 100;
const DID = { keep: "kept", add: "added", remove: "removed", unsure: "unsure", agreeable: "yes", disagreeable: "no" };
const FINDINGS = { flagged: "labels that look wrong", conflict: "same image, several labels", "off-topic": "images of no class",
  missing: "labels that may be missing", superfluous: "labels that may be wrong" };
const ready = new Map();
let loading = false;
let turns = Promise.resolve();

const current = () => state.view === "end" ? null : state.aside || state.tiles[state.at] || null;
const main = () => state.about.several_labels ? "label" : "sample";
const whole = (tile) => Boolean(tile.type || tile.question);
const named = (tile) => tile.question ? `${tile.label}, ${tile.name}` : tile.rows.length > 1 && !tile.type ? `${tile.name} and its ${tile.rows.length === 2 ? "copy" : "copies"}` : tile.name;

// Loads replace the queue. They run one after another, so that the last filter wins; meanwhile the page is dimmed and takes no
// decisions, because they would be about an item of the old queue.
function inTurn(work) {
  state.busy += 1;
  document.body.classList.add("loading");
  turns = turns.then(settled).then(work).catch((error) => say(error.message, true)).finally(() => {
    state.busy -= 1;
    document.body.classList.toggle("loading", state.busy > 0);
  });
}

// What every choice means for the rows of a question.
const choices = (tile, choice, label) => whole(tile) ? [{ item: tile.item, choice }] : tile.rows.map((row, i) => {
  const other = choice === "relabel" && tile.labels[i] === label ? "keep" : choice;
  return { item: String(row), choice: other, label: other === "relabel" ? label : "" };
});

function commit(asked, fresh = false) {
  if (!asked.length || state.busy) return;
  if (!reviewer()) return people(() => { commit(asked, fresh); load(); }).catch((error) => say(error.message, true));
  const note = byId("note").value.trim();
  const wanted = asked.map((one) => ({ ...one, sent: choices(one.tile, one.choice, one.label || "") }));
  const same = (one) => one.tile.choice === one.sent[0].choice && (one.tile.new_label || "") === (one.sent[0].label || "") && one.tile.note === note && one.tile.rows.length === 1;
  const fresher = wanted.filter((one) => !same(one));
  const entry = { kind: state.kind, view: state.view, at: state.at, changed: fresher.map(({ tile }) => ({ tile, before: { choice: tile.choice, new_label: tile.new_label, note: tile.note } })) };
  for (const { tile, sent } of fresher) {
    set(tile, { choice: sent[0].choice, new_label: sent[0].label || "", note });
    ready.delete(tile.item);
    state.details.delete(tile.item);
  }
  if (fresh && !known().includes(asked[0].label)) state.about.added.push(asked[0].label);
  const body = { reviewer: reviewer(), choices: fresher.flatMap((one) => one.sent), note, new_class: fresh };
  const several = asked.some((one) => one.choice !== asked[0].choice);
  const words = asked.length > 1 ? `${plural(asked.length, "label")}: ${several || asked[0].choice === "relabel" ? "changed" : DID[asked[0].choice]}.` : `${named(asked[0].tile)}: ${asked[0].choice === "relabel" ? `changed to ${asked[0].label}` : DID[asked[0].choice]}.`;
  byId("note").value = "";
  byId("note").blur();
  if (fresher.length) {
    state.history.push(entry);
    send("/api/decide", null, body).then((answer) => { count(answer); say(`Saved. ${words}`); }, (error) => refuse(entry, error));
  } else say(`Saved. ${words}`);
  onward();
}

function restore(entry) {
  for (const { tile, before } of entry.changed) {
    const own = state.tiles.find((one) => one.item === tile.item && Boolean(one.type) === Boolean(tile.type)) || tile;
    set(own, before);
    ready.delete(tile.item);
    state.details.delete(tile.item);
  }
}

function refuse(entry, error) {
  restore(entry);
  state.history = state.history.filter((one) => one !== entry);
  state.at = Math.min(state.at, entry.at);
  draw();
  say(`Not saved: ${error.message}`, true);
}

function onward() {
  if (state.view === "grid") {
    state.chosen.clear();
    return sheet.drawGrid();
  }
  if (state.aside) state.aside = null;
  else {
    state.at += 1;
    skipDecided();
  }
  draw();
}

// With the filter "to review", labels that were decided in the grid are passed over.
function skipDecided() {
  if (byId("show").value !== "open" || state.kind === "pair") return;
  while (state.at < state.tiles.length && state.tiles[state.at].choice) state.at += 1;
}

const decide = (choice, label) => { const tile = current(); if (tile) commit([{ tile, choice, label }]); };
const decideAll = (choice, pick = () => "") => commit(sheet.selected().map((tile) => ({ tile, choice, label: pick(tile) })).filter((one) => choice !== "relabel" || one.label));

function undo() {
  if (state.busy) return;
  const entry = state.history.pop();
  if (!entry || entry.kind !== state.kind || !entry.changed.every(({ tile }) => state.tiles.some((one) => one.item === tile.item))) return undoThere();
  restore(entry);
  state.aside = null;
  if (state.view === "end") state.view = entry.view === "grid" ? "grid" : "one";
  if (state.view === "grid") entry.changed.forEach(({ tile }) => state.chosen.add(tile.item));
  else state.at = state.tiles.findIndex((one) => one.item === entry.changed[0].tile.item);
  draw();
  send("/api/undo", { reviewer: reviewer() }, {}).then((answer) => {
    const items = new Set(answer.undone.map((one) => one.item));
    const told = entry.changed.every(({ tile }) => items.has(whole(tile) ? tile.item : String(tile.rows[0])));
    if (!told) return load();
    count(answer);
    say(entry.changed.length > 1 ? `Undone: ${plural(entry.changed.length, "label")}.` : `Undone: ${named(entry.changed[0].tile)}.`);
  }).catch((error) => { say(error.message, true); load(); });
}

// An undo of something that was decided before this page was loaded, or in another view.
const undoThere = () => inTurn(async () => {
  const { undone } = await ask("/api/undo", { reviewer: reviewer() }, {});
  if (!undone.length) return say("There is nothing to undo.");
  state.history = [];
  ready.clear();
  state.details.clear();
  kind(undone[0].kind);
  if (state.view !== "grid") state.view = "one";
  await fetchQueue();
  const at = state.tiles.findIndex((tile) => tile.item === undone[0].item || (!whole(tile) && tile.rows.includes(Number(undone[0].item))));
  if (at >= 0) state.at = at;
  else state.aside = await details(undone[0].item);
  draw();
  say(undone.length > 1 ? `Undone: ${plural(undone.length, "label")}.` : `Undone: ${undone[0].choice} ${undone[0].label}`.trim() + ".");
});

const chooseOther = () => {
  const many = state.view === "grid", tiles = many ? sheet.selected() : [current()].filter(Boolean);
  if (!tiles.length) return;
  const panels = (!many && ready.get(tiles[0].item)?.panels) || [];
  const likely = [...tiles.flatMap((tile) => tile.rows.length > 1 ? [...tile.labels, tile.suggested] : [tile.suggested]), ...panels.flatMap((panel) => panel.near.map((n) => n.label))];
  const but = tiles.length === 1 && tiles[0].rows.length === 1 ? tiles[0].label : "";
  choose(likely.slice(0, 12), but, [...new Set(panels.map((panel) => panel.split))], (label, fresh) => commit(tiles.map((tile) => ({ tile, choice: "relabel", label })), fresh));
};

function actions(tile) {
  if (state.view === "grid") return gridActions();
  if (!tile) return [];
  if (tile.type) return [["y", "Yes, a person would too", () => decide("agreeable"), "Hard to tell apart for people too", "agreeable"], ["n", "No", () => decide("disagreeable"), "The model misses what a person sees", "disagreeable"]];
  if (tile.question) return labelActions(tile);
  const many = tile.rows.length > 1;
  const last = [["l", "Other label…", chooseOther, "Any class, or a new one"], ["x", many ? (tile.rows.length === 2 ? "Remove both" : "Remove all") : "Remove", () => decide("remove"), "It belongs to no class", "remove"],
    ["u", "Unsure", () => decide("unsure"), "Leave the decision to others", "unsure"]];
  if (many) return [...[...new Set(tile.labels)].slice(0, 9).map((label, i) => [String(i + 1), ["It is ", label], () => decide("relabel", label), `All copies get the label ${label}`, `label ${label}`]), ...last];
  return [["k", ["Keep ", tile.label], () => decide("keep"), "The label is right", "keep"],
    ...(tile.suggested ? [["r", ["Change to ", tile.suggested], () => decide("relabel", tile.suggested), "Give it the suggested label", "relabel"]] : []), ...last];
}

// What the audit suggests about a label of a sample with several labels.
const change = (tile) => tile.question === "missing" ? "add" : "remove";

function labelActions(tile) {
  const missing = tile.question === "missing";
  return [["r", [missing ? "Add " : "Remove ", tile.label], () => decide(change(tile)), missing ? "The image has this label" : "The image does not have this label", change(tile)],
    ["k", missing ? "Not missing" : ["Keep ", tile.label], () => decide("keep"), "The labels are right as they are", "keep"],
    ["u", "Cannot tell", () => decide("unsure"), "Leave the decision to others", "unsure"]];
}

function gridLabelActions(tiles) {
  const accept = () => commit(tiles.map((tile) => ({ tile, choice: change(tile) })));
  return [["r", `Accept ${plural(tiles.length, "suggestion")}`, accept, "Add the missing and remove the superfluous labels that are selected", "relabel"],
    ["k", `Keep ${tiles.length}`, () => decideAll("keep"), "The selected images keep their labels", "keep"], ["Escape", "Select none", () => sheet.clear(), "Select none (Esc)"]];
}

function gridActions() {
  const tiles = sheet.selected(), n = tiles.length, able = tiles.filter((tile) => tile.suggested).length;
  const words = (text) => n ? text : "";
  if (!n) return [];
  if (tiles[0].question) return gridLabelActions(tiles);
  return [["r", words(`Accept ${able === n ? plural(n, "suggestion") : `${able} of ${n} suggestions`}`), () => decideAll("relabel", (tile) => tile.suggested), "Change the selected labels to the suggested ones", "relabel", !able],
    ["k", `Keep ${plural(n, "label")}`, () => decideAll("keep"), "The selected labels are right", "keep"], ["l", "Other label…", chooseOther, "One class for all that are selected"],
    ["x", `Remove ${n}`, () => decideAll("remove"), "The selected images belong to no class", "remove"], ["Escape", "Select none", () => sheet.clear(), "Select none (Esc)"]];
}

function button([key, words, act, title, choice, off]) {
  const parts = Array.isArray(words) ? [words[0], make("span", "name", ...broken(quoted(words[1])))] : [words];
  const shown = key.length === 1 ? key.toUpperCase() : { Backspace: "⌫", Escape: "Esc" }[key];
  const one = make("button", (choice || "other").split(" ")[0], make("span", "text", ...parts), shown ? make("kbd", "", shown) : null);
  set(one, { type: "button", title, disabled: Boolean(off), onclick: () => act() });
  one.dataset.key = key;
  if (!shown) one.ariaLabel = title;
  return one;
}

const MOVES = [["Backspace", "Undo", undo, "Undo (Backspace)"], ["ArrowLeft", "←", () => go(-1), "Back (←)"], ["ArrowRight", "→", () => go(1), "Next (→)"]];

function drawFooter(tile) {
  const found = actions(tile).map((action) => {
    const one = button(action), choice = action[4];
    if (!tile || !choice || state.view === "grid") return one;
    const chosen = tile.rows.length > 1 && !tile.type ? `label ${tile.choice === "relabel" ? tile.new_label : tile.choice === "keep" ? tile.label : ""}` : tile.choice;
    one.classList.toggle("chosen", Boolean(tile.choice) && (choice === chosen || choice === tile.choice));
    const kept = tile.rows.length > 1 ? `label ${tile.advice === "keep" ? tile.label : tile.advice === "relabel" ? tile.suggested : ""}` : tile.advice;
    one.classList.toggle("advised", !tile.choice && Boolean(tile.flagged) && choice === kept);
    return one;
  });
  byId("actions").replaceChildren(...found);
  byId("moves").replaceChildren(...(state.view === "one" ? MOVES : MOVES.slice(0, 1)).map(button));
  if (state.view === "one") byId("moves").children[1].after(set(make("span"), { id: "place" }));
  byId("note").hidden = !found.length;
  document.body.classList.toggle("idle", !found.length);
}

function place() {
  const { tiles, at, aside } = state, flagged = tiles.filter((tile) => tile.flagged || tile.type).length;
  if (!byId("place")) return;
  const beyond = at >= flagged && at < tiles.length;
  byId("place").textContent = aside ? "aside" : beyond ? `+ ${at - flagged + 1}` : flagged ? `${Math.min(at + 1, flagged)} / ${flagged}` : "";
}

function count(answer) {
  if (answer.kind && answer.kind !== state.kind) return;
  byId("bar").max = Math.max(answer.whole, 1);
  byId("bar").value = answer.done;
  byId("count").replaceChildren(`${answer.done.toLocaleString("en")} of ${answer.whole.toLocaleString("en")}`, make("span", "wide", " reviewed"));
}

// Images that are on the page already stay, so that nothing flickers when the details of an item arrive.
function fill(children) {
  const main = byId("main"), old = new Map([...main.querySelectorAll(".large img")].map((image) => [image.src, image]));
  const holder = make("div", "", ...children);
  holder.querySelectorAll(".large img").forEach((image) => old.has(image.src) && image.replaceWith(old.get(image.src)));
  main.replaceChildren(...holder.children);
}

function draw() {
  tabs();
  if (state.view === "grid") return drawSheet();
  const tile = current();
  drawFooter(tile);
  place();
  if (state.beyond && state.next !== null && state.tiles.length - state.at < 25) more();
  if (!tile) return loading ? undefined : end();
  const shown = ready.get(tile.item), main = byId("main");
  main.className = layout(tile);
  fill(view(tile, shown));
  main.scrollTop = 0;
  byId("note").value = tile.choice ? tile.note || "" : byId("note").value;
  if (tile.choice) say(`Your decision: ${tile.choice === "relabel" ? `change to ${tile.new_label}` : DID[tile.choice]}`);
  if (!shown) complete(tile);
  state.tiles.slice(state.at + 1, state.at + 4).forEach(ahead);
}

const complete = (tile) => details(tile.item).then((shown) => {
  ready.set(tile.item, shown);
  if (current() === tile && state.view !== "grid") fill(view(tile, shown));
}).catch((error) => say(error.message, true));

// Details and image of a later item, loaded in advance.
function ahead(tile) {
  if (ready.has(tile.item)) return;
  details(tile.item).then((shown) => ready.set(tile.item, shown)).catch(() => undefined);
  if (state.about.pictures) tile.rows.slice(0, 2).forEach((row) => { new Image().src = source(row, true); });
}

function drawSheet() {
  sheet.hook({ changed: sheetChanged, more: () => state.beyond && more(), open: (tile) => { state.view = "one"; state.at = state.tiles.indexOf(tile); state.aside = null; draw(); } });
  sheet.drawGrid();
}

function sheetChanged() {
  const there = sheet.headline();
  drawFooter(null);
  const words = state.about.others && !state.beyond ? set(make("button", "", `Continue with ${plural(state.about.others, "label")} not flagged`), { type: "button", onclick: beyond })
    : !there ? make("p", "quiet", "No labels left to review here.") : null;
  byId("end").replaceChildren(...[words].filter(Boolean));
}

function end() {
  state.view = "end";
  drawFooter(null);
  tabs();
  ending(() => load(main()), beyond).catch((error) => say(error.message, true));
}

const go = (by) => {
  if (state.busy) return;
  if (state.view === "end") state.view = "one";
  const at = state.aside ? state.at : state.at + by;
  if (at < 0 || at > state.tiles.length) return;
  Object.assign(state, { aside: null, at });
  say("");
  byId("note").value = "";
  draw();
};

// A class by its name, or by a part of the name that no other class has.
function meant(text) {
  const like = known().filter((name) => name.toLowerCase().includes(text.trim().toLowerCase()));
  return known().includes(text) || like.length !== 1 ? text : like[0];
}

function filter() {
  const typed = byId("label").value && meant(byId("label").value);
  if (typed && !known().includes(typed)) throw new Error(`There is no class ${typed}.`);
  byId("label").value = typed;
  const pair = state.kind === "pair", move = !pair && byId("move").value !== "" ? state.about.moves[Number(byId("move").value)] : { given: "", suggested: "" };
  return { kind: state.kind, reviewer: reviewer(), label: typed, among: byId("among").value, state: pair ? "" : byId("state").value, suspicion: pair ? 0 : byId("suspicion").value || 0,
    show: byId("show").value, given: move.given, suggested: move.suggested };
}

async function fetchQueue() {
  const found = await ask("/api/queue", filter());
  Object.assign(state, { tiles: found.items, at: 0, aside: null, next: null, beyond: false });
  state.chosen.clear();
  count({ ...found, kind: state.kind });
}

const load = (name = state.kind, shown) => inTurn(async () => {
  say("");
  kind(name);
  if (shown) state.view = shown;
  else if (state.view === "end") state.view = "one";
  await fetchQueue();
  draw();
});

// Labels that are not flagged, in pieces of the ranking.
async function more() {
  if (loading || state.next === null) return;
  loading = true;
  const { tiles } = state;
  try {
    const found = await ask("/api/queue", { ...filter(), flagged: false, begin: state.next, most: PAGE });
    if (state.tiles !== tiles) return; // another queue was loaded meanwhile
    const there = new Set(state.tiles.map((tile) => tile.item));
    state.tiles.push(...found.items.filter((tile) => !there.has(tile.item)));
    state.next = found.next;
  } finally {
    loading = false;
  }
  if (state.view === "grid") sheet.extend();
  else if (state.at >= state.tiles.length - 1) draw();
  else place();
}

const beyond = () => inTurn(async () => {
  if (state.kind === "pair") {
    kind(main());
    await fetchQueue();
  }
  Object.assign(state, { beyond: true, next: 0 });
  const at = state.tiles.length;
  await more();
  if (state.view === "end") Object.assign(state, { view: "one", at });
  draw();
  if (state.tiles.length === at) say("No label that is not flagged matches the filter.");
});

function kind(name) {
  if (name !== state.kind || !byId("among").children.length) {
    const option = (value, words) => set(make("option", "", words), { value });
    const found = state.about.among[name];
    byId("among").replaceChildren(option("", name === "pair" ? "both kinds" : "all splits"), ...found.map((one) => option(one, one)));
    byId("among-label").hidden = found.length < 2;
    byId("among-label").firstChild.textContent = name === "pair" ? "Kind " : "Split ";
    state.history = name === state.kind ? state.history : [];
  }
  state.kind = name;
  const pair = name === "pair";
  byId("least").hidden = pair;
  byId("moved").hidden = pair || !state.about.moves.length;
  byId("state-label").hidden = pair || state.about.states.length < 2;
}

function tabs() {
  byId("one").setAttribute("aria-pressed", String(state.view === "one" && state.kind !== "pair"));
  byId("grid").setAttribute("aria-pressed", String(state.view === "grid"));
  byId("pairs").setAttribute("aria-pressed", String(state.view === "one" && state.kind === "pair"));
}

function switchTo(view, name) {
  if (state.busy) return;
  if (name !== state.kind || state.view === "end") return load(name, view);
  Object.assign(state, { view, aside: null });
  if (view === "one") skipDecided();
  say("");
  draw();
}

function sift(open = byId("filter").hidden) {
  byId("filter").hidden = !open;
  byId("sift").setAttribute("aria-expanded", String(open));
}

function renamed(changed) {
  byId("who").textContent = reviewer();
  if (!changed) return;
  Object.assign(state, { history: [] });
  ready.clear();
  state.details.clear();
  load();
}

function listen() {
  byId("one").onclick = () => switchTo("one", main());
  byId("grid").onclick = () => switchTo("grid", main());
  byId("pairs").onclick = () => switchTo("one", "pair");
  byId("filter").onchange = () => load();
  byId("filter").onsubmit = (event) => event.preventDefault();
  byId("sift").onclick = () => sift();
  byId("help").onclick = help;
  byId("finish").onclick = () => { if (!state.busy) { state.view = "end"; end(); } };
  byId("who").onclick = () => people(renamed).catch((error) => say(error.message, true));
  document.addEventListener("keydown", press);
  state.review = (row) => inTurn(async () => {
    say("");
    state.aside = await details(String(row));
    ready.set(state.aside.item, state.aside);
    if (state.view !== "one") state.view = "one";
    draw();
  });
}

function large() {
  if (state.view === "grid") {
    const tile = sheet.focused();
    if (tile) zoom(zoomable(tile), 0);
  } else document.querySelector("#main .large")?.click();
}

const FOCUS = { c: () => byId("note").select(), "/": () => { sift(true); byId("label").select(); }, z: large };

function press(event) {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (document.querySelector("dialog[open]") || event.altKey) return;
  // The field of a dialog that was closed just now still has the focus for a moment; it is not visible.
  const typing = event.target.matches("input, select, textarea") && event.target.offsetParent !== null;
  if ((event.ctrlKey || event.metaKey) && key === "z" && !typing) {
    event.preventDefault();
    return undo();
  }
  if (event.ctrlKey || event.metaKey) return;
  if (typing) {
    if (event.key === "Escape" || (event.key === "Enter" && event.target.matches("input"))) event.target.blur();
    return;
  }
  if (event.repeat && !key.startsWith("Arrow")) return;
  if (state.view === "grid" && key.startsWith("Arrow")) {
    event.preventDefault();
    return sheet.start();
  }
  const found = [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key && one.offsetParent);
  if (!FOCUS[key] && !found) return;
  event.preventDefault();
  if (FOCUS[key]) FOCUS[key]();
  else found.click();
}

async function start() {
  listen();
  state.about = await ask("/api/about");
  const { title, moves, states, pictures, among } = state.about;
  const option = (value, words) => set(make("option", "", words), { value });
  document.body.classList.toggle("words", !pictures);
  document.title = title ? `${title} · review` : "likewise review";
  byId("title").textContent = title || "likewise review";
  byId("classes").append(...known().sort().map((value) => set(make("option"), { value })));
  byId("move").append(...moves.map((one, i) => option(String(i), `${one.given} → ${one.suggested} (${one.count})`)));
  byId("state").append(...states.map((one) => option(one, FINDINGS[one])));
  byId("pairs").hidden = among.pair.length === 0;
  byId("who").textContent = reviewer() || "Your name";
  byId("label").parentElement.firstChild.textContent = state.about.several_labels ? "Label " : "Class ";
  load(main());
}

start().catch((error) => say(error.message, true));
