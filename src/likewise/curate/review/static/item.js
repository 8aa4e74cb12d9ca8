// One question: a label, copies of an image with several labels, or a pair that the model confuses.
import { bold, broken, copier, make, percent, picture, plural, quoted, set, state, thumbs, zoom } from "/static/elements.js";

const asSample = (panel) => ({ row: panel.row, label: panel.label, name: panel.name });
const here = (panel) => ({ ...asSample(panel), here: true });

function stage(panels, i) {
  const panel = panels[i];
  const button = make("button", "large", picture(panel.row, panel.name, panel.label, true));
  return set(button, { type: "button", title: "Show it large (Z)", onclick: () => zoom(panels.map(here), i) });
}

function others(shown) {
  const words = (d) => `${d.reviewer}: ${d.choice} ${d.label}`.trim() + (d.note ? ` (${d.note})` : "");
  return shown.others && shown.others.length ? make("p", "others", "Disputed. ", shown.others.map(words).join("; ")) : null;
}

function fileLine(panel) {
  const name = make("span", "file", ...broken(panel.name));
  return make("p", "facts", name, panel.file ? copier(panel.file, "Copy path") : null);
}

function more(panel) {
  const line = (name, value) => value === null || value === "" || value === undefined ? [] : [make("dt", "", name), make("dd", "", String(value))];
  const number = (value) => value === null ? null : value < 0.0005 && value > 0 ? "< 0.001" : value.toFixed(3);
  return make("details", "more", make("summary", "", "Details"), make("dl", "", ...line("row", panel.row), ...line("split", panel.split === "all" ? "" : panel.split),
    ...line("suspicion", panel.score === null ? "unknown" : number(1 - panel.score)), ...line("confidence of the suggestion", number(panel.confidence)),
    ...line("lead over the next label", number(panel.margin)), ...line("fits no class", panel.off_topic ? number(panel.off_topic) : null),
    ...line("reason", panel.reason), ...line("path", panel.path)));
}

// What the nearest neighbours say, in one sentence.
export function similar(near) {
  const count = new Map();
  near.forEach((one) => count.set(one.label, (count.get(one.label) || 0) + 1));
  const [[first, n], ...rest] = [...count].sort((a, b) => b[1] - a[1]);
  if (near.length === 1) return ["The most similar image is ", bold(first), "."];
  if (n === near.length) return [`All ${n} most similar images are `, bold(first), "."];
  const tail = rest.slice(0, 2).flatMap(([name, k]) => [`, ${k} ${k === 1 ? "is" : "are"} `, bold(name)]);
  return [`${n} of the ${near.length} most similar images ${n === 1 ? "is" : "are"} `, bold(first), ...tail, rest.length > 2 ? " and others." : "."];
}

export function strip(kind, words, name, found, note) {
  const inside = found === undefined ? make("div", "row wait") : found.length ? thumbs(found, "row") : make("p", "quiet", "No other image has this label.");
  return make("section", kind, make("h2", "", `${words} `, bold(name), note ? make("span", "", note) : null), inside);
}

function nearest(panel) {
  if (!panel.near || !panel.near.length) return null;
  const kind = (one) => ({ ...one, kind: one.label === panel.label ? "claimed" : one.label === panel.suggested ? "instead" : "" });
  return make("section", "near", make("h2", "", ...similar(panel.near)), thumbs(panel.near.map(kind), "row small", panel.near.map((n) => n.label)));
}

function question(tile) {
  const { about } = state;
  if (!tile.flagged) return ["This label is ", make("b", "badge", "not flagged"), ": it is probably right. Is it?"];
  if (tile.state === "off-topic") return ["This image seems to fit no class. Should it be removed?"];
  return [`${plural(about.flagged, "label looks", "labels look")} wrong. Is the label right?`];
}

// Who voted what: the given label is marked; and what votes and features say together.
function votes(panel) {
  if (!panel.votes || (!panel.votes.length && !panel.consensus)) return null;
  const chip = (one) => make("span", `chip ${one.label === panel.label ? "given" : ""}`, make("small", "", `${one.worker || "unknown"}: `), ...broken(one.label));
  const { consensus } = panel;
  const share = consensus ? `, ${consensus.for_consensus} of ${plural(consensus.votes, "vote")}, estimated to be right with ${percent(1 - consensus.wrong)}` : "";
  return make("section", "votes", make("h2", "", consensus ? "Votes. Consensus: " : "Votes", consensus ? bold(consensus.label) : null, share),
    panel.votes.length ? make("p", "chips", ...panel.votes.map(chip)) : null);
}

const SURE = (tile) => tile.probability === null || tile.probability === undefined ? "" : percent(tile.probability);

function viewSample(tile, shown) {
  const panel = shown ? shown.panels[0] : { row: tile.rows[0], label: tile.label, suggested: tile.suggested, name: tile.name };
  const words = tile.flagged ? "Looks like" : "Similar images are also";
  const same = shown && panel.copies.length ? make("section", "near", make("h2", "", "The same image also exists as"),
    thumbs(panel.copies, "row small", panel.copies.map((c) => c.label))) : null;
  return [make("div", "panel", make("h2", "question", ...question(tile)), stage([panel], 0), fileLine(panel)),
    make("div", "side", shown && others(shown), shown && votes(panel),
      make("div", "classes", strip("claimed", "Labelled", tile.label, shown && panel.claimed),
        tile.suggested ? strip("instead", words, tile.suggested, shown && panel.instead, SURE(tile)) : null),
      same, shown && nearest(panel), shown && more(panel))];
}

