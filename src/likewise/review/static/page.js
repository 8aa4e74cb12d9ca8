"use strict";
// One page, one state: `queue` of items, `at` the place in it, `shown` the item on the screen.

const byId = (id) => document.getElementById(id);
const state = { kind: "sample", queue: [], at: 0, shown: null, busy: 0, last: Promise.resolve(), pictures: false, classes: new Set() };

const ACTIONS = {
  sample: [
    ["k", "Keep", () => decide("keep")],
    ["r", "Relabel", () => decide("relabel", state.shown.panels[0].suggested)],
    ["l", "Other label…", () => byId("choose").showModal()],
    ["x", "Remove", () => decide("remove")],
    ["u", "Unsure", () => decide("unsure")],
  ],
  pair: [
    ["a", "Agreeable", () => decide("agreeable")],
    ["d", "Disagreeable", () => decide("disagreeable")],
  ],
};
const ALWAYS = [
  ["z", "Undo", () => undo()],
  ["ArrowLeft", "Back", () => go(-1)],
  ["ArrowRight", "Next", () => go(1)],
];
const HINT = { ArrowLeft: "←", ArrowRight: "→" };
const reviewer = () => localStorage.getItem("reviewer") || "";

function make(kind, className, ...children) {
  const one = document.createElement(kind);
  one.className = className || "";
  one.append(...children.filter((c) => c !== null));
  return one;
}

function say(text, wrong) {
  byId("said").textContent = text;
  byId("said").classList.toggle("wrong", Boolean(wrong));
}

async function ask(address, query, post) {
  const url = address + (query ? "?" + new URLSearchParams(query) : "");
  const asked = post === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(post) };
  let answer;
  try {
    answer = await fetch(url, asked);
  } catch {
    throw new Error("The server does not answer; start it again, nothing that was saved is lost.");
  }
  const told = (answer.headers.get("content-type") || "").includes("json") ? await answer.json() : { error: await answer.text() };
  if (!answer.ok) throw new Error(told.error || `The server answered ${answer.status}.`);
  return told;
}

// One thing after another. A decision does not wait in line: it would hit an item that nobody has seen yet.
function inTurn(work) {
  state.busy += 1;
  state.last = state.last.then(work).catch((error) => say(error.message, true)).finally(() => { state.busy -= 1; });
}

const large = (row) => `/picture/${row}?large=true`;

function picture(row, name, big) {
  const words = make("span", "id", big && name ? `${row} · ${name}` : String(row));
  if (!state.pictures) return words;
  const image = make("img");
  image.alt = `row ${row}`;
  image.src = big ? large(row) : `/picture/${row}`;
  image.onerror = () => image.replaceWith(words);
  return image;
}

function thumbs(rows, captions, kinds) {
  const frame = (row, i) => make("figure", kinds ? kinds[i] : "", make("div", "thumb", picture(row, "", false)),
    captions ? make("figcaption", "", captions[i]) : null);
  return make("div", "row", ...rows.map(frame));
}

function group(kind, words, name, rows) {
  const inside = rows.length ? thumbs(rows) : make("p", "quiet", "No other sample of this class.");
  return make("section", kind, make("h2", "", words + " ", make("b", "", name)), inside);
}

function facts(panel) {
  const number = (name, value) => value === null ? null : make("span", "", name + " ", make("b", "", value.toFixed(3)));
  return make("p", "facts", make("span", "path", `row ${panel.row}${panel.path ? " · " + panel.path : ""}`), number("score", panel.score),
    number("confidence", panel.confidence), number("margin", panel.margin), panel.reason ? make("span", "", panel.reason) : null);
}

function nearest(panel) {
  if (!panel.near.length) return null;
  const kind = (n) => n.label === panel.label ? "claimed" : n.label === panel.suggested ? "instead" : "";
  return make("section", "near", make("h2", "", "Nearest neighbours"),
    thumbs(panel.near.map((n) => n.row), panel.near.map((n) => n.label), panel.near.map(kind)));
}

function view(shown) {
  const frame = (panel) => make("div", "large", picture(panel.row, panel.path, true));
  if (state.kind === "pair") {
    const words = (i) => i ? "answered by" : `${shown.type}, distance ${shown.distance.toFixed(3)}: query`;
    return shown.panels.map((panel, i) => make("div", "panel", frame(panel), facts(panel),
      group(i && panel.label !== shown.panels[0].label ? "instead" : "claimed", words(i), panel.label, panel.claimed), nearest(panel)));
  }
  const [panel] = shown.panels;
  return [make("div", "panel", frame(panel), facts(panel)), make("div", "side", group("claimed", "Labelled", panel.label, panel.claimed),
    panel.suggested ? group("instead", "Suggested", panel.suggested, panel.instead) : null, nearest(panel))];
}

function draw() {
  const { shown } = state;
  byId("main").className = state.kind;
  byId("main").replaceChildren(...(shown ? view(shown) : [make("p", "empty", make("b", "", "Nothing left to judge here."),
    "Change the filter, or open your name for the exports.")]));
  const own = shown && shown.decision;
  const buttons = [...ACTIONS[state.kind], ...ALWAYS].map(([key, words, act]) => {
    const one = make("button", "", words, make("kbd", "", HINT[key] || key.toUpperCase()));
    const verdict = own && own.verdict === words.toLowerCase();
    one.classList.toggle("chosen", Boolean(verdict));
    one.disabled = !shown && key !== "z";
    one.dataset.key = key;
    one.onclick = () => act();
    return one;
  });
  byId("actions").replaceChildren(...buttons);
  byId("note").value = own ? own.note : "";
  if (own) say(`You said: ${own.verdict} ${own.label}`.trim());
}

