// What sections share that show runs: their colours, and the choice of one.

const runKind = run => `run-${run % 6}`;

/** A section's content for the run that is chosen among those that have it; at first one that has `most` to show. */
function byRun(holder, have, make, most = have) {
  const runs = facts.runs.map((_, i) => i).filter(have), place = h("div");
  const show = i => place.replaceChildren(...[make(runs[i])].flat().filter(Boolean));
  const first = Math.max(0, runs.findIndex(most));
  const buttons = oneOf("Run", runs.map(i => facts.runs[i].name), first, show);
  holder.replaceChildren(...[buttons && h("div", { class: "bar" }, buttons), place].filter(Boolean));
  show(first);
}

function runLegend(runs) {
  return runs.length < 2 ? null : legend(runs.map(run => ({ name: facts.runs[run].name, kind: runKind(run) })));
}
