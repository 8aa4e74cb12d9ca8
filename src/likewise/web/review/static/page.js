"use strict";
// State: `queue` of items, `at` the position in it, `shown` the item on the screen. A click on a small image shows that sample
// outside of the queue; after a decision about it, or a step back, the queue continues where it was.

const byId = (id) => document.getElementById(id);
const state = { kind: "sample", queue: [], at: 0, shown: null, busy: 0, last: Promise.resolve(), about: null };

const ACTIONS = {
  sample: [
    ["k", "Keep", () => decide("keep"), "The label is right"],
    ["r", "Relabel", () => decide("relabel", state.shown.panels[0].suggested), "Give it the suggested label"],
    ["l", "Other label…", () => choose(), "Give it a label of your choice"],
    ["x", "Remove", () => decide("remove"), "It belongs to no class"],
    ["u", "Unsure", () => decide("unsure"), "Leave the decision to others"],
  ],
  pair: [
    ["a", "Agreeable", () => decide("agreeable"), "A person could see it as the model does"],
    ["d", "Disagreeable", () => decide("disagreeable"), "A person sees what the model missed"],
  ],
};
const MOVES = [
  ["z", "Undo", () => undo(), "Take back your last decision"],
  ["ArrowLeft", "←", () => go(-1), "Back (←)"],
  ["ArrowRight", "→", () => go(1), "Next (→)"],
];
const ASK = {
  confusion: (query, wrong) => ["The model takes this ", query, " for ", wrong, ". Could a person do the same?"],
  "mis-similar": (query, wrong) => ["The model sees this ", query, " nearer to ", wrong, " than to its own class. Could a person do the same?"],
};
const reviewer = () => localStorage.getItem("reviewer") || "";
const kindOf = (item) => item.includes("-") ? "pair" : "sample";

function make(kind, className, ...children) {
  const one = document.createElement(kind);
  one.className = className || "";
  one.append(...children.filter((c) => c !== null));
  return one;
}

// A name with line breaks allowed after underscores, because many names have no spaces.
const broken = (name) => name.split(/(?<=_)/).flatMap((part, i) => i ? [make("wbr"), part] : [part]);

const number = (value) => value < 0.0005 && value > 0 ? "< 0.001" : value.toFixed(3);

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
    throw new Error("The server does not respond. Start it again; all saved decisions are kept.");
  }
  const told = (answer.headers.get("content-type") || "").includes("json") ? await answer.json() : { error: await answer.text() };
  if (!answer.ok) throw new Error(told.error || `The server responded with status ${answer.status}.`);
  return told;
}

// Run tasks one after another. A decision is ignored while a task runs: it would apply to an item that is not on the screen yet.
function inTurn(work) {
  state.busy += 1;
  state.last = state.last.then(work).catch((error) => say(error.message, true)).finally(() => { state.busy -= 1; });
}

const source = (row, big) => `/picture/${row}?start=${state.about.start}${big ? "&large=true" : ""}`;

function picture(row, name, big) {
  if (!state.about.pictures) return make("span", "id", big && name ? `${row} · ${name}` : String(row));
  const image = make("img");
  image.alt = `row ${row}`;
  image.src = source(row, big);
  image.onerror = async () => {
    const words = make("span", "broken", `row ${row}`);
    image.replaceWith(words);
    if (big) words.textContent = await fetch(image.src).then((answer) => answer.text()).catch(() => "");
  };
  return image;
}

const aside = (row) => inTurn(() => { say(""); return show(String(row)); });

function thumbs(found, captions, kinds) {
  const frame = (one, i) => {
    const button = make("button", "thumb", picture(one.row, "", false));
    button.title = `row ${one.row}: ${one.label}`;
    button.onclick = () => aside(one.row);
    return make("figure", kinds ? kinds[i] : "", button, captions ? make("figcaption", "", ...broken(captions[i])) : null);
  };
  return make("div", "row", ...found.map(frame));
}

function group(kind, words, name, found, more) {
  const inside = found.length ? thumbs(found) : make("p", "quiet", "No other sample of this class.");
  return make("section", kind, make("h2", "", words + " ", make("b", "", ...broken(name)), more ? make("span", "", more) : null), inside);
}

function facts(panel) {
  return make("p", "facts", make("span", "", "score ", make("b", "", panel.score === null ? "unknown" : number(panel.score))),
    panel.off_topic === null ? null : make("span", "", "fits no class ", make("b", "", number(panel.off_topic))),
    make("span", "", `row ${panel.row} · ${panel.split}`), panel.path ? make("span", "path", panel.path) : null);
}

