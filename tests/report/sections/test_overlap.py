"""Classes that runs are most wrong about: they name the runs, or say why they cannot be named."""

import dataclasses

from likewise.config import Report

from likewise.report.sections.overlap import find_overlap
from likewise.report.targets import open_target


def test_shared_errors_name_the_runs_or_say_why_not(finished, run):
    config = Report(quiet=True, device="cpu", workers=0)
    opened = [
        open_target(str(one.path), name, config, {}, print) for one, name in ((run, "short"), (finished, "finished"))
    ]
    found, why = find_overlap(opened)
    assert why == "" and found.runs == ("short", "finished") and set(found.by) == {"count", "rate"} and found.k == 10
    found, why = find_overlap([opened[0], dataclasses.replace(opened[0])])
    assert found is None and "given once" in why
