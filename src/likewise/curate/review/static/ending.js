// The end of a review: what was decided, what is left, forecast against realised gain, the corrected table.
import { ask, byId, say, settled } from "/static/server.js";
import { copier, make, plural, reviewer, set, state } from "/static/elements.js";
import { interval, points, proofChart } from "/static/curve.js";
import { forecastParts, refresh } from "/static/plan.js";

const count = (found) => [[found.changed, state.about.several_labels ? "added" : "changed"], [found.removed, "removed"], [found.kept, "kept"], [found.unsure, "unsure"], [found.disputed, "disputed"]]
  .filter(([n], i) => n || i < 3).map(([n, words]) => `${n.toLocaleString("en")} ${words}`).join(", ");

const act = (words, className, onclick) => set(make("button", className, words), { type: "button", onclick });

function estimate(left) {
  const n = Math.round(left);
  if (state.about.several_labels) return n ? `About ${n.toLocaleString("en")} more ${n === 1 ? "label is" : "labels are"} estimated to be missing or wrong.` : "No more labels are estimated to be missing or wrong.";
  if (!n) return "Of the labels without a decision, none is estimated to be wrong.";
  return `Of the labels without a decision, about ${n.toLocaleString("en")} ${n === 1 ? "is" : "are"} estimated to be wrong.`;
}

const command = (line) => make("p", "command", make("code", "", line), copier(line, "Copy"));
const quote = (path) => /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", `'"'"'`)}'`;

const commands = (found) => found.commands.length ? make("div", "commands", make("p", "quiet", state.about.several_labels || found.to ? "Then train on it:" : "Then train on it, or write it as a new folder:"),
  ...found.commands.map(command)) : null;

const OF = { head: "The head that was forecast", network: "The network, trained again" };

// What came true: forecast and realised gain of every metric; before a retraining, the command that measures it.
function proof({ proof: found, forecast: known }, { table }) {
  if (!found && known && !known.reason && known.curve.length && !state.about.several_labels) {
    return [make("section", "proven", make("h3", "", "Does it come true?"), make("p", "", "This command trains again with the decisions and compares the result with the forecast. This page shows it then."),
      command(`likewise review ${quote(table.replace(/[\\/][^\\/]*$/, ""))} --retrain`))];
  }
  if (!found) return [];
  const parts = found.parts.filter((one) => one.rows.length);
  if (!parts.length) return [make("p", "", `There is no forecast to compare with${found.reason ? `: ${found.reason}` : ""}.`)];
  const line = (one) => make("p", one.inside ? "inside" : "outside", make("b", "", one.metric), ` forecast ${points(one.forecast.gain)} points (${interval(one.forecast)}), realised ${points(one.realised.gain)}`,
    one.realised.low === null || one.realised.low === undefined ? "" : ` (${interval(one.realised)})`, `: ${one.inside ? "inside" : "outside"} of the interval. ${one.note || ""}`);
  const part = (one) => [make("h4", "", OF[one.of]), proofChart(one.rows), ...one.rows.map(line), one.note ? make("p", "quiet", one.note) : null];
  const words = found.labels === "suggestions" ? "Forecast and what came true, with all suggestions of the audit" : `Forecast and what came true, after ${plural(found.reviewed, "label")}`;
  return [make("section", "proven", make("h3", "", words), ...parts.flatMap(part))];
}

// The part about the forecast: the curve, then the proof; an audit without a forecast has none of it.
function forecast(found) {
  const { plan } = state;
  if (!plan || !plan.forecast) return proof(plan || {}, found);
  return [make("section", "expected", make("h3", "", "What the review brings"), ...forecastParts(plan)), ...proof(plan, found)];
}

export async function ending(resume, beyond) {
  await settled();
  const [found] = await Promise.all([ask("/api/outcome", { reviewer: reviewer() }), refresh().catch(() => undefined)]), { open } = found;
  if (state.view !== "end") return; // another view was chosen meanwhile
  const made = found.changed + found.removed + found.kept + found.unsure; // without a decision there is no corrected table
  const more = state.about.others && !state.beyond;
  const link = set(make("a", "button", "Download corrected table"), { href: "/export/corrected.csv", download: "corrected.csv" });
  byId("main").className = "ending";
  byId("main").replaceChildren(make("div", "card", make("h2", "", open ? `So far: ${count(found)}.` : `Done: ${count(found)}.`),
    open ? make("p", "", `${plural(open, "label is", "labels are")} still to review.`) : null,
    make("p", "", estimate(found.left)),
    make("p", "buttons", open ? act("Back to the review", "", resume) : null, made ? link : null, act("Finish", "main", () => finish().catch((error) => say(error.message, true)))),
    make("p", "quiet", `${made ? `Finish writes ${found.table}${found.to ? ` and the folder ${found.to}` : ""}, and stops` : "Without a decision no table is written; Finish stops"} the server. All decisions are kept; you can review again later.`),
    ...forecast(found),
    made ? commands(found) : null,
    more ? make("div", "beyond", make("p", "", "Not sure that all mistakes were found? Go on with the labels that are not flagged, the most suspicious first."),
      act(`Continue with ${plural(state.about.others, "label")} not flagged`, "", beyond)) : null));
}

async function finish() {
  await settled();
  const found = await ask("/api/finish", null, {});
  document.body.classList.add("over");
  byId("main").replaceChildren(make("div", "card", make("h2", "", `Finished: ${count(found)}.`),
    make("p", "", found.written ? `The corrected table is ${found.table}${found.to ? `; the folder ${found.to} is written now` : ""}.` : "No decision was made, so no table was written."),
    make("p", "quiet", "The server has stopped. You can close this page."), found.written ? commands(found) : null));
}
