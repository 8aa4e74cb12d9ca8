// The end of a review: what was decided, what is left, the corrected table. Also the dialogs of names, classes and keys.
import { ask, byId, say, settled } from "/static/server.js";
import { broken, copier, known, make, plural, quoted, reviewer, set, state } from "/static/elements.js";

const count = (found) => [[found.changed, state.about.several_labels ? "added" : "changed"], [found.removed, "removed"], [found.kept, "kept"], [found.unsure, "unsure"], [found.disputed, "disputed"]]
  .filter(([n], i) => n || i < 3).map(([n, words]) => `${n.toLocaleString("en")} ${words}`).join(", ");

const act = (words, className, onclick) => set(make("button", className, words), { type: "button", onclick });

function estimate(left) {
  const n = Math.round(left);
  if (state.about.several_labels) return n ? `About ${n.toLocaleString("en")} more ${n === 1 ? "label is" : "labels are"} estimated to be missing or wrong.` : "No more labels are estimated to be missing or wrong.";
  if (!n) return "Of the labels without a decision, none is estimated to be wrong.";
  return `Of the labels without a decision, about ${n.toLocaleString("en")} ${n === 1 ? "is" : "are"} estimated to be wrong.`;
}

const commands = (found) => found.commands.length ? make("div", "commands", make("p", "quiet", state.about.several_labels ? "Then train on it:" : "Then train on it, or write it as a new folder:"),
  ...found.commands.map((line) => make("p", "command", make("code", "", line), copier(line, "Copy")))) : null;

export async function ending(resume, beyond) {
  await settled();
  const found = await ask("/api/outcome", { reviewer: reviewer() }), { open } = found;
  if (state.view !== "end") return; // another view was chosen meanwhile
  const more = state.about.others && !state.beyond;
  const link = set(make("a", "button", "Download corrected table"), { href: "/export/corrected.csv", download: "corrected.csv" });
  byId("main").className = "ending";
  byId("main").replaceChildren(make("div", "card", make("h2", "", open ? `So far: ${count(found)}.` : `Done: ${count(found)}.`),
    open ? make("p", "", `${plural(open, "flagged label is", "flagged labels are")} still to review.`) : null,
    make("p", "", estimate(found.left)),
    make("p", "buttons", open ? act("Back to the review", "", resume) : null, link, act("Finish", "main", () => finish().catch((error) => say(error.message, true)))),
    make("p", "quiet", `Finish writes ${found.table} and stops the server. All decisions are kept; you can review again later.`),
    commands(found),
    more ? make("div", "beyond", make("p", "", "Not sure that all mistakes were found? Go on with the labels that are not flagged, the most suspicious first."),
      act(`Continue with ${plural(state.about.others, "label")} not flagged`, "", beyond)) : null));
}

async function finish() {
  await settled();
  const found = await ask("/api/finish", null, {});
  document.body.classList.add("over");
  byId("main").replaceChildren(make("div", "card", make("h2", "", `Finished: ${count(found)}.`),
    make("p", "", found.written ? `The corrected table is ${found.table}.` : "No decision was made, so no table was written."),
    make("p", "quiet", "The server has stopped. You can close this page."), found.written ? commands(found) : null));
}

export async function people(then) {
  byId("name").value = reviewer();
  byId("people").returnValue = "";
  byId("people").showModal();
  byId("people").onclose = () => {
    const name = byId("name").value.trim(), changed = name && name !== reviewer();
    if (name) localStorage.setItem("reviewer", name);
    byId("who").textContent = reviewer();
    if (name && byId("people").returnValue === "ok") then(changed);
    else if (changed) then(true);
  };
  const { decided, agreement, disputed } = await ask("/api/reviewers");
  const line = (tag, ...cells) => make("tr", "", ...cells.map((c) => make(tag, "", String(c))));
  const lines = Object.entries(decided).map(([name, n]) => line("td", name, n));
  const kappas = agreement.map((a) => line("td", `${a.one} and ${a.other}, ${a.kind === "pair" ? "confusions" : "labels"}`, a.both,
    a.kappa === null ? "–" : a.kappa.toFixed(2)));
  byId("table").replaceChildren(
    ...(lines.length ? [make("table", "", line("th", "Reviewer", "decisions"), ...lines)] : []),
    ...(kappas.length ? [make("table", "", line("th", "Agreement", "both reviewed", "Cohen's kappa"), ...kappas)] : []),
    ...(disputed ? [make("p", "quiet", `${disputed} disputed: these items stay unchanged until the reviewers agree.`)] : []));
}

