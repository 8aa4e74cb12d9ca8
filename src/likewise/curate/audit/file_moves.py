"""Moves of files that never replace a file, also between disks and after a crash."""

from __future__ import annotations

import ctypes
import errno
import filecmp
import os
import shutil
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

AT_FDCWD, RENAME_NOREPLACE = -100, 1
"""Constants of Linux: paths are relative to the working directory; fail if the new name exists."""
NOT_SUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)
"""Errors of disks and kernels that lack `renameat2` or hard links."""


def move_file(source: Path, target: Path, part: str) -> None:
    """Move a file or a link to a new name; raise `FileExistsError` if that name is taken, and keep both files then.

    Between two disks the file is copied, written through to the disk and compared, before the old one is deleted. A crash
    leaves the old file, the new file, both with equal content, or the old one and a partial copy called `part`.

    Args:
        part: name of the partial copy, in the folder of `target`; an older file of that name is deleted.
    """
    try:
        rename_new(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy = target.with_name(part)
        copy.unlink(missing_ok=True)
        if source.is_symlink():
            os.symlink(os.readlink(source), copy)
        else:
            copy_file(source, copy)
        rename_new(copy, target)
        sync_folder(target.parent)
        os.unlink(source)


def rename_new(source: Path, target: Path) -> None:
    """Rename a file or folder on one disk; raise `FileExistsError` if the new name is taken."""
    if os.name == "nt":  # never replaces a file there
        os.rename(source, target)
        return
    rename = linux_rename()
    if rename is not None:
        if rename(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in NOT_SUPPORTED:
            raise OSError(number, os.strerror(number), str(source), None, str(target))
    if not source.is_dir() and not source.is_symlink():
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                raise
        else:
            if os.path.samefile(source, target):  # else another program has written a new file under the old name
                os.unlink(source)
            return
    if os.path.lexists(target):  # the last resort, for disks with neither: another program could take the name just now
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    os.rename(source, target)


@cache
def linux_rename():
    """Return `renameat2` of the C library, which Python does not offer: a rename that fails if the new name is taken."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its times to a new name, write it through to the disk, and compare both."""
    with open(source, "rb") as old, open(target, "xb") as new:
        shutil.copyfileobj(old, new, 2**20)
        new.flush()
        os.fsync(new.fileno())
    with suppress(OSError):  # a disk without owners or times
        shutil.copystat(source, target)
    if not equal_bytes(source, target):
        raise OSError(errno.EIO, "the copy differs from the original", str(source), None, str(target))


def same_content(one: Path, other: Path) -> bool:
    """Return whether two names are of one file, or of two regular files with equal bytes, or are equal links."""
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and os.readlink(one) == os.readlink(other)
    if not (one.is_file() and other.is_file()):
        return False
    return os.path.samefile(one, other) or equal_bytes(one, other)


def equal_bytes(one: Path, other: Path) -> bool:
    """Return whether two regular files have equal content, by reading both."""
    filecmp.clear_cache()  # its answers are remembered by size and time
    return filecmp.cmp(one, other, shallow=False)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder through to the disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
