"""What is installed on a machine, as a table and as JSON."""

from __future__ import annotations

import json

from likewise.core.notebook import table, view
from likewise.core.render.tables import Table

BYTES_PER_GIGABYTE = 1024**3


class Machine(dict):
    """The facts that `likewise doctor` found; see `likewise.runs.environment.examine`."""

    def as_json(self) -> str:
        """Return the facts as JSON."""
        return json.dumps(self, indent=2)

    def table(self) -> Table:
        """Return the facts as lines of text."""
        return Table("likewise doctor", ["", ""], lines_of(self), notes_of(self))

    @view
    def _repr_html_(self) -> str:
        shown = self.table()
        return table(shown.title, (), shown.lines, shown.notes)


def lines_of(found: dict) -> list[list[str]]:
    """Return name and value of every fact."""
    devices, weights = found["devices"], found["weights"]
    gpus = [f"{gpu['name']}, {gigabytes(gpu['memory'])}" for gpu in devices["gpus"]]
    memory = f", {gigabytes(devices['memory'])}" if devices["memory"] else ""
    lines = [[name, number or "not installed"] for name, number in found["versions"].items()]
    lines += [["CPU", f"{devices['cpu']}, {devices['cores_allowed']} of {devices['cores']} cores{memory}"]]
    lines += [["GPU", "\n".join(gpus) or "none"], ["default device", devices["default"]]]
    lines += [["weights installed", ", ".join(weights["installed"]) or "none"]]
    lines += [["weights in the hub's cache", ", ".join(weights["cached"]) or "none"]]
    lines += [["hub", "reachable" if weights["hub"] else "not reachable"]]
    lines += [["default backbone", found["backbone"]["reason"].removeprefix("backbone ")]]
    for name, one in found["extras"].items():
        installed = ", ".join(f"{package} {number}" for package, number in one["installed"].items())
        lines += [] if one["missing"] else [[f"extra {name}", installed]]
    return lines + [[f"free disk, {place}", gigabytes(size)] for place, size in found["disk"].items()]


def notes_of(found: dict) -> list[str]:
    """Return a line for every extra that is not complete: what it would enable, and the command that installs it."""
    missing = [one for one in found["extras"].values() if one["missing"]]
    return [f"missing: {', '.join(one['missing'])}, for {one['enables']}: {one['command']}" for one in missing]


def gigabytes(size: int) -> str:
    return f"{size / BYTES_PER_GIGABYTE:.1f} GB"
