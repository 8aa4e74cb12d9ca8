"""One Python environment for all checkouts, in the user's cache folder, brought up to date when the dependency list changes."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
PLACE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    / "likewise"
    / f"venv-{sys.version_info[0]}.{sys.version_info[1]}"
)


def run(*words: str) -> None:
    """Replace this process by the environment's Python with these arguments, running the code of this checkout.

    Nothing is imported from the current folder: `-P` keeps it off the path, and so does leaving out the empty entries of
    PYTHONPATH, which mean that folder.
    """
    python = ensure()
    path = [str(HERE / "src"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    # First on the path, so that each checkout runs its own code whichever one the environment was made from.
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    os.execve(python, [python, "-P", *words], variables)


def ensure() -> str:
    """Return the path of the environment's Python, after installing missing packages."""
    if sys.version_info < (3, 11):
        sys.exit(
            f"likewise needs Python 3.11 or newer, this is {sys.version.split()[0]}; run it as: python3.11 {sys.argv[0]}"
        )
    wanted = dependencies()
    stamp, python = PLACE / "likewise-stamp", PLACE / "bin" / "python"
    if is_ready(stamp, wanted):
        return str(python)
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(HERE / "src"))  # of this checkout; the module needs nothing but Python
    from likewise.core.locks import file_lock

    with file_lock(PLACE.with_name(f"{PLACE.name}.lock"), before_waiting=say_waiting):
        if is_ready(stamp, wanted):  # another process was faster
            return str(python)
        need = 9 * 2**30
        if not stamp.exists() and shutil.disk_usage(PLACE.parent).free < need:
            sys.exit(
                f"likewise: installing needs about {need >> 30} GB free in {PLACE.parent}; set XDG_CACHE_HOME to another disk"
            )
        print(
            f"likewise: installing into {PLACE} (once; about 5 minutes and 8 GB the first time)",
            file=sys.stderr,
            flush=True,
        )
        started = time.time()
        if not python.exists():
            venv.create(PLACE, with_pip=True, clear=True)
        pip = [str(python), "-I", "-m", "pip", "install", "--disable-pip-version-check", "-e", f"{HERE}[dev]"]
        if not sys.stderr.isatty():  # at a terminal, pip prints its own output
            pip.append("--quiet")
        if subprocess.call(pip) != 0:
            sys.exit(
                "likewise: the installation failed; the reason is printed above. Run the same command again to continue"
            )
        stamp.write_text(wanted)
        print(f"likewise: installed in {time.time() - started:.0f} s", file=sys.stderr, flush=True)
    return str(python)


def dependencies() -> str:
    """Return a hash of the list of packages to install."""
    import tomllib  # imported here, because an older Python must reach the error message above

    project = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [project["requires-python"], project["dependencies"], project["optional-dependencies"], project["scripts"]]
    return hashlib.sha256(repr(wanted).encode()).hexdigest()


def is_ready(stamp: Path, wanted: str) -> bool:
    return stamp.exists() and stamp.read_text() == wanted


def say_waiting() -> None:
    print("likewise: another call is installing; waiting for it", file=sys.stderr, flush=True)
