// Shared by sections about runs: the colour of a run, and the choice of a run.

const runKind = run => `run-${run % 6}`;

/** Show the content of the chosen run among the runs that `have` it; the first choice is the first run with `most`. */
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
