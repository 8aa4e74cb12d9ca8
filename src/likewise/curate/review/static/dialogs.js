// The dialogs: names and quality of reviewers and workers, the choice of a class, the list of keys.
import { ask, byId } from "/static/server.js";
import { showReviewer } from "/static/header.js";
import { broken, known, make, percent, quoted, reviewer, set, state } from "/static/elements.js";

export async function people(then) {
  byId("name").value = reviewer();
  byId("people").returnValue = "";
  byId("people").showModal();
  byId("people").onclose = () => {
    const name = byId("name").value.trim(), changed = name && name !== reviewer();
    if (name) localStorage.setItem("reviewer", name);
    showReviewer();
    if (name && byId("people").returnValue === "ok") then(changed);
    else if (changed) then(true);
  };
  const { decided, agreement, disputed, workers } = await ask("/api/reviewers");
  const line = (tag, ...cells) => make("tr", "", ...cells.map((c) => make(tag, "", String(c))));
  const lines = Object.entries(decided).map(([name, n]) => line("td", name, n));
  const kappas = agreement.map((a) => line("td", `${a.one} and ${a.other}, ${a.kind === "pair" ? "confusions" : "labels"}`, a.both,
    a.kappa === null ? "–" : a.kappa.toFixed(2)));
  const share = (value) => value === null || value === undefined ? "–" : percent(value);
  const quality = (workers || []).map((one) => line("td", one.name, one.votes.toLocaleString("en"), share(one.accuracy), one.low === null ? "–" : `${share(one.low)} to ${share(one.high)}`));
  byId("table").replaceChildren(
    ...(lines.length ? [make("table", "", line("th", "Reviewer", "decisions"), ...lines)] : []),
    ...(kappas.length ? [make("table", "", line("th", "Agreement", "both reviewed", "Cohen's kappa"), ...kappas)] : []),
    ...(quality.length ? [make("table", "workers", line("th", "Worker, the least accurate first", "votes", "accuracy", "95 % interval"), ...quality)] : []),
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
  const every = [...known()].sort(new Intl.Collator(undefined, { numeric: true }).compare);
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
  ["Z", "show the image large; Esc closes it"], ["C", "comment"], ["B, G", "groups that are decided at once; grid of all"], ["O, E", "one by one; confusions"],
  ["Enter", "group: accept what is selected, keep the rest"], ["S", "group: skip it for now"],
  ["Space", "group, grid: select; in the grid, Shift selects up to here"], ["A, Esc", "group, grid: select all, none"],
  ["W", "what the review brings, when to stop"],
  ["F, /", "filter, filter by class"], ["P", "your name, other reviewers, exports"], ["?", "this list"],
];

const LABEL_KEYS = { K: "keep the labels as they are", R: "add the missing, or remove the wrong label", U: "cannot tell" };
const UNUSED = ["L", "X", "1, 2, …", "Y, N"];

export function help() {
  const keys = state.about.several_labels ? KEYS.filter(([key]) => !UNUSED.includes(key)).map(([key, words]) => [key, LABEL_KEYS[key] || words]) : KEYS;
  byId("list").replaceChildren(make("dl", "keys", ...keys.flatMap(([key, words]) => [make("dt", "", make("kbd", "", key)), make("dd", "", words)])));
  byId("keys").showModal();
}
