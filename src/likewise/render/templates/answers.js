// The nearest neighbours of a query; the frame shows whether a neighbour has the label of the query.

function neighbourTiles(run, neighbours) {
  const tiles = neighbours.map(([place, similarity, right]) =>
    tile(facts.runs[run].pool, place, { kind: right ? "right" : "wrong", line: nearness(run, similarity) }));
  return h("div", { class: "answers", style: `--many: ${clamp(neighbours.length, 4, 10)}` }, tiles);
}