// Splits of unseen classes share no class; a label of another split would make them share one.
function leak(name, splits) {
  const parts = Object.keys(state.about.classes);
  const shared = parts.some((a) => parts.some((b) => a < b && known(a).some((one) => known(b).includes(one))));
  const far = shared ? undefined : splits.find((split) => known(split).length && !known(split).includes(name));
  const part = far && parts.find((one) => known(one).includes(name));
  return part ? `${name} is a class of ${part}: with this label, ${far} and ${part} share a class.` : "";
}

// Choose a class of the whole data, or a new one: `then(name, isNew)`. `likely` names come first.
export function choose(likely, but, splits, then) {
  const box = byId("choose"), pick = byId("pick"), list = byId("matches");
  const every = known().sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const first = [...new Set(likely)].filter((name) => name && name !== but);
  let options = [], active = 0;
  const light = () => {
    [...list.children].forEach((one, i) => one.setAttribute("aria-selected", String(i === active)));
    const one = list.children[active];
    if (one) one.scrollIntoView({ block: "nearest" });
    pick.setAttribute("aria-activedescendant", one ? one.id : "");
    byId("leak").textContent = options[active] ? leak(options[active].name, splits) : "";
  };
  const take = (one) => { box.close("ok"); then(one.name, one.fresh); };
  const fill = () => {
    const typed = pick.value.trim(), low = typed.toLowerCase();
    const ranked = typed ? [...every.filter((n) => n.toLowerCase().startsWith(low)), ...every.filter((n) => n.toLowerCase().includes(low) && !n.toLowerCase().startsWith(low))]
      : [...first, ...every.filter((n) => !first.includes(n))];
    options = ranked.filter((name) => name !== but).slice(0, 200).map((name) => ({ name, fresh: false }));
    if (typed && !every.includes(typed) && typed !== but) options.push({ name: typed, fresh: true });
    active = 0;
    list.replaceChildren(...options.map((one, i) => {
      const words = one.fresh ? [`Add the new class ${quoted(one.name)}`] : broken(one.name);
      const row = set(make("div", one.fresh ? "fresh" : !typed && i < first.length ? "likely" : "", ...words), { id: `match-${i}`, onclick: () => take(one) });
      row.setAttribute("role", "option");
      return row;
    }));
    light();
  };
  pick.value = "";
  pick.oninput = fill;
  pick.onkeydown = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) active = Math.min(Math.max(active + by, 0), options.length - 1);
    else if (event.key === "Enter" && options[active]) take(options[active]);
    else return;
    event.preventDefault();
    light();
  };
  fill();
  box.showModal();
  pick.focus();
}

const KEYS = [
  ["K", "keep the label"], ["R", "change to the suggested label"], ["L", "another label, or a new class"], ["X", "remove the image"],
  ["U", "unsure"], ["1, 2, …", "the same image with several labels: the right one"], ["Y, N", "confusions: yes, no"],
  ["Backspace", "undo (also Ctrl+Z); many at once are undone together"], ["← →", "back, next, without a decision"],
  ["Z", "show the image large; Esc closes it"], ["C", "comment"], ["G, O, E", "grid, one by one, confusions"],
  ["Space", "grid: select; Shift selects up to here"], ["A", "grid: select all from a probability"], ["Esc", "grid: select none"],
  ["F, /", "filter, filter by class"], ["P", "your name, other reviewers, exports"], ["?", "this list"],
];

const LABEL_KEYS = { K: "keep the labels as they are", R: "add the missing, or remove the wrong label", U: "cannot tell" };
const UNUSED = ["L", "X", "1, 2, …", "Y, N"];

export function help() {
  const keys = state.about.several_labels ? KEYS.filter(([key]) => !UNUSED.includes(key)).map(([key, words]) => [key, LABEL_KEYS[key] || words]) : KEYS;
  byId("list").replaceChildren(make("dl", "keys", ...keys.flatMap(([key, words]) => [make("dt", "", make("kbd", "", key)), make("dd", "", words)])));
  byId("keys").showModal();
}
