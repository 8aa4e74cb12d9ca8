"""The environment of the launchers: which commands install it, in which order, and how it continues. Nothing is installed."""

import importlib
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
UV = "/opt/uv/bin/uv"


def create(place, **_):
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "pip").write_text("")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """tools/environment.py with an empty cache folder, on Linux without a GPU, without uv, and with an index without builds for
    CPUs. `module.called` are the commands; those that start with or contain a text of `module.failing` fail."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    sys.modules.pop("environment", None)
    module = importlib.import_module("environment")
    monkeypatch.setattr(module.sys, "path", list(sys.path))
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setattr(module, "PLACE", tmp_path / "likewise" / "venv")
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 2**40}))
    monkeypatch.setattr(module.venv, "create", create)
    monkeypatch.setattr(module, "cpu_version", lambda python, package: module.offered.get(package, ""))
    module.called, module.failing, module.offered = [], [], {}

    def attempt(commands):
        for words in commands:
            module.called.append(" ".join(words).replace(str(module.PLACE), "VENV").replace(str(ROOT), "HERE"))
            if not any(text in module.called[-1] for text in module.failing):
                return ""
        return "no space left"

    module.real_attempt = module.attempt
    monkeypatch.setattr(module, "attempt", attempt)
    yield module
    sys.modules.pop("environment", None)


PIP = "VENV/bin/python -I -m pip install --disable-pip-version-check --no-input --progress-bar=off"
CPU = "pip install --python VENV/bin/python --upgrade --torch-backend=cpu torch>=2.6 torchvision>=0.21"
ALL = f"{PIP} --upgrade torch>=2.6 torchvision>=0.21"
USERS, DEVELOPERS = f"{PIP} -e HERE[serve,weights]", f"{PIP} -e HERE[dev]"


def have(module, *packages):
    for name in packages:
        folder = module.PLACE / "lib" / "python3" / "site-packages" / f"{name}.dist-info"
        folder.mkdir(parents=True)
        (folder / "INSTALLER").write_text("pip")


def test_without_a_gpu_uv_brings_the_build_for_cpus(module, capsys):
    module.ensure()
    assert module.called == [f"{PIP} uv", f"VENV/bin/uv {CPU}", USERS]
    assert "installing PyTorch (for CPUs)" in capsys.readouterr().err


def test_where_there_is_no_build_for_cpus_the_usual_one_is_installed(module, capsys):
    module.failing = ["--torch-backend=cpu"]
    module.ensure()
    assert module.called == [f"{PIP} uv", f"VENV/bin/uv {CPU}", ALL, USERS]
    told = capsys.readouterr().err
    assert "cannot be had here" in told and "PyTorch (for NVIDIA GPUs)" in told


def test_the_indexes_of_pip_come_first_if_they_have_both_packages(module):
    module.offered = {"torch": "2.13.0+cpu", "torchvision": "0.28.0+cpu"}
    module.ensure()
    assert module.called == [f"{PIP} --upgrade torch==2.13.0+cpu torchvision>=0.21", USERS]


@pytest.mark.parametrize(
    ("needs", "last"),
    [
        ("users", [f"{PIP} --upgrade torch==2.13.0+cpu torchvision>=0.21", USERS]),
        ("developers", [ALL, DEVELOPERS]),  # libraries of the tests fail beside a torchvision of another build
    ],
)
def test_torch_for_cpus_without_its_torchvision_is_for_users_only(module, needs, last):
    module.offered, module.failing = {"torch": "2.13.0+cpu"}, ["--torch-backend=cpu"]
    module.ensure(needs)
    assert module.called == [f"{PIP} uv", f"VENV/bin/uv {CPU}", *last]


def test_with_a_gpu_or_on_another_system_the_usual_build_is_installed(module, monkeypatch, capsys):
    monkeypatch.setattr(module, "has_gpu", lambda: True)
    module.ensure()
    assert module.called == [ALL, USERS]
    module.called.clear()
    (module.PLACE / "likewise-stamp").unlink()
    monkeypatch.setattr(module.sys, "platform", "darwin")
    module.ensure()
    assert module.called == [ALL, USERS]
    assert "installing PyTorch and other packages, into" in capsys.readouterr().err


def test_uv_on_the_path_is_used_and_pip_if_it_fails(module, monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: UV if name == "uv" else None)
    module.ensure()
    assert module.called == [f"{UV} {CPU}", f"{UV} pip install --python VENV/bin/python -e HERE[serve,weights]"]
    (module.PLACE / "likewise-stamp").unlink()
    module.called.clear()
    module.failing = [UV]
    module.ensure()
    assert module.called[-1] == USERS and module.called[-2].startswith(UV)


def test_developers_packages_are_added_and_kept(module, monkeypatch):
    module.ensure()
    have(module, "torch-2.15.0", "torchvision-0.29.2")
    module.called.clear()
    module.ensure()
    assert module.called == []
    module.ensure("developers")
    assert module.called == [DEVELOPERS]
    module.ensure()
    assert module.called == [DEVELOPERS]  # users need nothing more
    monkeypatch.setattr(module, "dependencies", lambda: "another-list")
    module.ensure()
    assert module.called == [DEVELOPERS, DEVELOPERS]
    assert module.read_stamp(module.PLACE / "likewise-stamp") == ["another-list", "developers"]


def test_developers_get_torch_and_torchvision_of_one_build(module):
    have(module, "torch-2.13.0+cpu", "torchvision-0.28.0")
    assert module.has_torch("users") and not module.has_torch("developers")
    have(module, "torchvision-0.28.0+cpu")
    (module.PLACE / "lib/python3/site-packages/torchvision-0.28.0.dist-info/INSTALLER").unlink()
    module.ensure("developers")
    assert module.called == [DEVELOPERS]


def test_torch_and_torchvision_of_two_builds_are_replaced_for_developers(module):
    have(module, "torch-2.13.0+cpu", "torchvision-0.28.0")
    create(module.PLACE)
    module.failing = ["--torch-backend=cpu"]
    module.ensure("developers")
    assert module.called == [f"{PIP} uv", f"VENV/bin/uv {CPU}", ALL, DEVELOPERS]


def test_an_installation_that_was_stopped_continues(module, monkeypatch, capsys):
    """A package whose installation was cut is installed again, and one that is complete is kept."""
    have(module, "torch-2.15.0", "torchvision-0.29.2", "numpy-2.4.6")
    create(module.PLACE)
    site = module.PLACE / "lib" / "python3" / "site-packages"
    (site / "torch-2.15.0.dist-info" / "INSTALLER").unlink()

    def stop(commands):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "attempt", stop)
    with pytest.raises(SystemExit) as stopped:
        module.ensure()
    assert stopped.value.code == 130 and "the same command continues it" in capsys.readouterr().err
    assert not (site / "torch-2.15.0.dist-info").exists() and (site / "numpy-2.4.6.dist-info").exists()
    assert not (module.PLACE / "likewise-stamp").exists() and not module.has_torch("users")


def test_a_failed_installation_leaves_no_stamp(module):
    module.failing = ["-e HERE"]
    with pytest.raises(SystemExit, match=r"no space left\nlikewise: the installation failed"):
        module.ensure()
    assert not (module.PLACE / "likewise-stamp").exists()


@pytest.mark.parametrize(
    ("needs", "free", "gpu", "need"),
    [("users", 2, False, 3), ("users", 9, True, 10), ("developers", 5, False, 6), ("developers", 12, True, 13)],
)
def test_a_full_disk_is_noticed_before(module, monkeypatch, needs, free, gpu, need):
    monkeypatch.setattr(module, "has_gpu", lambda: gpu)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda place: type("Usage", (), {"free": free * 2**30}))
    with pytest.raises(SystemExit, match=f"needs about {need} GB free"):
        module.ensure(needs)
    assert module.called == []


def test_the_output_of_an_installer_that_fails_is_returned(module):
    fail = [sys.executable, "-c", "print('first'); print('last'); raise SystemExit(1)"]
    assert module.real_attempt([fail]) == "first\nlast"
    assert module.real_attempt([fail, [sys.executable, "-c", ""]]) == ""
    assert module.real_attempt([[sys.executable, "-c", "raise SystemExit(3)"]]).endswith("ended with exit code 3")
    assert module.real_attempt([]) == "there is no way to install it"


def test_a_terminal_shows_the_newest_line_of_the_output(module, capsys, monkeypatch):
    monkeypatch.setattr(module.shutil, "get_terminal_size", lambda: type("Size", (), {"columns": 40}))

    class Done(threading.Event):
        calls = 0

        def wait(self, timeout=None):
            self.calls += 1
            return self.calls > 1

    module.show_progress(["Collecting a", "Downloading torch-2.15.0-cp311-cp311.whl (539.1 MB)"], Done())
    shown = capsys.readouterr().err
    assert shown == "\r\033[Klikewise: 0 s, Downloading torch-2.15.0\r\033[K"


def test_an_environment_that_another_call_installs_is_waited_for(module, tmp_path, monkeypatch):
    fcntl, asked = pytest.importorskip("fcntl"), []
    monkeypatch.setattr(module, "is_ready", lambda *_: asked.append(1) or len(asked) > 1)  # ready after the wait
    module.PLACE.parent.mkdir()
    with module.PLACE.with_name("venv.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        monkeypatch.setattr(module, "say_waiting", lambda: (asked.append(0), fcntl.flock(other, fcntl.LOCK_UN)))
        assert module.ensure() == str(module.PLACE / "bin" / "python")
    assert asked == [1, 0, 1] and not module.PLACE.exists() and module.called == []
