"""One Python environment for all checkouts, in the user's cache folder: what users need, and with ./test what developers need.

It is brought up to date when the dependency list changes, and only ever added to. An installation that was stopped continues
at the next call.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent.parent
PLACE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    / "likewise"
    / f"venv-{sys.version_info[0]}.{sys.version_info[1]}"
)
EXTRAS = {"users": "serve,weights", "developers": "dev"}
"""Extras of likewise that the environment has for users; those for developers include them."""
GPU_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
"""Files of NVIDIA's driver on Linux, the last one in WSL."""
CPU_SIZE, CUDA_SIZE = "0.4 GB to download, 1.5 GB on disk", "3.2 GB to download, 6.0 GB on disk"
"""Size of what users need on Linux, with PyTorch's build for CPUs and for NVIDIA GPUs."""
DEVELOPERS_SIZE = "0.5 GB more to download, 1.8 GB more on disk"
CPU_DISK, CUDA_DISK, DEVELOPERS_DISK = 3, 10, 3
"""Gigabytes of free disk space for a first installation, with the downloaded files; the last for developers in addition."""


def run(*words: str, needs: str = "users") -> None:
    """Replace this process by the environment's Python with these arguments, running the code of this checkout.

    Nothing is imported from the current folder: `-P` keeps it off the path, and so does leaving out the empty entries of
    PYTHONPATH, which mean that folder.

    Args:
        needs: a key of `EXTRAS`.
    """
    python = ensure(needs)
    path = [str(HERE / "src"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    # First on the path, so that each checkout runs its own code whichever one the environment was made from.
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    os.execve(python, [python, "-P", *words], variables)


def ensure(needs: str = "users") -> str:
    """Return the path of the environment's Python, after installing missing packages."""
    if sys.version_info < (3, 11):
        sys.exit(
            f"likewise needs Python 3.11 or newer, this is {sys.version.split()[0]}; run it as: python3.11 {sys.argv[0]}"
        )
    wanted = dependencies()
    stamp, python = PLACE / "likewise-stamp", PLACE / "bin" / "python"
    if is_ready(stamp, wanted, needs):
        return str(python)
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(HERE / "src"))  # of this checkout; the module needs nothing but Python
    from likewise.core.locks import file_lock

    with file_lock(PLACE.with_name(f"{PLACE.name}.lock"), before_waiting=say_waiting):
        if is_ready(stamp, wanted, needs):  # another process was faster
            return str(python)
        if "developers" in read_stamp(stamp)[1:]:
            needs = "developers"
        started = time.time()
        try:
            install(str(python), needs)
        except KeyboardInterrupt:
            say("the installation was stopped; the same command continues it")
            sys.exit(130)
        stamp.write_text(f"{wanted} {needs}")
        say(f"installed in {time.time() - started:.0f} s")
    return str(python)


def dependencies() -> str:
    """Return a hash of the list of packages to install."""
    import tomllib  # imported here, because an older Python must reach the error message above

    project = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [project["requires-python"], project["dependencies"], project["optional-dependencies"], project["scripts"]]
    return hashlib.sha256(repr(wanted).encode()).hexdigest()


def is_ready(stamp: Path, wanted: str, needs: str) -> bool:
    return read_stamp(stamp) in ([wanted, needs], [wanted, "developers"])


def read_stamp(stamp: Path) -> list[str]:
    """Return the hash of the installed dependencies and the key of `EXTRAS`; nothing before the first installation."""
    return stamp.read_text().split() if stamp.exists() else []


def install(python: str, needs: str) -> None:
    """Create the environment if there is none, and install PyTorch and then likewise with its other packages."""
    if not (PLACE / "bin" / "pip").exists():
        venv.create(PLACE, with_pip=True, clear=True)
    for unfinished in PLACE.glob("lib/*/site-packages/*.dist-info"):
        if not (unfinished / "INSTALLER").exists():  # the last file but one that pip and uv write of a package
            shutil.rmtree(unfinished)
    if has_torch(needs):
        announce("packages", needs)
    else:
        install_torch(python, needs)
    if failure := attempt([*tool, "-e", f"{HERE}[{EXTRAS[needs]}]"] for tool in installers(python)):
        end_failed(failure)


def has_torch(needs: str) -> bool:
    """Return whether torch and torchvision are installed, and for developers whether they are of the same build."""
    torch, torchvision = installed_version("torch"), installed_version("torchvision")
    is_pair = torchvision.endswith("+cpu") or not torch.endswith("+cpu")
    return bool(torch and torchvision) and (is_pair or needs == "users")


def install_torch(python: str, needs: str) -> None:
    """Install PyTorch: on Linux without an NVIDIA GPU its build for CPUs if that can be had, else what PyPI has."""
    is_linux, more = sys.platform == "linux", DEVELOPERS_DISK if needs == "developers" else 0
    if is_linux and not has_gpu():
        check_disk(CPU_DISK + more)
        announce(f"PyTorch (for CPUs) and other packages, {CPU_SIZE}", needs)
        if not attempt(cpu_builds(python, needs)):
            return
        say("PyTorch for CPUs cannot be had here")
    check_disk((CUDA_DISK if is_linux else CPU_DISK) + more)
    announce(
        f"PyTorch (for NVIDIA GPUs) and other packages, {CUDA_SIZE}" if is_linux else "PyTorch and other packages",
        needs,
    )
    if failure := attempt([*tool, "--upgrade", *torch_requirements()] for tool in installers(python)):
        end_failed(failure)


def announce(packages: str, needs: str) -> None:
    """Print what is going to be installed."""
    more = f"; with those for developers, {DEVELOPERS_SIZE}" if needs == "developers" else ""
    say(f"installing {packages}{more}, into {PLACE}")


def cpu_builds(python: str, needs: str) -> Iterator[list[str]]:
    """Yield the commands that may install PyTorch's build for CPUs, best first.

    The indexes that pip is configured with may have it. Otherwise uv knows PyTorch's own index. torchvision of PyPI is the last
    resort beside it, for users only: likewise works with it (`likewise.models.torchvision_operators`), other libraries do not.
    `--upgrade` replaces it for developers.
    """
    torch, torchvision = (cpu_version(python, name) for name in ("torch", "torchvision"))
    from_pip = [*pip(python), "--upgrade", f"torch=={torch}", *torch_requirements()[1:]]
    if torch and torchvision:
        yield from_pip
    uv, own = shutil.which("uv"), str(PLACE / "bin" / "uv")
    if uv or os.path.exists(own) or not attempt([[*pip(python), "uv"]]):
        yield [
            uv or own,
            "pip",
            "install",
            "--python",
            python,
            "--upgrade",
            "--torch-backend=cpu",
            *torch_requirements(),
        ]
    if torch and not torchvision and needs == "users":
        yield from_pip


def cpu_version(python: str, package: str) -> str:
    """Return the newest version of a package that is built for CPUs, from the indexes of pip; empty if there is none."""
    words = [python, "-I", "-m", "pip", "index", "versions", package]
    found = subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=False).stdout
    return next((word for word in found.replace(",", " ").split() if word.endswith("+cpu")), "")


