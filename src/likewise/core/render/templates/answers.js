// The nearest neighbours of a query; a frame shows whether a neighbour has the label of the query, or a bar how relevant it is.

function neighbourTiles(run, neighbours, query) {
  const tiles = neighbours.map(([place, similarity, right, relevance]) => {
    const near = nearness(run, similarity), isCosine = facts.runs[run].similarity !== "euclidean";
    const line = isNumber(relevance) && near && isCosine ? `similarity ${near}` : near;
    return tile(facts.runs[run].pool, place, { kind: right ? "right" : "wrong", line, relevance, beside: query });
  });
  return h("div", { class: "answers", style: `--many: ${clamp(neighbours.length, 4, 10)}` }, tiles);
}
