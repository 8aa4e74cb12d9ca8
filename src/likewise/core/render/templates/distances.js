// Histograms of the similarity of pairs within and between classes.

function drawDistances(holder) {
  const runs = facts.runs.map((_, i) => i).filter(i => facts.runs[i].distances);
  const draw = i => {
    const { measure, edge, within, between, overlap, pairs } = facts.runs[i].distances;
    const kinds = [
      { name: "two classes", value: between, kind: "between" },
      { name: "one class", value: within, kind: "within" },
    ];
    const summary = `overlap ${percent(overlap)}; ${count(pairs[0])} pairs within, ${count(pairs[1])} between`;
    const { chart } = bars(edge, kinds, { label: `${measure} of pairs, ${summary}`, xName: measure });
    return h("figure", { class: "panel" }, h("h3", {}, facts.runs[i].name), chart, h("figcaption", { class: "soft" }, summary));
  };
  const key = [{ name: "pairs of one class", kind: "block within" }, { name: "pairs of two classes", kind: "block between" }];
  holder.replaceChildren(legend(key), h("div", { class: "panels" }, runs.map(draw)));
}

fillSection("distances", readFacts, drawDistances);
