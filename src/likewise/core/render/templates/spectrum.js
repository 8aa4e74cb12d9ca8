// Singular values of embeddings.

function drawSpectrum(holder) {
  const runs = facts.runs.map((_, i) => i).filter(i => facts.runs[i].spectrum);
  const title = i => `${facts.runs[i].name}: ρ ${digits(facts.runs[i].spectrum.rho)}`;
  const lines = runs.map(i => {
    const { value } = facts.runs[i].spectrum;
    return { name: title(i), kind: runKind(i), y: value, x: value.map((_, k) => k + 1) };
  });
  const label = "Singular values, largest first";
  const box = lineChart(lines, { label, xName: "singular value number", log: true, wide: 640, high: 300 });
  holder.replaceChildren(legend(lines), h("figure", { class: "panel single" }, box.chart));
}

fillSection("spectrum", readFacts, drawSpectrum);
