// Sections of charts: training curves, confusions, similarities, spectra, classes that runs are wrong about.

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

function drawCurves(holder) {
  const panels = new Map();
  facts.runs.forEach((run, i) => run.curves.forEach(curve => {
    if (!panels.has(curve.panel)) panels.set(curve.panel, []);
    panels.get(curve.panel).push({ ...curve, run: i });
  }));
  const runs = [...new Set([...panels.values()].flat().map(curve => curve.run))];
  const draw = ([title, curves]) => {
    const names = [...new Set(curves.map(curve => curve.name))], dash = name => DASHES[names.indexOf(name) % DASHES.length];
    const lines = curves.map(curve => ({ x: curve.step, y: curve.value, kind: runKind(curve.run), dash: dash(curve.name),
      name: runs.length > 1 ? `${curve.name}, ${facts.runs[curve.run].name}` : curve.name }));
    const kind = runs.length > 1 ? "" : runKind(runs[0]);
    const told = names.length > 1 || names[0] !== title ? legend(names.map(name => ({ name, dash: dash(name), kind }))) : null;
    const { chart } = lineChart(lines, { label: `${title} over steps`, xName: "step" });
    return h("figure", { class: "panel" }, h("h3", {}, title), told, chart);
  };
  const grid = h("div", { class: "panels" }, [...panels].map(draw));
  holder.replaceChildren(...[runLegend(runs), grid].filter(Boolean));
}

function confusedPair(run, [a, b, many, share, [ours, theirs]]) {
  const { pool } = facts.runs[run], names = facts.pools[pool].classes;
  const strip = places => h("div", { class: "strip" }, places.map(place => tile(pool, place, { bare: true })));
  return h("li", {}, h("b", {}, names[a]), " taken for ", h("b", {}, names[b]),
    h("span", { class: "soft" }, ` ${count(many)} times, ${percent(share)} of the class`),
    ours.length + theirs.length ? h("div", { class: "couple" }, strip(ours), strip(theirs)) : null);
}

function drawConfusion(holder) {
  byRun(holder, i => more.runs[i].confusion, run => {
    const { pairs, classes, matrix } = more.runs[run].confusion, all = facts.pools[facts.runs[run].pool].classes;
    const names = classes.map(one => all[one]), answered = (i, j) => i === j ? "rightly answered" : `taken for ${names[j]}`;
    const read = (i, j) => [h("b", {}, percent(matrix[i][j])), ` of ${names[i]} ${answered(i, j)}`];
    const told = `The ${classes.length} classes confused most, similar ones side by side: `
      + "rows ask, columns answer, the diagonal is right.";
    const map = matrix.length ? h("figure", { class: "panel" },
      heatMap(matrix, { label: "Which classes are taken for which", read }), h("figcaption", { class: "soft" }, told)) : null;
    const list = unfolding(pairs, pair => confusedPair(run, pair), h("ol", { class: "pairs" }), 5);
    return h("div", { class: "beside" }, map, h("div", {}, list));
  });
}

function drawDistances(holder) {
  const runs = facts.runs.map((_, i) => i).filter(i => facts.runs[i].distances);
  const draw = i => {
    const { measure, edge, within, between, overlap, pairs } = facts.runs[i].distances;
    const kinds = [
      { name: "two classes", value: between, kind: "between" },
      { name: "one class", value: within, kind: "within" },
    ];
    const told = `overlap ${percent(overlap)}; ${count(pairs[0])} pairs within, ${count(pairs[1])} between`;
    const { chart } = bars(edge, kinds, { label: `${measure} of pairs, ${told}`, xName: measure });
    return h("figure", { class: "panel" }, h("h3", {}, facts.runs[i].name), chart, h("figcaption", { class: "soft" }, told));
  };
  const key = [{ name: "pairs of one class", kind: "block within" }, { name: "pairs of two classes", kind: "block between" }];
  holder.replaceChildren(legend(key), h("div", { class: "panels" }, runs.map(draw)));
}

function drawSpectrum(holder) {
  const runs = facts.runs.map((_, i) => i).filter(i => facts.runs[i].spectrum);
  const told = i => `${facts.runs[i].name}: ρ ${digits(facts.runs[i].spectrum.rho)}`;
  const lines = runs.map(i => {
    const { value } = facts.runs[i].spectrum;
    return { name: told(i), kind: runKind(i), y: value, x: value.map((_, k) => k + 1) };
  });
  const label = "Singular values, largest first";
  const box = lineChart(lines, { label, xName: "singular value number", log: true, wide: 640, high: 300 });
  holder.replaceChildren(legend(lines), h("figure", { class: "panel single" }, box.chart));
}

function drawOverlap(holder) {
  const { runs, methods, by } = more.overlap, ways = Object.keys(by), place = h("div");
  const show = i => {
    const { classes, heat, sentence } = by[ways[i]], shown = Math.min(60, classes.length);
    const read = (r, c) => [h("b", {}, classes[c]), ` is ${heat[r][c] ? "" : "not "}among the most wrong of ${runs[r]}`];
    const line = r => h("div", { class: "soft" }, runs[r] === methods[r] ? runs[r] : `${runs[r]}: ${methods[r]}`);
    const map = heatMap(heat.map(row => row.slice(0, shown)), { label: sentence, read, line: 30 });
    const all = heat[0].map((_, c) => c).filter(c => heat.every(row => row[c]));
    const which = shown < classes.length ? `The ${shown} of ${classes.length} classes named most often` : "Classes";
    const common = `${all.slice(0, 12).map(c => classes[c]).join(", ")}${all.length > 12 ? " and others" : ""}`;
    place.replaceChildren(h("p", {}, sentence),
      h("div", { class: "wrongs" }, h("div", { class: "rows" }, runs.map((_, r) => line(r))), map),
      h("p", { class: "soft" }, `${which}, from left to right; a line for each run.`,
        all.length ? ` Named by all: ${common}.` : ""));
  };
  const buttons = choice("Count wrong answers by", ways.map(way => `by ${way}`), 0, show);
  holder.replaceChildren(...[buttons && h("div", { class: "bar" }, buttons), place].filter(Boolean));
  show(0);
}