def torch_requirements() -> list[str]:
    """Return the requirements of likewise for torch and torchvision."""
    import tomllib

    listed = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    return [one for one in listed if one.startswith("torch")]


def installed_version(package: str) -> str:
    """Return the version of a package in the environment; empty without it."""
    found = next(PLACE.glob(f"lib/*/site-packages/{package}-*.dist-info"), None)
    return found.name.removesuffix(".dist-info").partition("-")[2] if found else ""


def has_gpu() -> bool:
    return any(map(os.path.exists, GPU_FILES)) or shutil.which("nvidia-smi") is not None


def installers(python: str) -> list[list[str]]:
    """Return the starts of the commands that install: with uv if it is on the PATH, and with pip if there is none or it fails."""
    uv = shutil.which("uv")
    return [*([[uv, "pip", "install", "--python", python]] if uv else []), pip(python)]


def pip(python: str) -> list[str]:
    return [python, "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]


def attempt(commands: Iterable[list[str]]) -> str:
    """Run installers until one succeeds. Return an empty text, or the end of the output of the last one.

    At a terminal, one line shows the progress. The installers run in the checkout: uv reads settings from the current folder.
    """
    failure = "there is no way to install it"
    for words in commands:
        output: list[str] = []
        with subprocess.Popen(
            words, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as running:
            done = threading.Event()
            if sys.stderr.isatty():
                threading.Thread(target=show_progress, args=(output, done), daemon=True).start()
            assert running.stdout is not None
            try:
                for line in filter(str.strip, running.stdout):
                    output.append(line.strip())
            finally:
                done.set()
        if running.returncode == 0:
            return ""
        failure = "\n".join(output[-20:]) or f"{words[0]} ended with exit code {running.returncode}"
    return failure


def show_progress(output: list[str], done: threading.Event) -> None:
    """Show the newest line of a growing output, with the seconds since the start, in one line of the terminal."""
    started = time.time()
    while not done.wait(1):
        text = f"likewise: {time.time() - started:.0f} s, {output[-1] if output else 'starting'}"
        print(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
    print("\r\033[K", end="", file=sys.stderr, flush=True)


def end_failed(output: str) -> NoReturn:
    sys.exit(
        f"{output}\nlikewise: the installation failed; the reason is printed above. Run the same command again to continue"
    )


def check_disk(gigabytes: int) -> None:
    """End if the disk has less free space."""
    if shutil.disk_usage(PLACE.parent).free < gigabytes * 2**30:
        sys.exit(
            f"likewise: installing needs about {gigabytes} GB free in {PLACE.parent}; set XDG_CACHE_HOME to another disk"
        )


def say_waiting() -> None:
    say("another call is installing; waiting for it")


def say(text: str) -> None:
    print(f"likewise: {text}", file=sys.stderr, flush=True)