function nearest(panel) {
  if (!panel.near.length) return null;
  const kind = (n) => n.label === panel.label ? "claimed" : n.label === panel.suggested ? "instead" : "";
  return make("section", "near", make("h2", "", "Nearest neighbours"), thumbs(panel.near, panel.near.map((n) => n.label), panel.near.map(kind)));
}

function causes(kind, found) {
  const words = kind === "harmful" ? "training samples that cause the error most" : "training samples that counteract the error most";
  const caption = (c) => `${c.relative > 0 ? "+" : "−"}${Math.abs(c.relative).toFixed(1)} ${c.label}`;
  return make("section", kind, make("h2", "", make("b", "", kind === "harmful" ? "Harmful" : "Helpful"), make("span", "", words)),
    thumbs(found, found.map(caption)));
}

function others(shown) {
  const words = (d) => `${d.reviewer}: ${d.choice} ${d.label}`.trim() + (d.note ? ` (${d.note})` : "");
  return shown.others.length ? [make("p", "others", "Disputed. ", shown.others.map(words).join("; "))] : [];
}

const STATES = { flagged: "flagged labels", conflict: "same image, two labels", "off-topic": "off-topic" };
const ADVICE = {
  keep: (panel) => ["Suggested: keep ", make("b", "", ...broken(panel.label))],
  relabel: (panel) => ["Suggested: relabel as ", make("b", "", ...broken(panel.suggested))],
  remove: (panel) => [panel.state === "off-topic" ? "Suggested: remove. It fits no class." : "Suggested: remove. No label is likelier than not."],
};

const advice = (panel) => STATES[panel.state] ? make("p", "advice", ...ADVICE[panel.advice](panel)) : null;

const same = (panel) => panel.copies.length ? make("section", "near", make("h2", "", "The same image"),
  thumbs(panel.copies, panel.copies.map((c) => `row ${c.row}: ${c.label}`), panel.copies.map((c) => c.label === panel.label ? "claimed" : "instead"))) : null;

const frame = (panel) => make("div", "large", picture(panel.row, panel.path, true));

function viewSample(shown) {
  const [panel] = shown.panels;
  const sure = panel.confidence === null ? "" : `confidence ${panel.confidence.toFixed(2)}` +
    (panel.margin === null ? "" : `, margin ${panel.margin.toFixed(2)}`);
  return [make("div", "panel", frame(panel)), make("div", "side", ...others(shown),
    make("div", "", panel.reason ? make("p", "reason", panel.reason) : null, facts(panel), advice(panel)),
    ...[same(panel)].filter(Boolean),
    group("claimed", "Labelled", panel.label, panel.claimed),
    panel.suggested ? group("instead", "Suggested", panel.suggested, panel.instead, sure) : null, nearest(panel))];
}

function viewPair(shown) {
  const [query, wrong] = shown.panels;
  const who = ["Query", "Nearest sample of another class", "Nearest sample of its own class"];
  const doubt = (panel) => Object.assign(make("button", "doubt", `Label flagged; suggested: ${panel.suggested}`), { onclick: () => aside(panel.row) });
  const side = (panel, i) => make("div", `panel ${i === 1 ? "instead" : "claimed"}`, frame(panel), make("div", "",
    make("h2", "", `${who[i]} `, make("b", "", ...broken(panel.label))), facts(panel), panel.suggested ? doubt(panel) : null));
  const question = (ASK[shown.type] || ASK.confusion)(...[query, wrong].map((panel) => make("b", "", ...broken(panel.label))));
  const caused = shown.harmful.length + shown.helpful.length;
  return [make("div", "ask", make("p", "reason", ...question, make("span", "quiet", ` ${shown.type}, distance ${shown.distance.toFixed(3)}`)), ...others(shown)),
    ...shown.panels.map(side), group("claimed", "Others of", query.label, query.claimed), group("instead", "Others of", wrong.label, wrong.claimed),
    ...(caused ? [causes("harmful", shown.harmful), causes("helpful", shown.helpful)] : [nearest(query), nearest(wrong)].filter(Boolean))];
}

function button([key, words, act, title], off) {
  const one = make("button", words.toLowerCase(), words, words.length > 1 ? make("kbd", "", key.toUpperCase()) : null);
  Object.assign(one, { title, disabled: off, onclick: () => act() });
  one.dataset.key = key;
  return one;
}

