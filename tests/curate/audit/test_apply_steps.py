"""Random sequences of `likewise apply`, edits by the user and kills: no byte is lost, no file replaced, undo restores.
At the end, single situations that the sequences do not reach.

A kill is an exception at one operation on files, after which every operation of the dead process fails too, so that its
clean-up code has no effect, as after SIGKILL.
"""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from likewise.config import Apply
from likewise.types import LikewiseError
from made_tables import files, write_audit, write_files

from likewise.curate.audit import apply_steps, file_moves
from likewise.curate.audit.apply import apply
from likewise.curate.audit.apply_steps import FOLDER_RECORD, read_steps

GIVEN = {"a/1.jpg": "a", "a/2.jpg": "a", "b/1.jpg": "b", "b/4.jpg": "b"}
CORRECTED = {"a/1.jpg": "b", "a/2.jpg": "a", "b/1.jpg": "new class"}
AUDITS, CLASSES, OUTS = ("one", "two"), ("a", "b", "new"), ("clean", "other")
FILE_OPERATIONS = ("mkdir", "link", "unlink", "rename", "replace", "rmdir", "symlink", "fsync")
COUNT = Counter()
"""Numbers of sequences, kills, and calls by command and end; pytest -s prints them."""


class Killed(BaseException):
    """The process is dead."""


