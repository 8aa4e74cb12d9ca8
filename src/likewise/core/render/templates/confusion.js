// Confused classes: a matrix, and a list of pairs with images.

/** The names that a confusion is about: the classes of a run, or its single labels. */
const confusedNames = run => {
  const pool = facts.pools[facts.runs[run].pool];
  return more.runs[run].confusion.labels ? pool.labels.names : pool.classes;
};

function confusedPair(run, [a, b, queries, share, [ours = [], theirs = []]]) {
  const { pool } = facts.runs[run], names = confusedNames(run), ofLabels = more.runs[run].confusion.labels;
  const strip = places => h("div", { class: "strip" }, places.map(place => tile(pool, place, { bare: true })));
  return h("li", {}, h("b", {}, names[a]), ofLabels ? " lost for " : " confused with ", h("b", {}, names[b]),
    h("span", { class: "soft" }, ` ${count(queries)} queries, ${percent(share)} of the ${ofLabels ? "label" : "class"}`),
    ours.length + theirs.length ? h("div", { class: "couple" }, strip(ours), strip(theirs)) : null);
}

function drawConfusion(holder) {
  byRun(holder, i => more.runs[i].confusion, run => {
    const { pairs, classes, matrix, labels: ofLabels } = more.runs[run].confusion, all = confusedNames(run);
    const names = classes.map(one => all[one]), right = ofLabels ? "whose neighbour has it too" : "with the right class";
    const result = (i, j) => i === j ? right : `${ofLabels ? "lost for" : "confused with"} ${names[j]}`;
    const read = (i, j) => [h("b", {}, percent(matrix[i][j])), ` of the queries of ${names[i]} ${result(i, j)}`];
    const caption = ofLabels ? `The ${classes.length} labels with the most confusions. Row: a label of the query; `
      + "column: a label that its nearest neighbour has in its place; the diagonal: the neighbour has the label too."
      : `The ${classes.length} classes with the most confusions, similar classes side by side. `
      + "Row: class of the query; column: class of its nearest neighbour; the diagonal is right.";
    const label = `Confusion matrix of ${ofLabels ? "labels" : "classes"}`;
    const how = { rowName: "query", columnName: "nearest neighbour", label, read };
    const map = matrix.length ? h("figure", { class: "panel" }, namedHeatMap(matrix, names, how),
      h("figcaption", { class: "soft" }, caption)) : null;
    const list = unfolding(pairs, pair => confusedPair(run, pair), h("ol", { class: "pairs" }), 5);
    return h("div", { class: "beside" }, map, h("div", {}, list));
  });
}

fillSection("confusion", readNames, drawConfusion);
