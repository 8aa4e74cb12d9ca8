// Training curves, one chart per panel.

function drawCurves(holder) {
  const panels = new Map();
  facts.runs.forEach((run, i) => run.curves?.forEach(curve => {
    if (!panels.has(curve.panel)) panels.set(curve.panel, []);
    panels.get(curve.panel).push({ ...curve, run: i });
  }));
  const runs = [...new Set([...panels.values()].flat().map(curve => curve.run))];
  const draw = ([title, curves]) => {
    const names = [...new Set(curves.map(curve => curve.name))], dash = name => DASHES[names.indexOf(name) % DASHES.length];
    const lines = curves.map(curve => ({ x: curve.step, y: curve.value, kind: runKind(curve.run), dash: dash(curve.name),
      name: runs.length > 1 ? `${curve.name}, ${facts.runs[curve.run].name}` : curve.name }));
    const kind = runs.length > 1 ? "" : runKind(runs[0]);
    const key = names.length > 1 || names[0] !== title ? legend(names.map(name => ({ name, dash: dash(name), kind }))) : null;
    const { chart } = lineChart(lines, { label: `${title} over steps`, xName: "step" });
    return h("figure", { class: "panel" }, h("h3", {}, title), key, chart);
  };
  const grid = h("div", { class: "panels" }, [...panels].map(draw));
  holder.replaceChildren(...[runLegend(runs), grid].filter(Boolean));
}

fillSection("curves", readFacts, drawCurves);
