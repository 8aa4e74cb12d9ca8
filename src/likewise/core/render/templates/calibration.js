// Thresholds, errors against missed accepts, and reliability, for every calibrated run.

const LOWEST_SHARE = 1e-4; // of the axis of errors
const decided = i => more.runs[i].calibration;
const lineName = (i, word) => facts.runs.length > 1 ? `${word}, ${facts.runs[i].name}` : word;

function thresholdList(runs) {
  const line = (i, one) => {
    const from = isNumber(one.value) ? `from similarity ${digits(one.value)} on. ` : "";
    const seen = isNumber(one.observed) ? ` On the validation classes: ${percent(one.observed)} errors.` : "";
    const heading = `${facts.runs.length > 1 ? `${facts.runs[i].name}, ` : ""}${one.name}: `;
    return h("li", {}, h("b", {}, heading), from, one.promise, seen);
  };
  return h("ul", { class: "thresholds" }, runs.flatMap(i => decided(i).decisions.map(one => line(i, one))));
}

/** Errors and their bound against missed accepts, at every threshold; the dot is the chosen threshold and its promise. */
function tradeoffPanel(runs, place) {
  const found = runs.map(i => [i, decided(i).decisions[place]]).filter(([, one]) => one.curve.missed);
  if (!found.length) return null;
  const shown = values => values.map(value => value >= LOWEST_SHARE ? value : null);
  const lines = found.flatMap(([i, { curve }]) => [
    { name: lineName(i, "observed"), kind: runKind(i), x: curve.missed, y: shown(curve.errors) },
    { name: lineName(i, "bound"), kind: runKind(i), x: curve.missed, y: curve.bound, dash: DASHES[1] },
  ]);
  const title = found[0][1].name;
  const box = lineChart(lines, { label: `${title}: errors against missed accepts`, xName: "missed accepts", log: true,
    yEnds: [LOWEST_SHARE, 1], xEnds: [0, 1], written: percent });
  for (const [i, one] of found.filter(([, one]) => isNumber(one.value))) {
    box.chart.append(svg("circle", { class: `dot ${runKind(i)}`, r: 5, cx: box.toX(one.missed), cy: box.toY(one.rate) }));
  }
  const kind = runs.length > 1 ? "" : runKind(runs[0]);
  const key = legend([{ name: "observed errors", kind }, { name: "95 % bound for new classes", kind, dash: DASHES[1] }]);
  return h("figure", { class: "panel" }, h("h3", {}, title), key, box.chart);
}

function reliabilityPanel(runs) {
  const found = runs.filter(i => decided(i).reliability.predicted);
  if (!found.length) return null;
  const diagonal = { name: "as predicted", kind: "between", x: [0, 1], y: [0, 1], dash: DASHES[2] };
  const lines = found.map(i => {
    const { predicted, observed } = decided(i).reliability;
    return { name: lineName(i, "observed"), kind: runKind(i), x: predicted, y: observed };
  });
  const box = lineChart([...lines, diagonal], { label: "Observed against predicted probability",
    xName: "predicted probability", yEnds: [0, 1], xEnds: [0, 1], written: percent });
  for (const { x, y, kind } of lines) {
    x.forEach((at, k) => box.chart.append(svg("circle", { class: `dot ${kind}`, r: 3.5, cx: box.toX(at), cy: box.toY(y[k]) })));
  }
  const error = i => isNumber(decided(i).error) ? [lineName(i, `mean difference ${percent(decided(i).error)}`)] : [];
  const key = legend([...lines, diagonal]);
  return h("figure", { class: "panel" }, h("h3", {}, "probability that the nearest neighbour is right"), key, box.chart,
    h("figcaption", { class: "soft" }, found.flatMap(error).join("; ")));
}

function drawCalibration(holder) {
  const runs = facts.runs.map((_, i) => i).filter(decided);
  const panels = [tradeoffPanel(runs, 0), tradeoffPanel(runs, 1), reliabilityPanel(runs)].filter(Boolean);
  holder.replaceChildren(...[runLegend(runs), thresholdList(runs), h("div", { class: "panels" }, panels)].filter(Boolean));
}

fillSection("calibration", readMore, drawCalibration);