function count({ done, whole }) {
  byId("bar").max = Math.max(whole, 1);
  byId("bar").value = done;
  byId("count").textContent = `${done} of ${whole}`;
}

async function show(item) {
  state.shown = item === undefined ? null : await ask(`/api/item/${item}`, { reviewer: reviewer() });
  draw();
  const next = state.queue[state.queue.indexOf(item) + 1];
  if (state.pictures && next) next.split("-").forEach((row) => { new Image().src = large(row); }); // there before it is wanted
}

const go = (by) => inTurn(async () => {
  const at = state.at + by;
  if (at < 0 || at > state.queue.length) return;
  say("");
  await show(state.queue[at]);
  state.at = at;
});

function queue() {
  const label = state.classes.has(byId("label").value) ? byId("label").value : "";
  const asked = { kind: state.kind, reviewer: reviewer(), label, most: byId("most").value || "1" };
  return ask("/api/queue", { ...asked, show: byId("all").checked ? "all" : "open" });
}

const load = (name = state.kind) => inTurn(async () => {
  say("");
  kind(name);
  const found = await queue();
  Object.assign(state, { queue: found.items, at: 0 });
  count(found);
  await show(state.queue[0]);
});

const decide = (verdict, label = "") => state.busy || !state.shown || inTurn(async () => {
  const said = { reviewer: reviewer(), item: state.shown.item, verdict, label, note: byId("note").value };
  const { decision, ...progress } = await ask("/api/decide", null, said);
  count(progress);
  byId("note").blur();
  await show(state.queue[++state.at]);
  say(`Saved: ${decision.item} ${decision.verdict} ${decision.label}`.trim());
});

const undo = () => inTurn(async () => {
  const { undone } = await ask("/api/undo", { reviewer: reviewer() }, {});
  if (!undone) return say("There is nothing to undo.");
  const same = undone.kind === state.kind;
  kind(undone.kind);
  const found = await queue();
  if (!same) Object.assign(state, { queue: found.items, at: 0 });
  const at = state.queue.indexOf(undone.item);
  if (at < 0) state.queue.splice(state.at, 0, undone.item);
  else state.at = at;
  count(found);
  await show(undone.item);
  say(`Undone: ${undone.item} ${undone.verdict} ${undone.label}`.trim());
});

function kind(name) {
  state.kind = name;
  byId("samples").setAttribute("aria-pressed", String(name === "sample"));
  byId("pairs").setAttribute("aria-pressed", String(name === "pair"));
  byId("upto").hidden = name === "pair";
}

async function people() {
  byId("name").value = reviewer();
  byId("people").showModal();
  const { decided, agreement } = await ask("/api/reviewers");
  const line = (tag, ...cells) => make("tr", "", ...cells.map((c) => make(tag, "", String(c))));
  const lines = Object.entries(decided).map(([name, n]) => line("td", name, n));
  const kappas = agreement.map((a) => line("td", `${a.one} and ${a.other}, ${a.kind}s`, a.both, a.kappa === null ? "–" : a.kappa.toFixed(2)));
  byId("table").replaceChildren(
    ...(lines.length ? [make("table", "", line("th", "Reviewer", "decisions"), ...lines)] : []),
    ...(kappas.length ? [make("table", "", line("th", "Agreement", "both judged", "kappa"), ...kappas)] : []));
}

function listen() {
  byId("samples").onclick = () => load("sample");
  byId("pairs").onclick = () => load("pair");
  byId("filter").onchange = () => load();
  byId("filter").onsubmit = (event) => event.preventDefault();
  byId("who").onclick = people;
  byId("people").oncancel = (event) => { if (!reviewer()) event.preventDefault(); };
  byId("people").onclose = () => {
    const name = byId("name").value.trim();
    if (name && name !== reviewer()) {
      localStorage.setItem("reviewer", name);
      load();
    }
    byId("who").textContent = reviewer();
  };
  byId("choose").onclose = () => {
    const label = byId("pick").value;
    byId("pick").value = "";
    if (byId("choose").returnValue === "ok" && label) decide("relabel", label);
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input:not([type=checkbox])");
    if (typing && event.target.id === "note" && (event.key === "Enter" || event.key === "Escape")) return event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat || document.querySelector("dialog[open]")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const button = [...byId("actions").children].find((b) => b.dataset.key === key);
    if (key !== "n" && !button) return;
    event.preventDefault();
    if (key === "n") byId("note").focus();
    else button.click();
  });
}

async function start() {
  listen();
  const { classes, pictures, pairs } = await ask("/api/classes");
  state.pictures = pictures;
  state.classes = new Set(classes);
  byId("classes").append(...classes.map((name) => Object.assign(make("option"), { value: name })));
  byId("pairs").hidden = pairs === 0;
  byId("who").textContent = reviewer();
  if (reviewer()) load();
  else people();
}

start().catch((error) => say(error.message, true));
