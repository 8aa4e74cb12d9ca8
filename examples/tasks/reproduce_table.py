"""Reproduce a table: every row of a paper's table, trained here and printed beside the paper's numbers.

`quick=True` of bench takes small glyphs, so that the table runs in minutes on a CPU. On the paper's data:
likewise bench influence-table1 --root DATA
"""

import csv
from pathlib import Path

from task_data import GOOD, chart, parse, start

import likewise


def main(folder: str, quick: bool = False) -> dict:
    only = ("method=ProxyNCA++", "seed=0") if quick else ()  # a part of the table; the same call without it continues
    table = likewise.bench("influence-table1", quick=True, only=only, out=folder, quiet=True)

    with Path(folder, "table.csv").open(newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["mean"]]
    text = "\n".join(
        f"{line['method']}: R@1 {float(line['mean']):.1f} % ({line['n']} of {line['wanted']} seeds)" for line in lines
    )
    return {"table": table, "lines": lines, "text": text}


def draw(result: dict, picture: str) -> None:
    figure, axes = chart("Table 1 of Liu et al. 2022 with --quick: small glyphs, not the paper's data", width=7)
    for place, line in enumerate(result["lines"]):
        axes.bar(place, float(line["mean"]), 0.5, color=GOOD)
        axes.text(place, float(line["mean"]) + 0.3, f"{float(line['mean']):.1f}", ha="center", size=9)
        if line["low"]:
            axes.plot([place] * 2, [float(line["low"]), float(line["high"])], color="#22262e")
    axes.set(
        ylabel="R@1, %", xticks=range(len(result["lines"])), xticklabels=[line["method"] for line in result["lines"]]
    )
    figure.savefig(picture)


if __name__ == "__main__":
    start(main, draw, parse())