function draw() {
  const { shown } = state, kind = shown ? kindOf(shown.item) : state.kind, own = shown && shown.decision;
  byId("main").className = kind + (shown && shown.panels.length === 2 ? " two" : "");
  byId("main").replaceChildren(...(shown ? (kind === "pair" ? viewPair : viewSample)(shown) : [make("p", "empty",
    make("b", "", "No items left to review here."), "Change the filter above, or click your name for the exports.")]));
  byId("main").scrollTop = 0;
  byId("actions").replaceChildren(...ACTIONS[kind].map((action) => {
    const one = button(action, !shown || (action[0] === "r" && !shown.panels[0].suggested));
    if (own && own.choice === action[1].toLowerCase()) one.classList.add("chosen");
    else if (shown && kind === "sample" && STATES[shown.panels[0].state] && shown.panels[0].advice === action[1].toLowerCase()) one.classList.add("advised");
    return one;
  }));
  byId("moves").replaceChildren(...MOVES.map((move) => button(move, false)));
  byId("moves").children[1].after(Object.assign(make("span"), { id: "place" }));
  byId("note").value = own ? own.note : "";
  if (own) say(`Your decision: ${own.choice} ${own.label}`.trim());
}

function place() {
  const { queue, at, shown } = state;
  byId("place").textContent = shown && shown.item !== queue[at] ? "aside" : queue.length ? `${Math.min(at + 1, queue.length)} / ${queue.length}` : "";
}

function count({ done, whole }) {
  byId("bar").max = Math.max(whole, 1);
  byId("bar").value = done;
  byId("count").replaceChildren(`${done} of ${whole}`, make("span", "wide", " reviewed"));
}

async function show(item, at = state.at) {
  state.shown = item === undefined ? null : await ask(`/api/item/${item}`, { reviewer: reviewer() });
  state.at = at;
  draw();
  place();
  const next = state.queue[at + 1];
  if (state.about.pictures && next) new Image().src = source(next.split("-")[0], true); // loaded in advance
}

// Next position in the queue: after an item outside of it, the item that was left.
const onward = (by) => state.shown && state.shown.item !== state.queue[state.at] ? state.at : state.at + by;

const go = (by) => inTurn(async () => {
  const at = onward(by);
  if (at < 0 || at > state.queue.length) return;
  say("");
  await show(state.queue[at], at);
});

// A class by its name, or by a part of the name that no other class has.
function meant(text) {
  const like = known().filter((name) => name.toLowerCase().includes(text.trim().toLowerCase()));
  return known().includes(text) || like.length !== 1 ? text : like[0];
}

const known = (part) => part ? state.about.classes[part] : [...new Set(Object.values(state.about.classes).flat())];
const options = (names) => names.map((value) => Object.assign(make("option"), { value }));

// A class that is not in the sample's split comes from another split: both splits then share the class.
function warn() {
  const name = meant(byId("pick").value), [{ split }] = state.shown.panels;
  const far = known().includes(name) && !known(split).includes(name);
  const part = far && Object.keys(state.about.classes).find((one) => known(one).includes(name));
  byId("leak").textContent = far ? `${name} is a class of ${part}: with this label, ${split} and ${part} share a class.` : "";
}

function choose() {
  const [panel] = state.shown.panels;
  const names = new Set(panel.near.map((n) => n.label).filter((name) => name !== panel.label));
  const choice = (name) => Object.assign(make("button", "", ...broken(name)), {
    type: "button", onclick: () => { byId("pick").value = name; byId("choose").close("ok"); } });
  byId("likely").replaceChildren(...[...names].map(choice));
  byId("own").replaceChildren(...options(known(panel.split)));
  byId("leak").textContent = "";
  byId("pick").value = byId("choose").returnValue = "";
  byId("choose").showModal();
}

async function queue() {
  const typed = byId("label").value && meant(byId("label").value);
  if (typed && !known().includes(typed)) throw new Error(`There is no class ${typed}.`);
  byId("label").value = typed;
  const asked = { kind: state.kind, reviewer: reviewer(), among: byId("among").value, state: state.kind === "pair" ? "" : byId("state").value, most: byId("most").value || "1", show: byId("show").value };
  return ask("/api/queue", { ...asked, label: typed });
}

const load = (name = state.kind) => inTurn(async () => {
  say("");
  kind(name);
  const found = await queue();
  state.queue = found.items;
  count(found);
  await show(state.queue[0], 0);
});

