// The review page: what is shown, decisions, undo, keys. `state.tiles` is the queue; a sample outside of it is shown "aside", and
// after a decision about it the queue continues where it was. A decision takes effect on the page at once and is sent in the
// background, so that no key is lost; if the server refuses it, the page goes back to it.
import { ask, byId, say, send, settled } from "/static/server.js";
import { details, known, make, plural, reviewer, set, source, state } from "/static/elements.js";
import { layout, view } from "/static/item.js";
import { ending } from "/static/ending.js";
import { choose, help, people } from "/static/dialogs.js";
import * as footer from "/static/actions.js";
import { filter, kind, limits, offer, sift } from "/static/filter.js";
import { count, place, showReviewer, tabs } from "/static/header.js";
import { listen as listenToKeys } from "/static/keys.js";
import * as groups from "/static/groups.js";
import * as sheet from "/static/grid.js";
import * as plan from "/static/plan.js";

const PAGE = 100; // labels that are not flagged
const MOST = 5000; // flagged labels, or pairs, that are loaded at a time
const DID = { keep: "kept", add: "added", remove: "removed", unsure: "unsure", agreeable: "yes", disagreeable: "no" };
const ready = new Map();
let loading = false;
let turns = Promise.resolve();

// The item that a decision is about; a grid, and a group of several, have none.
function current() {
  if (state.view === "end" || state.view === "grid") return null;
  if (state.view === "groups") return groups.isCopies() ? state.group.tiles[0] : null;
  return state.aside || state.tiles[state.at] || null;
}

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
  const entry = { kind: state.kind, view: state.view, at: state.at, group: state.group, kept: [...state.kept], open: [...state.open], changed: fresher.map(({ tile }) => ({ tile, before: { choice: tile.choice, new_label: tile.new_label, note: tile.note } })) };
  for (const { tile, sent } of fresher) {
    set(tile, { choice: sent[0].choice, new_label: sent[0].label || "", note });
    ready.delete(tile.item);
    state.details.delete(tile.item);
  }
  if (fresh && !known().includes(asked[0].label)) state.about.added.push(asked[0].label);
  const body = { reviewer: reviewer(), choices: fresher.flatMap((one) => one.sent), note, new_class: fresh };
  const words = asked.length > 1 ? `${plural(asked.length, "label")}: ${tally(wanted)}.` : `${named(asked[0].tile)}: ${asked[0].choice === "relabel" ? `changed to ${asked[0].label}` : DID[asked[0].choice]}.`;
  byId("note").value = "";
  byId("note").blur();
  if (fresher.length) {
    state.history.push(entry);
    state.fresh = false;
    send("/api/decide", null, body).then((answer) => { count(answer); say(`Saved. ${words}`); }, (error) => refuse(entry, error));
    plan.decided(fresher.length); // after it is sent: the plan waits for what was sent before
  } else say(`Saved. ${words}`);
  onward();
}

// "changed", or "21 changed, 3 kept" if the choices differ.
function tally(wanted) {
  const did = wanted.map((one) => DID[one.sent[0].choice] || "changed"), kinds = [...new Set(did)];
  return kinds.length === 1 ? kinds[0] : kinds.map((words) => `${did.filter((one) => one === words).length} ${words}`).join(", ");
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
  if (state.view === "groups" && entry.group) again(entry);
  draw();
  say(`Not saved: ${error.message}`, true);
}

// Show the group of a decision that was taken back, with its selection.
function again(entry) {
  const own = (tile) => state.tiles.find((one) => one.item === tile.item) || tile;
  state.group = { ...entry.group, tiles: entry.group.tiles.map(own) };
  state.kept = new Set(entry.kept);
  state.open = new Set(entry.open);
}

function onward() {
  if (state.view === "grid") {
    state.chosen.clear();
    return sheet.drawGrid();
  }
  if (state.aside) {
    state.aside = null;
    if (state.back) Object.assign(state, { view: state.back, back: "" });
  } else if (state.view === "groups") groups.rest();
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
  if (state.view === "end") state.view = entry.view;
  if (state.view === "groups" && entry.view === "groups" && entry.group) again(entry);
  else if (state.view === "groups") groups.together(entry.changed.map(({ tile }) => state.tiles.find((one) => one.item === tile.item)));
  else if (state.view === "grid") entry.changed.forEach(({ tile }) => state.chosen.add(tile.item));
  else state.at = state.tiles.findIndex((one) => one.item === entry.changed[0].tile.item);
  draw();
  send("/api/undo", { reviewer: reviewer() }, {}).then((answer) => {
    const items = new Set(answer.undone.map((one) => one.item));
    const told = entry.changed.every(({ tile }) => items.has(whole(tile) ? tile.item : String(tile.rows[0])));
    if (!told) return load();
    count(answer);
    say(entry.changed.length > 1 ? `Undone: ${plural(entry.changed.length, "label")}.` : `Undone: ${named(entry.changed[0].tile)}.`);
  }).catch((error) => { say(error.message, true); load(); });
  plan.decided(entry.changed.length, -entry.changed.length);
}

