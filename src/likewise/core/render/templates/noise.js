// Label noise: histograms of the suspicion, detection of wrong labels, and flagged labels.

const whole = value => count(Math.round(value));

function suspicionChart({ edge, right, wrong, weight, threshold, title }) {
  const kinds = [{ name: wrong ? "right labels" : "labels", value: right, kind: "good" }];
  if (wrong) kinds.push({ name: "wrong labels", value: wrong, kind: "bad" });
  const key = kinds.map(one => ({ ...one, kind: `block ${one.kind}` }));
  const box = bars(edge, kinds, { label: `Suspicion of labels, ${title}`, xName: "suspicion", stacked: true, written: whole });
  if (isNumber(threshold)) {
    const x = box.toX(threshold);
    box.chart.append(svg("line", { class: "mark", x1: x, x2: x, y1: box.top, y2: box.high - box.bottom }));
    key.push({ name: "threshold", dash: "5 4", kind: "weight" });
  }
  if (weight.some(isNumber)) {
    const middle = edge.slice(1).map((end, i) => (end + edge[i]) / 2), plot = box.high - box.bottom - box.top;
    const path = pathOf(middle, weight, { toX: box.toX, toY: share => box.high - box.bottom - share * plot });
    box.chart.append(svg("path", { class: "line weight", d: path }),
      svg("text", { x: box.wide - 2, y: box.top - 1, "text-anchor": "end" }, "sample weight 1"));
    key.push({ name: "mean sample weight", kind: "weight" });
  }
  return [legend(key), box.chart];
}

function suspicionPanel(epochs) {
  const place = h("div"), title = h("span", { class: "soft" }), last = epochs.length - 1;
  const show = i => {
    place.replaceChildren(...suspicionChart(epochs[i]));
    title.textContent = epochs[i].title;
  };
  const oninput = event => show(Number(event.target.value));
  const slider = last ? h("input", { type: "range", min: 0, max: last, value: last, "aria-label": "Epoch", oninput }) : null;
  show(last);
  return h("figure", { class: "panel" }, h("h3", {}, "Suspicion"), h("div", { class: "bar" }, slider, title), place);
}

function detectionPanel(curves, share) {
  const lines = curves.map(({ name, inspected, found, ap, auroc }, i) =>
    ({ x: inspected, y: found, kind: runKind(i), name: `${name} (AP ${digits(ap)}, AUROC ${digits(auroc)})` }));
  if (isNumber(share) && share > 0) {
    lines.push({ x: [0, share, 1], y: [0, 1, 1], kind: "between", dash: "4 4", name: "best possible" });
  }
  const { chart } = lineChart(lines, { label: "Share of wrong labels found against share of labels inspected",
    xName: "share of labels inspected", xEnds: [0, 1], yEnds: [0, 1], written: percent });
  return h("figure", { class: "panel" }, h("h3", {}, "Wrong labels found"), legend(lines), chart);
}

function transitionPanel(matrix, classes) {
  const read = (i, j) => [h("b", {}, percent(matrix[i][j])), ` of ${classes[i]} labelled ${i === j ? "correctly" : classes[j]}`];
  const caption = `The ${classes.length} classes with the most wrong labels. Row: true label; column: given label.`;
  const how = { rowName: "true label", columnName: "given label", label: "Share of given labels in each true class", read };
  return h("figure", { class: "panel" }, h("h3", {}, "True and given labels"), namedHeatMap(matrix, classes, how),
    h("figcaption", { class: "soft" }, caption));
}

/** What training did with a flagged label. */
function treatment({ given, suggested, weight }) {
  if (!isNumber(weight)) return null;
  if (weight === 0) return "dropped from training";
  if (suggested && suggested !== given) return `relabelled, so its sample weight is ${digits(weight)}`;
  return `kept, with sample weight ${digits(weight)}`;
}

function flaggedCard(flagged) {
  const { given, suggested, suspicion, wrong, caption, slot, row } = flagged, done = treatment(flagged);
  const name = caption || `row ${row}`;
  const instead = suggested && suggested !== given ? h("div", {}, "suggested: ", h("b", {}, suggested)) : null;
  return h("figure", { class: "tile" }, hasImage(slot) ? pic(slot, `${given}, ${name}`) : pic(null, name),
    h("figcaption", { title: name }, h("b", {}, given), instead,
      h("div", {}, `suspicion ${digits(suspicion)}`), done && h("div", {}, done),
      wrong === null ? null : h("span", { class: wrong ? "badge" : "badge right" }, wrong ? "wrong label" : "right label")));
}

function drawNoise(holder) {
  byRun(holder, i => more.runs[i].noise, run => {
    const { model, confidence, share, suspicion, detection, flagged, classes, transition, notes } = more.runs[run].noise;
    const summary = [model && `noise model: ${model}`, confidence && `confidence: ${confidence}`,
      isNumber(share) && `${percent(share)} of the training labels are wrong`].filter(Boolean).join(" · ");
    const panels = [suspicion.length ? suspicionPanel(suspicion) : null,
      detection.length ? detectionPanel(detection, share) : null,
      transition?.length ? transitionPanel(transition, classes) : null].filter(Boolean);
    return [...[summary, ...notes].filter(Boolean).map(line => h("p", { class: "soft" }, line)),
      panels.length ? h("div", { class: "panels" }, panels) : null,
      flagged.length ? h("h3", {}, "Labels with the highest suspicion") : null,
      ...(flagged.length ? unfolding(flagged, flaggedCard, h("div", { class: "cards" }), 12) : [])];
  }, i => more.runs[i].noise.flagged.length);
}

fillSection("noise", readMore, drawNoise);
