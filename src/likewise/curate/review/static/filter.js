// The filter: what the page offers, and what it requests.
import { byId } from "/static/server.js";
import { known, make, reviewer, set, state } from "/static/elements.js";

const FINDINGS = { flagged: "labels that look wrong", conflict: "same image, several labels", "off-topic": "images of no class",
  missing: "labels that may be missing", superfluous: "labels that may be wrong" };
const MOST_OFFERED = 1000; // classes in the list of the field
const option = (value, words) => set(make("option", "", words), { value });

export function offer() {
  const { moves, states, several_labels: several } = state.about;
  suggest();
  byId("label").addEventListener("input", suggest);
  byId("move").append(...moves.map((one, i) => option(String(i), `${one.given} → ${one.suggested} (${one.count})`)));
  byId("state").append(...states.map((one) => option(one, FINDINGS[one])));
  byId("label").parentElement.firstChild.textContent = several ? "Label " : "Class ";
}

// The classes that the field offers: those with the text that was typed, as a browser is slow with a hundred thousand.
function suggest() {
  const typed = byId("label").value.trim().toLowerCase(), names = [...known()].sort();
  const like = names.length > MOST_OFFERED && typed ? names.filter((name) => name.toLowerCase().includes(typed)) : names;
  byId("classes").replaceChildren(...like.slice(0, MOST_OFFERED).map((value) => set(make("option"), { value })));
}

// A class by its name, or by a part of the name that no other class has.
function meant(text) {
  const like = known().filter((name) => name.toLowerCase().includes(text.trim().toLowerCase()));
  return known().includes(text) || like.length !== 1 ? text : like[0];
}

// What the queue and the plan are limited to.
export function limits() {
  const typed = byId("label").value && meant(byId("label").value);
  if (typed && !known().includes(typed)) throw new Error(`There is no class ${typed}.`);
  byId("label").value = typed;
  const pair = state.kind === "pair", move = !pair && byId("move").value !== "" ? state.about.moves[Number(byId("move").value)] : { given: "", suggested: "" };
  return { kind: state.kind, label: typed, among: byId("among").value, state: pair ? "" : byId("state").value, suspicion: pair ? 0 : byId("suspicion").value || 0,
    given: move.given, suggested: move.suggested };
}

// Groups come in the order of the plan; by suspicion, one by one, the order is that of the audit.
export function filter() {
  const order = state.order === "suspicion" && state.view !== "groups" ? "" : state.order;
  return { ...limits(), reviewer: reviewer(), show: byId("show").value, order };
}

// Samples, labels or pairs: the filters that they have.
export function kind(name) {
  if (name !== state.kind || !byId("among").children.length) {
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

export function sift(open = byId("filter").hidden) {
  byId("filter").hidden = !open;
  byId("sift").setAttribute("aria-expanded", String(open));
}
