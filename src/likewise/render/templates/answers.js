// The answers to a query, framed by whether they are right.

function answerTiles(run, answers) {
  const tiles = answers.map(([place, similarity, right]) =>
    tile(facts.runs[run].pool, place, { kind: right ? "right" : "wrong", line: nearness(run, similarity) }));
  return h("div", { class: "answers", style: `--many: ${clamp(answers.length, 4, 10)}` }, tiles);
}