class Process:
    """Replaces the operations on files while a call of `apply` runs, and kills it at one of them."""

    def __init__(self, kill_at: int | None, two_disks: bool):
        self.left, self.dead, self.two_disks = kill_at, False, two_disks
        self.real = {name: getattr(os, name) for name in FILE_OPERATIONS}
        self.real_rename, self.real_copy = file_moves.linux_rename, (shutil.copyfileobj, shutil.copy2)

    def operate(self) -> None:
        """Count an operation, and die if it is the last one."""
        if self.left == 0 and not self.dead:
            self.dead = True
            COUNT["kills"] += 1
        if self.dead:
            raise Killed
        if self.left is not None:
            self.left -= 1

    def __enter__(self):
        for name in FILE_OPERATIONS:
            setattr(os, name, self.counted(name))
        rename = self.real_rename()
        file_moves.linux_rename = lambda: rename and self.counted_rename(rename)
        shutil.copyfileobj, shutil.copy2 = self.copy, self.copy_named
        return self

    def __exit__(self, kind, error, trace) -> bool:
        for name, function in self.real.items():
            setattr(os, name, function)
        file_moves.linux_rename, (shutil.copyfileobj, shutil.copy2) = self.real_rename, self.real_copy
        return kind is Killed

    def counted(self, name: str):
        def work(*args, **settings):
            self.operate()
            if name in ("link", "rename") and self.between_disks(*args[:2]):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            return None if name == "fsync" else self.real[name](*args, **settings)

        return work

    def counted_rename(self, rename):
        def work(here, source, there, target, flags):
            self.operate()
            if self.between_disks(os.fsdecode(source), os.fsdecode(target)):
                file_moves.ctypes.set_errno(errno.EXDEV)
                return -1
            return rename(here, source, there, target, flags)

        return work

    def between_disks(self, source, target) -> bool:
        """Every folder is a disk of its own, if there are two."""
        return self.two_disks and os.path.isfile(source) and os.path.dirname(source) != os.path.dirname(target)

    def copy(self, old, new, length=0):
        """Copy in two parts, so that a kill can leave half a file."""
        data = old.read()
        new.write(data[: len(data) // 2])
        new.flush()
        self.operate()
        new.write(data[len(data) // 2 :])

    def copy_named(self, source, target):
        with open(source, "rb") as old, open(target, "wb") as new:
            self.copy(old, new)


class Sequence:
    """One random sequence: a data folder, two audits of it, two folders to write, and a user who adds, edits, moves, deletes."""

    def __init__(self, home: Path, seed: int):
        self.home, self.photos, self.random = home, home / "photos", random.Random(seed)
        self.number, self.log = 0, []
        self.restorable: tuple[str, dict[str, str]] | None = None
        write_files(self.photos, ("a/1.jpg", "a/2.jpg", "a/x/3.jpg", "b/1.jpg", "b/4.jpg"))
        write_files(home, ("elsewhere/1.jpg",))
        for audit in AUDITS:
            self.review(audit)

    def run(self, steps: int) -> None:
        """Perform random actions; an error shows them all."""
        actions = {self.in_place: 3, self.to: 3, self.undo: 4, self.add: 2, self.edit: 2, self.delete: 1, self.move: 1}
        try:
            for action in self.random.choices(list(actions), list(actions.values()), k=steps):
                action()
        except Exception as error:
            error.add_note("\n".join(self.log))
            raise

    # --- what the user does

    def review(self, audit: str) -> None:
        """Audit the data folder as it is, and decide at random: keep, relabel or remove."""
        given = {p: p.split("/")[0] for p in sorted(files(self.photos)) if "/" in p and p.endswith(".jpg")}
        new = {p: self.random.choice([*CLASSES, label, label, ""]) for p, label in given.items()}
        if corrected := {p: label for p, label in new.items() if label}:
            write_audit(self.home / f"audit-{audit}", self.photos, given, corrected)

    def add(self) -> None:
        """Write a new file, often at a place that `apply` used before."""
        places = [self.photos / "a" / "9.jpg", self.home / "photos-removed" / "mine.txt"]
        places += [self.home / self.random.choice(OUTS) / name for name in ("notes.txt", "a/1.jpg")]
        place = self.random.choice([self.random.choice(places), *self.recorded_places()[-6:]])
        with suppress(NotADirectoryError, FileExistsError):
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("x") as file:
                file.write(self.new_text())
            self.by_user("add", place)

    def edit(self) -> None:
        """Change an image, as an editor that writes into the file or replaces it."""
        if file := self.some_file():
            if self.random.random() < 0.5:
                file.unlink()
            file.write_text(self.new_text())
            self.by_user("edit", file)

    def delete(self) -> None:
        if file := self.some_file():
            file.unlink()
            self.by_user("delete", file)

    def move(self) -> None:
        if file := self.some_file():
            target = self.photos / self.random.choice("ab") / self.random.choice(["1.jpg", "7.jpg"])
            if target.parent.is_dir() and not target.exists():
                file.rename(target)
                self.by_user("move", file)

    def by_user(self, action: str, file: Path) -> None:
        self.log.append(f"user: {action} {file.relative_to(self.home)}")
        self.restorable = None

    # --- what apply does

    def in_place(self) -> None:
        audit = self.maybe_review()
        before, steps = files(self.photos), self.steps(audit)
        self.call(audit, self.random.random() < 0.4, in_place=True)
        if len(self.steps(audit)) > len(steps):  # else it was refused, or killed before its record
            self.restorable = (audit, before)

    def to(self) -> None:
        audit, out = self.maybe_review(), self.random.choice(OUTS)
        if self.call(audit, to=str(self.home / out), copy=self.random.random() < 0.5) != "refused":
            self.restorable = None

    def undo(self) -> None:
        """Undo the last step with a table, of the other table if there is none."""
        audits = self.random.sample(AUDITS, 2)
        audit = [*filter(self.steps, audits), audits[0]][0]
        steps = self.steps(audit)
        self.call(audit, self.random.random() < 0.4, undo=True)
        if len(self.steps(audit)) < len(steps):  # also if it was killed at its very end
            if self.restorable and self.restorable[0] == audit:
                COUNT["restored"] += 1
                assert files(self.photos) == self.restorable[1]  # each image is at its old place again
            self.restorable = None

    def steps(self, audit: str) -> list[dict]:
        """Steps with the table of an audit that were not undone."""
        return read_steps(self.home / f"audit-{audit}" / "corrected.applied.json")

    def maybe_review(self) -> str:
        audit = self.random.choice(AUDITS)
        if self.random.random() < 0.8:
            self.review(audit)
        return audit

    def call(self, audit: str, two_disks: bool = False, **wanted) -> str:
        """Call `apply`, check that it lost and replaced nothing, and return "done", "killed" or "refused"."""
        kill = self.random.randrange(25) if self.random.random() < 0.35 else None
        before, elsewhere = self.contents(), files(self.home / "elsewhere")
        done, what = "killed", next(iter(wanted))
        self.log.append(f"apply {audit} {wanted}, {'two disks, ' * two_disks}kill at {kill}: ")
        with Process(kill, two_disks):
            try:
                apply(Apply(str(self.home / f"audit-{audit}" / "corrected.csv"), **wanted), say=lambda line: None)
                done = "done"
            except LikewiseError as error:
                done = "refused"
                self.log[-1] += str(error)
        self.log[-1] += done
        COUNT[f"{what} {done}"] += 1
        after = self.contents()
        lost = set(before.values()) - set(after.values())
        assert not lost, f"lost {lost}"
        replaced = [p for p in before if p in after and before[p] != after[p] and not p.startswith(OUTS)]
        assert not replaced, f"replaced {replaced}"
        assert files(self.home / "elsewhere") == elsewhere
        for file in (*self.home.glob("audit-*/*.applied.json"), *self.home.glob(f"*/{FOLDER_RECORD}")):
            read_steps(file)  # no record is damaged
        return done

    # --- what the checks look at

    def contents(self) -> dict[str, str]:
        """All files of images and of the user, at places that `apply` names; partial folders and copies do not count."""
        found = files(self.home)
        return {p: text for p, text in found.items() if not p.startswith("audit-") and ".likewise-" not in p}

    def recorded_places(self) -> list[Path]:
        """Old and new places of all steps in the data folder."""
        file = self.photos / FOLDER_RECORD
        entries = json.loads(file.read_text())["steps"] if file.exists() else []
        return [
            Path(os.path.normpath(self.photos / p)) for one in entries for pair in one.get("files", []) for p in pair
        ]

    def some_file(self) -> Path | None:
        """A file of the data folder, of the removed images or of a written folder."""
        area = self.random.choice(("photos/", "photos-removed/", *OUTS))
        found = [p for p in sorted(self.contents()) if p.startswith(area)]
        return self.home / self.random.choice(found) if found else None

    def new_text(self) -> str:
        self.number += 1
        return f"user {self.number}"


def run_sequences(tmp_path: Path, seeds: range) -> None:
    COUNT.clear()
    for seed in seeds:
        home = tmp_path / str(seed)
        home.mkdir()
        Sequence(home, seed).run(16)
        shutil.rmtree(home)
    print(dict(COUNT))
    for what in ("in_place done", "in_place killed", "to done", "to killed", "undo done", "undo killed", "restored"):
        assert COUNT[what] > len(seeds) / 8, COUNT  # the sequences contain what they are for


def test_a_hundred_sequences(tmp_path):
    run_sequences(tmp_path, range(100))


@pytest.mark.slow
def test_two_thousand_sequences(tmp_path):
    run_sequences(tmp_path, range(100, 2100))


@pytest.mark.slow
@pytest.mark.process
def test_sigkill_in_the_middle_of_the_moves(tmp_path):
    """Real processes, killed after some of 3,000 moves and of their reversal; --undo then restores every image."""
    given = {f"a/{number}.jpg": "a" for number in range(3000)}
    photos = tmp_path / "photos"
    write_files(photos, (*given, "b/0.jpg"))
    before = files(photos)
    table = write_audit(tmp_path / "audit", photos, given | {"b/0.jpg": "b"}, dict.fromkeys([*given, "b/0.jpg"], "b"))
    killed = 0
    for wanted in (1, 500, 1500):
        killed += kill_when(["--in-place"], table, lambda some=wanted: count(photos / "b") > some)
        killed += kill_when(["--undo"], table, lambda some=wanted: count(photos / "a") > 3000 - some // 2)
        with suppress(LikewiseError):  # the undo was complete before the kill
            apply(Apply(str(table), undo=True))
        assert files(photos) == before
    assert killed > 0


def count(folder: Path) -> int:
    return len(os.listdir(folder)) if folder.is_dir() else 0


def kill_when(words: list[str], table: Path, reached) -> bool:
    """Run `likewise apply` and kill it as soon as a condition holds; return whether it was still running."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-P", "-m", "likewise", "apply", str(table), *words]
    with subprocess.Popen(command, env=here, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not reached():
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
    return process.returncode == -signal.SIGKILL


# --- single steps


@pytest.fixture
def table(tmp_path):
    """A data folder, and beside it the folder of an audit with its corrected table."""
    write_files(tmp_path / "photos", GIVEN)
    return write_audit(tmp_path / "audit", tmp_path / "photos", GIVEN, CORRECTED)


@pytest.mark.parametrize(
    "pairs",
    [
        [["a/1.jpg", "a/1.jpg"]],
        [["a/1.jpg", "a/x/../1.jpg"]],
        [["a/1.jpg", "b/1.jpg"], ["b/1.jpg", "a/1.jpg"]],
        [["a/9.jpg", FOLDER_RECORD]],
        [["a/9.jpg", "b"]],
    ],
)
def test_a_record_that_names_a_place_twice_or_no_image(table, tmp_path, pairs):
    """Both records have one id; a reversal would delete the only file of some bytes, or move what is no image."""
    for name in ("a/1.jpg", "b/1.jpg"):
        (tmp_path / "photos" / name).write_text("equal")
    step = {"id": "0" * 32, "how": "in-place", "table": str(table), "folder": str(tmp_path / "photos"), "files": pairs}
    for record in (table.with_name("corrected.applied.json"), tmp_path / "photos" / FOLDER_RECORD):
        record.write_text(json.dumps({"steps": [step]}))
    before = files(tmp_path)
    with pytest.raises(LikewiseError, match="must name each image once.* nothing was changed"):
        apply(Apply(str(table), undo=True))
    assert files(tmp_path) == before and (tmp_path / "photos" / FOLDER_RECORD).exists()


def test_an_id_is_no_path(table, tmp_path):
    """The id of a step is part of the names of partial files, which are deleted."""
    write_files(tmp_path / "mine", ("film.part",))
    (tmp_path / "photos" / "a" / ".likewise-x").mkdir()
    step = {"id": "x/../../../mine/film", "how": "in-place", "table": str(table), "folder": str(tmp_path / "photos")}
    for record in (table.with_name("corrected.applied.json"), tmp_path / "photos" / FOLDER_RECORD):
        record.write_text(json.dumps({"steps": [step | {"files": [["a/9.jpg", "a/1.jpg"]]}]}))
    with pytest.raises(LikewiseError, match="nothing was changed"):
        apply(Apply(str(table), undo=True))
    assert (tmp_path / "mine" / "film.part").exists()


def test_a_file_that_the_user_adds_during_the_deletion_is_kept(table, tmp_path, monkeypatch):
    clean, check = tmp_path / "clean", apply_steps.check_deletable
    apply(Apply(str(table), to=str(clean)))

    def check_then_save(*args):
        check(*args)
        (clean / "a" / "notes").write_text("saved just now")
        (clean / "b" / "1.jpg").unlink()
        (clean / "b" / "1.jpg").write_text("edited just now")

    monkeypatch.setattr(apply_steps, "check_deletable", check_then_save)
    with pytest.raises(LikewiseError, match="no image is lost"):
        apply(Apply(str(table), undo=True))
    assert (clean / "a" / "notes").exists() and (clean / "b" / "1.jpg").read_text() == "edited just now"


def test_a_full_disk_in_the_middle_of_a_copy(table, tmp_path, monkeypatch):
    """Half an image is left, as after a kill: the same command completes the folder, and --undo deletes it."""

    def copy_half(source, target):
        Path(target).write_bytes(Path(source).read_bytes()[:3])
        raise OSError(28, "No space left on device", str(target))

    for config in (Apply(str(table), to=str(tmp_path / "clean"), copy=True), Apply(str(table), undo=True)):
        with monkeypatch.context() as patch, pytest.raises(LikewiseError, match="No space left .* --undo"):
            patch.setattr(apply_steps.shutil, "copy2", copy_half)
            apply(Apply(str(table), to=str(tmp_path / "clean"), copy=True))
        apply(config)
        assert (tmp_path / "clean").exists() != config.undo and not list(tmp_path.glob(".likewise*"))
        if not config.undo:
            apply(Apply(str(table), undo=True))


def test_a_copy_replaces_no_file(tmp_path):
    """Some disks regard two names as equal that differ in bytes; a link there would lead to the original."""
    write_files(tmp_path, ("1.jpg", "2.jpg"))
    os.link(tmp_path / "1.jpg", tmp_path / "same.jpg")
    with pytest.raises(FileExistsError):
        apply_steps.write_image(str(tmp_path / "2.jpg"), tmp_path / "same.jpg", False, tmp_path / "part")
    assert (tmp_path / "1.jpg").read_text() == "image 1.jpg"


def test_a_kill_before_the_first_file_of_a_folder(table, tmp_path, monkeypatch):
    """The step is beside the table, and nowhere else: the same command replaces the folder of the step before it."""
    apply(Apply(str(table), to=str(tmp_path / "clean")))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "mkdir", interrupt)
        apply(Apply(str(table), to=str(tmp_path / "clean")))
    apply(Apply(str(table), to=str(tmp_path / "clean")))
    apply(Apply(str(table), undo=True))
    assert not (tmp_path / "clean").exists()


def interrupt(*_, **__):
    raise KeyboardInterrupt