// An undo of something that was decided before this page was loaded, or in another view.
const undoThere = () => inTurn(async () => {
  const { undone } = await ask("/api/undo", { reviewer: reviewer() }, {});
  if (!undone.length) return say("There is nothing to undo.");
  state.history = [];
  ready.clear();
  state.details.clear();
  kind(undone[0].kind);
  if (state.view !== "grid" && (state.view !== "groups" || state.kind === "pair")) state.view = "one";
  await fetchQueue();
  if (state.view === "groups") await plan.refresh();
  const at = state.tiles.findIndex((tile) => tile.item === undone[0].item || (!whole(tile) && tile.rows.includes(Number(undone[0].item))));
  const kept = new Set(undone.filter((one) => one.choice === "keep").map((one) => one.item));
  const tiles = state.tiles.filter((tile) => undone.some((one) => one.item === tile.item));
  if (at < 0) Object.assign(state, { aside: await details(undone[0].item), back: state.view === "groups" ? "groups" : "", view: state.view === "groups" ? "one" : state.view });
  else if (state.view === "groups") groups.together(tiles.length ? tiles : [state.tiles[at]], kept.size < tiles.length ? kept : []);
  else state.at = at;
  draw();
  say(undone.length > 1 ? `Undone: ${plural(undone.length, "label")}.` : `Undone: ${undone[0].choice} ${undone[0].label}`.trim() + ".");
});

const chooseOther = () => {
  const one = current(), many = !one, tiles = one ? [one] : state.view === "grid" ? sheet.selected() : groups.chosen();
  if (!tiles.length) return;
  const panels = (!many && ready.get(tiles[0].item)?.panels) || [];
  const likely = [...tiles.flatMap((tile) => tile.rows.length > 1 ? [...tile.labels, tile.suggested] : [tile.suggested]), ...panels.flatMap((panel) => panel.near.map((n) => n.label))];
  const but = tiles.length === 1 && tiles[0].rows.length === 1 ? tiles[0].label : "";
  choose(likely.slice(0, 12), but, [...new Set(panels.map((panel) => panel.split))], (label, fresh) => commit(tiles.map((tile) => ({ tile, choice: "relabel", label })), fresh));
};

// Images that are on the page already stay, so that nothing flickers when the details of an item arrive.
function fill(children) {
  const main = byId("main"), old = new Map([...main.querySelectorAll(".large img")].map((image) => [image.src, image]));
  const holder = make("div", "", ...children);
  holder.querySelectorAll(".large img").forEach((image) => old.has(image.src) && image.replaceWith(old.get(image.src)));
  main.replaceChildren(...holder.children);
}

function draw() {
  tabs();
  plan.line();
  byId("main").dataset.item = current()?.item || "";
  document.body.classList.toggle("grouped", state.view === "groups");
  if (state.view === "grid") return drawSheet();
  if (state.view === "groups") return drawGroups();
  const tile = current();
  if (state.next !== null && state.tiles.length - state.at < 25) more();
  if (!tile) return loading ? footer.drawFooter(null) : end();
  drawItem(tile);
  state.tiles.slice(state.at + 1, state.at + 4).forEach(ahead);
}

function drawItem(tile) {
  footer.drawFooter(tile);
  place();
  const shown = ready.get(tile.item), main = byId("main");
  main.className = layout(tile);
  fill(view(tile, shown));
  main.scrollTop = 0;
  byId("note").value = tile.choice ? tile.note || "" : byId("note").value;
  if (tile.choice) say(`Your decision: ${tile.choice === "relabel" ? `change to ${tile.new_label}` : DID[tile.choice]}`);
  if (!shown) complete(tile);
}

// Copies of one image stand side by side; the images of other groups in a sheet.
function drawGroups() {
  if (!state.group && !groups.next()) return state.next === null || state.fresh ? end() : load(state.kind, "groups");
  groups.ahead();
  if (groups.isCopies()) return drawItem(state.group.tiles[0]);
  groups.drawGroup();
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
  sheet.hook({ changed: sheetChanged, more: () => state.next !== null && more(), open: (tile) => { state.view = "one"; state.at = state.tiles.indexOf(tile); state.aside = null; draw(); } });
  sheet.drawGrid();
}

function sheetChanged() {
  const there = sheet.headline();
  footer.drawFooter(null);
  const words = state.about.others && !state.beyond && state.next === null ? set(make("button", "", `Continue with ${plural(state.about.others, "label")} not flagged`), { type: "button", onclick: beyond })
    : !there ? make("p", "quiet", "No labels left to review here.") : null;
  byId("end").replaceChildren(...[words].filter(Boolean));
}

