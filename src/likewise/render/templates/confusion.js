// Confused classes: a matrix, and a list of pairs with images.

function confusedPair(run, [a, b, queries, share, [ours, theirs]]) {
  const { pool } = facts.runs[run], names = facts.pools[pool].classes;
  const strip = places => h("div", { class: "strip" }, places.map(place => tile(pool, place, { bare: true })));
  return h("li", {}, h("b", {}, names[a]), " confused with ", h("b", {}, names[b]),
    h("span", { class: "soft" }, ` ${count(queries)} queries, ${percent(share)} of the class`),
    ours.length + theirs.length ? h("div", { class: "couple" }, strip(ours), strip(theirs)) : null);
}

function drawConfusion(holder) {
  byRun(holder, i => more.runs[i].confusion, run => {
    const { pairs, classes, matrix } = more.runs[run].confusion, all = facts.pools[facts.runs[run].pool].classes;
    const names = classes.map(one => all[one]), result = (i, j) => i === j ? "with the right class" : `confused with ${names[j]}`;
    const read = (i, j) => [h("b", {}, percent(matrix[i][j])), ` of the queries of ${names[i]} ${result(i, j)}`];
    const caption = `The ${classes.length} classes with the most confusions, similar classes side by side. `
      + "Row: class of the query; column: class of its nearest neighbour; the diagonal is right.";
    const how = { rowName: "query", columnName: "nearest neighbour", label: "Confusion matrix of classes", read };
    const map = matrix.length ? h("figure", { class: "panel" }, namedHeatMap(matrix, names, how),
      h("figcaption", { class: "soft" }, caption)) : null;
    const list = unfolding(pairs, pair => confusedPair(run, pair), h("ol", { class: "pairs" }), 5);
    return h("div", { class: "beside" }, map, h("div", {}, list));
  });
}

fillSection("confusion", readNames, drawConfusion);