// The labels of a sample with several labels; the one that is asked about stands out, dashed if the sample lacks it.
function chips(tile) {
  const chip = (name, kind) => make("span", `chip ${kind}`, ...broken(name));
  const own = tile.tags.map((name) => chip(name, name === tile.label ? "asked" : ""));
  return make("p", "chips", ...own, tile.question === "missing" ? chip(`+ ${tile.label}`, "asked absent") : null);
}

function viewLabel(tile, shown) {
  const panel = shown ? shown.panels[0] : { row: tile.rows[0], label: tile.labels[0], name: tile.name };
  const missing = tile.question === "missing", name = make("b", "asked", quoted(tile.label));
  const chance = tile.probability === null ? "unknown" : `${percent(tile.probability)} ${missing ? "missing" : "wrong"}`;
  const words = ["Is ", name, missing ? " missing? " : " right? ", make("span", "badge", chance)];
  const side = (kind, head, found, none) => make("section", kind, make("h2", "", head, bold(tile.label)),
    found === undefined ? make("div", "row wait") : found.length ? thumbs(found, "row") : make("p", "quiet", none));
  const line = (text, value) => value ? [make("dt", "", text), make("dd", "", String(value))] : [];
  const details = shown && make("details", "more", make("summary", "", "Details"), make("dl", "", ...line("row", String(panel.row)), ...line("split", panel.split === "all" ? "" : panel.split),
    ...line("chance", panel.chance === null ? "unknown" : panel.chance.toFixed(3)), ...line("reason", panel.reason), ...line("path", panel.path)));
  return [make("div", "panel", make("h2", "question", ...words), stage([panel], 0), chips(tile), fileLine(panel)),
    make("div", "side", shown && others(shown), make("div", "classes",
      side("instead", "Most similar with ", shown && panel.with, "No other image surely has this label."),
      side("claimed", "Most similar without ", shown && panel.without, "Every other image has this label.")),
    shown && panel.near.length ? make("section", "near", make("h2", "", "Most similar images"), thumbs(panel.near, "row small", panel.near.map((n) => n.label.split("|").join(", ")))) : null, details)];
}

function viewCopies(tile, shown) {
  const panels = shown ? shown.panels : tile.rows.map((row, i) => ({ row, label: tile.labels[i], name: i ? `row ${row}` : tile.name }));
  const side = (panel, i) => make("div", "panel", make("h2", "", "Labelled ", bold(panel.label)), stage(panels, i), fileLine(panel),
    shown ? make("p", "quiet", panel.split === "all" ? "" : `in ${panel.split}`) : null, shown && votes(panel), shown && strip("claimed", "Other images of", panel.label, panel.claimed));
  const kinds = new Set(tile.labels).size;
  return [make("h2", "question", `The same image exists ${tile.rows.length === 2 ? "twice" : `${tile.rows.length} times`}, with ${kinds} labels. Which one is right?`),
    shown && others(shown), make("div", "beside", ...panels.slice(0, 4).map(side)),
    panels.length > 4 ? make("p", "quiet", `And ${panels.length - 4} more copies; the decision is for all of them.`) : null];
}

function causes(kind, found) {
  const words = kind === "harmful" ? "Training images that cause the confusion most" : "Training images that counteract it most";
  const caption = (c) => `${c.relative > 0 ? "+" : "−"}${Math.abs(c.relative).toFixed(1)} ${c.label}`;
  return make("section", kind, make("h2", "", words), thumbs(found, "row small", found.map(caption)));
}

function viewPair(tile, shown) {
  const panels = shown ? shown.panels : tile.rows.map((row, i) => ({ row, label: tile.labels[i], name: i ? `row ${row}` : tile.name }));
  const [query, wrong] = panels, who = ["This image", "The model finds it most similar to", "Most similar of its own class"];
  const doubt = (panel) => set(make("button", "doubt", `Label flagged; looks like ${panel.suggested}`), { type: "button", onclick: () => state.review(panel.row) });
  const side = (panel, i) => make("div", `panel ${i === 1 ? "instead" : "claimed"}`, make("h2", "", `${who[i]} `, bold(panel.label)), stage(panels, i), fileLine(panel),
    panel.state === "flagged" && panel.suggested ? doubt(panel) : null);
  const why = shown && (shown.harmful.length + shown.helpful.length) ? make("details", "more", make("summary", "", "Why? Training images behind this confusion"),
    causes("harmful", shown.harmful), causes("helpful", shown.helpful)) : null;
  return [make("h2", "question", "The model takes this ", bold(query.label), " for ", bold(wrong.label), ". Would a person confuse these two?"),
    make("p", "quiet", "Your answer changes no label. Yes: the two are hard to tell apart for people too. No: the model misses what a person sees. The answers are in decisions.csv."),
    shown && others(shown), make("div", "beside", ...panels.map(side)), why];
}

export function view(tile, shown) {
  if (tile.type) return viewPair(tile, shown);
  if (tile.question) return viewLabel(tile, shown);
  return (tile.rows.length > 1 ? viewCopies : viewSample)(tile, shown);
}

export const layout = (tile) => tile.type ? "pair" : tile.rows.length > 1 ? "copies" : "sample";
export const zoomable = (tile) => tile.rows.map((row, i) => ({ row, label: tile.labels[i], name: i ? `row ${row}` : tile.name, here: true }));