function end() {
  const from = state.view === "groups" ? "groups" : "one";
  state.view = "end";
  footer.drawFooter(null);
  tabs();
  plan.line();
  byId("main").className = "ending";
  byId("main").dataset.item = "";
  byId("main").replaceChildren(); // nothing that could be decided stays until the result is there
  document.body.classList.remove("grouped");
  const resume = () => { state.skipped.clear(); load(main(), from); };
  ending(resume, beyond).catch((error) => say(error.message, true));
}

const go = (by) => {
  if (state.busy) return;
  if (state.view === "end") state.view = "one";
  if (state.aside && state.back) {
    Object.assign(state, { aside: null, view: state.back, back: "" });
    return draw();
  }
  const at = state.aside ? state.at : state.at + by;
  if (at < 0 || at > state.tiles.length) return;
  Object.assign(state, { aside: null, at });
  say("");
  byId("note").value = "";
  draw();
};

async function fetchQueue() {
  const found = await ask("/api/queue", { ...filter(), most: MOST });
  Object.assign(state, { tiles: found.items, at: 0, aside: null, back: "", next: found.next, beyond: false, group: null, fresh: true });
  state.chosen.clear();
  state.kept.clear();
  state.open.clear();
  count({ ...found, kind: state.kind });
}

const load = (name = state.kind, shown) => inTurn(async () => {
  say("");
  kind(name);
  if (shown) state.view = shown;
  else if (state.view === "end") state.view = "one";
  state.limits = limits();
  const planned = state.kind === "pair" ? null : plan.refresh();
  if (state.view !== "groups" && planned) planned.catch((error) => say(error.message, true));
  await fetchQueue();
  if (state.view === "groups") await planned;
  draw();
});

// A new plan: what comes after the item on screen is sorted again; the group on screen stays.
function arrived() {
  if (state.busy || state.view === "grid" || state.kind === "pair" || byId("show").value === "disputed") return;
  plan.sort(state.tiles, state.at);
  if (state.view === "groups") groups.ahead();
  else if (state.view === "one") state.tiles.slice(state.at + 1, state.at + 4).forEach(ahead);
}

// Where the next piece of flagged labels begins: in the order of a plan, decided labels are no longer among the first.
const where = () => state.kind !== "pair" && filter().order && byId("show").value === "open" ? state.next - state.tiles.filter((tile) => tile.choice).length : state.next;

// Labels in pieces of the ranking: further flagged ones, or those that are not flagged.
async function more() {
  if (loading || state.next === null) return;
  loading = true;
  const { tiles } = state;
  try {
    const piece = state.beyond ? { flagged: false, begin: state.next, most: PAGE } : { begin: where(), most: MOST };
    const found = await ask("/api/queue", { ...filter(), ...piece });
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

function switchTo(view, name) {
  if (state.busy) return;
  const pieces = state.next !== null && !state.beyond && (view === "groups") !== (state.view === "groups"); // in another order
  if (name !== state.kind || state.view === "end" || pieces || (view === "groups" && !state.plan)) return load(name, view);
  Object.assign(state, { view, aside: null, back: "" });
  if (view === "one") skipDecided();
  if (view === "groups") groups.rest();
  say("");
  draw();
}

function renamed(changed) {
  showReviewer();
  if (!changed) return;
  Object.assign(state, { history: [] });
  ready.clear();
  state.details.clear();
  load();
}

function listen() {
  byId("one").onclick = () => switchTo("one", main());
  byId("grid").onclick = () => switchTo("grid", main());
  byId("groups").onclick = () => switchTo("groups", main());
  byId("pairs").onclick = () => switchTo("one", "pair");
  byId("filter").onchange = (event) => { if (event.target.id === "order") state.order = event.target.value; load(); };
  byId("filter").onsubmit = (event) => event.preventDefault();
  byId("sift").onclick = () => sift();
  byId("help").onclick = help;
  byId("finish").onclick = () => { if (!state.busy) { state.view = "end"; end(); } };
  byId("who").onclick = () => people(renamed).catch((error) => say(error.message, true));
  listenToKeys(undo);
  plan.listen();
  plan.hook({ arrived, end: () => byId("finish").click() });
  groups.hook({ changed: () => footer.drawFooter(null) });
  footer.hook({ decide, all: decideAll, commit, other: chooseOther, undo, go, skip: () => { if (!state.busy) { groups.skip(); say(""); draw(); } } });
  state.review = (row) => inTurn(async () => {
    say("");
    state.aside = await details(String(row));
    ready.set(state.aside.item, state.aside);
    state.back = state.view === "groups" ? "groups" : "";
    state.view = "one";
    draw();
  });
}

async function start() {
  listen();
  state.about = await ask("/api/about");
  state.order = state.about.order;
  const { title, pictures, among } = state.about;
  document.body.classList.toggle("words", !pictures);
  document.title = title ? `${title} · review` : "likewise review";
  byId("title").textContent = title || "likewise review";
  offer();
  byId("pairs").hidden = among.pair.length === 0;
  showReviewer();
  load(main());
}

start().catch((error) => say(error.message, true));
