// Which classes are taken for which: a matrix, and pairs with pictures.

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

fillSection("confusion", readNames, drawConfusion);