const decide = (choice, label = "") => state.busy || !state.shown || inTurn(async () => {
  const said = { reviewer: reviewer(), item: state.shown.item, choice, label, note: byId("note").value };
  const { decision, ...progress } = await ask("/api/decide", null, said);
  if (decision.kind === state.kind) count(progress);
  byId("note").blur();
  const at = onward(1);
  await show(state.queue[at], at);
  say(`Saved: ${decision.item} ${decision.choice} ${decision.label}`.trim());
});

const undo = () => inTurn(async () => {
  const { undone } = await ask("/api/undo", { reviewer: reviewer() }, {});
  if (!undone) return say("There is nothing to undo.");
  const same = undone.kind === state.kind;
  kind(undone.kind);
  const found = await queue();
  if (!same) Object.assign(state, { queue: found.items, at: 0 });
  count(found);
  const at = state.queue.indexOf(undone.item);
  await show(undone.item, at < 0 ? state.at : at);
  say(`Undone: ${undone.item} ${undone.choice} ${undone.label}`.trim());
});

function kind(name) {
  if (name !== state.kind || !byId("among").children.length) choices(name);
  state.kind = name;
  byId("samples").setAttribute("aria-pressed", String(name === "sample"));
  byId("pairs").setAttribute("aria-pressed", String(name === "pair"));
  byId("upto").hidden = name === "pair";
  byId("state").hidden = name === "pair" || state.about.states.length < 2;
}

function choices(name) {
  const option = (value, words) => Object.assign(make("option", "", words), { value });
  const found = state.about.among[name];
  byId("among").replaceChildren(option("", name === "pair" ? "both types" : "all splits"), ...found.map((one) => option(one, one)));
  byId("among").hidden = found.length < 2;
}

async function people() {
  byId("name").value = reviewer();
  byId("people").showModal();
  const { decided, agreement, disputed } = await ask("/api/reviewers");
  const line = (tag, ...cells) => make("tr", "", ...cells.map((c) => make(tag, "", String(c))));
  const lines = Object.entries(decided).map(([name, n]) => line("td", name, n));
  const kappas = agreement.map((a) => line("td", `${a.one} and ${a.other}, ${a.kind === "pair" ? "errors" : "labels"}`, a.both,
    a.kappa === null ? "–" : a.kappa.toFixed(2)));
  byId("table").replaceChildren(
    ...(lines.length ? [make("table", "", line("th", "Reviewer", "decisions"), ...lines)] : []),
    ...(kappas.length ? [make("table", "", line("th", "Agreement", "both reviewed", "Cohen's kappa"), ...kappas)] : []),
    ...(disputed ? [make("p", "quiet", `${disputed} disputed: these items stay unchanged until the reviewers agree.`)] : []));
}

function listen() {
  byId("samples").onclick = () => load("sample");
  byId("pairs").onclick = () => load("pair");
  byId("filter").onchange = () => load();
  byId("filter").onsubmit = (event) => event.preventDefault();
  byId("who").onclick = () => people().catch((error) => say(error.message, true));
  byId("people").oncancel = (event) => { if (!reviewer()) event.preventDefault(); };
  byId("people").onclose = () => {
    const name = byId("name").value.trim();
    if (name && name !== reviewer()) {
      localStorage.setItem("reviewer", name);
      load();
    }
    byId("who").textContent = reviewer();
  };
  byId("pick").oninput = warn;
  byId("choose").onclose = () => {
    if (byId("choose").returnValue === "ok") decide("relabel", meant(byId("pick").value));
  };
  document.addEventListener("keydown", press);
}

const FOCUS = { n: "note", "/": "label" };

function press(event) {
  if (document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.matches("input, select")) {
    if (event.key === "Escape" || (event.key === "Enter" && event.target.matches("input"))) event.target.blur();
    return;
  }
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const found = [...document.querySelectorAll("[data-key]")].find((b) => b.dataset.key === key);
  if (!FOCUS[key] && !found) return;
  event.preventDefault();
  if (FOCUS[key]) byId(FOCUS[key]).select();
  else found.click();
}

async function start() {
  listen();
  state.about = await ask("/api/about");
  const { among, title } = state.about;
  document.body.classList.toggle("words", !state.about.pictures);
  document.title = title ? `${title} · review` : "likewise review";
  byId("title").textContent = title || "likewise review";
  byId("classes").append(...options(known().sort()));
  byId("pairs").hidden = among.pair.length === 0;
  byId("state").append(...state.about.states.map((value) => Object.assign(make("option", "", STATES[value]), { value })));
  byId("who").textContent = reviewer();
  if (reviewer()) load();
  else await people();
}

start().catch((error) => say(error.message, true));
