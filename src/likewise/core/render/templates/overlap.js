// Classes with the most retrieval errors of each run.

function drawOverlap(holder) {
  const { runs, methods, by } = more.overlap, ways = Object.keys(by), place = h("div");
  const show = i => {
    const { classes, heat, sentence } = by[ways[i]], shown = Math.min(60, classes.length);
    const read = (r, c) => [h("b", {}, classes[c]), ` is ${heat[r][c] ? "" : "not "}among the most wrong classes of ${runs[r]}`];
    const line = r => h("div", { class: "soft" }, runs[r] === methods[r] ? runs[r] : `${runs[r]}: ${methods[r]}`);
    const map = heatMap(heat.map(row => row.slice(0, shown)), { label: sentence, read, line: 30 });
    const all = heat[0].map((_, c) => c).filter(c => heat.every(row => row[c]));
    const which = shown < classes.length ? `The ${shown} of ${classes.length} classes of the most runs` : "Classes";
    const common = `${all.slice(0, 12).map(c => classes[c]).join(", ")}${all.length > 12 ? " and others" : ""}`;
    place.replaceChildren(h("p", {}, sentence),
      h("div", { class: "wrongs" }, h("div", { class: "rows" }, runs.map((_, r) => line(r))), map),
      h("p", { class: "soft" }, `${which}, from left to right; one line per run.`,
        all.length ? ` In all runs: ${common}.` : ""));
  };
  const buttons = choice("Order of classes by errors", ways.map(way => `by ${way}`), 0, show);
  holder.replaceChildren(...[buttons && h("div", { class: "bar" }, buttons), place].filter(Boolean));
  show(0);
}

fillSection("overlap", readMore, drawOverlap);
