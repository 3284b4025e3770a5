"""start.py: what it says when a start goes wrong, and what decides whether .venv is built again.

Nothing here downloads anything. The whole way, from a fresh clone to an open JupyterLab, is tried by .ci/run.
"""

import errno
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tools import building, here, lab, launcher, lock
from tools.environment import UNFINISHED, Environment, base_python, read_stamp, reason_to_build, write_stamp
from tools.mishaps import DISK_FULL, NO_NETWORK, NOT_WRITABLE, Mishap, explain_log, explain_os_error
from tools.progress import Progress
from tools.project import ROOT, Requirement, fingerprint, parse_requirement, read_project, requirements

TORCH = Requirement("torch", ">=2.13,<3")
# Neither the machine's own settings nor a network that happens to be there may help.
NOWHERE = "http://127.0.0.1:9"
OFFLINE = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_INDEX_URL": f"{NOWHERE}/simple",
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "PIP_CONSTRAINT": "",
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "",
}
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX only")


def copy_course(folder: Path) -> Path:
    """Copy what start.py needs."""
    for name in ("tools", "settings"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("start.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture
def course(tmp_path):
    folder = tmp_path / "a course ü"
    folder.mkdir()
    return copy_course(folder)


def start(folder: Path, *arguments: str, python: str = sys.executable, **variables: str):
    """Run start.py as a person would, from some other folder."""
    return subprocess.run(
        [python, str(folder / "start.py"), *arguments],
        env=os.environ | OFFLINE | variables,
        cwd=Path(folder).anchor,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def said(result) -> str:
    """Return the one complaint of a start that went wrong."""
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr.strip()


def finished(environment: Environment, **changes):
    """Lay an environment that looks finished."""
    environment.python.parent.mkdir(parents=True)
    environment.python.symlink_to(sys.executable)
    write_stamp(
        environment,
        {
            "finished": True,
            "fingerprint": fingerprint(environment.root),
            "folder": str(environment.folder),
            "python": base_python(environment),
            "extras": ["test"],
        }
        | changes,
    )


# The guard


def old_pythons():
    """Return whatever Pythons before 3.11 this machine happens to have."""
    found = []
    for path in sorted((Path.home() / ".pyenv" / "versions").glob("*/bin/python")):
        version = re.match(r"(\d+)\.(\d+)\.\d+$", path.parent.parent.name)
        if version and tuple(map(int, version.groups())) < (3, 11):
            found.append(path)
    return found


def test_guard_and_pyproject_name_the_same_python():
    text = (ROOT / "start.py").read_text("utf-8")
    needed = re.search(r"NEEDED = \((\d+), (\d+)\)", text).groups()
    assert read_project()["requires-python"] == ">=" + ".".join(needed)


def test_guard_has_nothing_that_an_old_python_cannot_parse():
    text = (ROOT / "start.py").read_text("ascii")
    assert not re.search(r"\bf['\"]|->|:=|print ", text)
    compile(text, "start.py", "exec")


@pytest.mark.parametrize("python", old_pythons(), ids=lambda path: path.parent.parent.name)
def test_old_python_is_told_what_is_needed(python, course):
    answer = said(start(course, python=str(python)))
    assert answer.startswith("This course needs Python 3.11 or newer, and this is Python ")


def test_guard_speaks_before_anything_else_is_imported(monkeypatch):
    import start as guard

    monkeypatch.setattr(sys, "version_info", (3, 8, 18))
    assert guard.main().startswith("This course needs Python 3.11 or newer, and this is Python 3.8.18: ")


# The command line


def test_help_is_short_and_has_one_line_for_each_verb(capsys):
    assert launcher.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 20
    assert max(map(len, text.splitlines())) < 90
    for verb in launcher.TAKES:
        assert len(re.findall(rf"^  ({verb}|\(none\)) ", text, re.MULTILINE)) >= 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["tset"], "start.py does not know 'tset'"),
        (["--prot", "9"], "start.py does not know '--prot'"),
        (["--port", "abc"], "--port cannot be used like that: invalid int value: 'abc'. python3 start.py"),
        (["--port"], "--port cannot be used like that: expected one argument. python3 start.py"),
        (["run"], "'run' cannot be used like that"),
        (["build", "now"], "'build' cannot be used like that"),
        (["run", "no_such_lesson"], "There is no lesson 'no_such_lesson'"),
    ],
)
def test_wrong_command_line_is_one_sentence(arguments, sentence, capsys):
    assert launcher.main(arguments) == 1
    assert capsys.readouterr().err.startswith(sentence)


def test_window_of_idle_will_do(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.StringIO())
    assert launcher.main(["--help"]) == 0


def test_arguments_after_test_go_to_pytest_in_order():
    options, verb, further = launcher.parse(["--here", "test", "-k", "closure", "-x", "--port", "9"])
    assert (verb, further) == ("test", ["-k", "closure", "-x"])
    assert options.here
    assert options.port == 9


def test_test_verb_runs_pytest_with_one_thread(monkeypatch):
    seen = []
    monkeypatch.setattr(building, "ready", lambda extras, accept_cuda: seen.append(extras) or Path("python"))
    monkeypatch.setattr(launcher, "run", lambda command, variables: seen.append((command, variables)) or 0)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert launcher.main(["test", "-k", "closure"]) == 0
    extras, (command, variables) = seen
    assert extras == {"test"}
    assert command == ["python", "-m", "pytest", "-k", "closure"]
    assert variables["OMP_NUM_THREADS"] == "1"


# When .venv is built


def test_finished_environment_is_used_at_once(course):
    environment = Environment(course)
    finished(environment)
    assert reason_to_build(environment, frozenset({"test"})) is None
    assert reason_to_build(environment, frozenset()) is None
    result = start(course, "build")
    assert result.returncode == 0
    assert "[1/" not in result.stdout
    assert not list(course.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"finished": False}, "did not come to its end"),
        ({"folder": "/elsewhere/.venv"}, "moved or copied"),
        ({"fingerprint": "another"}, "have changed"),
        ({"extras": []}, "packages for the tests"),
    ],
)
def test_why_it_is_built_again(course, changes, reason):
    environment = Environment(course)
    finished(environment, **changes)
    assert reason in reason_to_build(environment, frozenset({"test"}))


def test_why_it_is_built_at_all(course):
    environment = Environment(course)
    assert "none yet" in reason_to_build(environment, frozenset())
    environment.folder.mkdir()
    assert "did not make" in reason_to_build(environment, frozenset())
    finished(environment)
    environment.python.unlink()
    assert "gone" in reason_to_build(environment, frozenset())
    environment.stamp.write_text("{half")
    assert "did not come to its end" in reason_to_build(environment, frozenset())


@pytest.mark.parametrize("content", ["null", "[]", '{"finished": true}', '"x"'])
def test_stamp_of_another_kind_counts_as_unfinished(course, content):
    environment = Environment(course)
    finished(environment)
    environment.stamp.write_text(content)
    assert read_stamp(environment) == UNFINISHED
    assert "did not come to its end" in reason_to_build(environment, frozenset())


@posix
def test_python_that_was_replaced_is_noticed_and_a_patch_release_is_not(course, tmp_path):
    environment = Environment(course)
    pythons = [tmp_path / "3.11.7/python3.11", tmp_path / "3.11.9/python3.11", tmp_path / "3.12.1/python3.12"]
    for python in pythons:
        python.parent.mkdir()
        python.touch()
    link = tmp_path / "python3"
    link.symlink_to(pythons[0])
    finished(environment)
    environment.python.unlink()
    environment.python.symlink_to(link)
    settings = environment.folder / "pyvenv.cfg"
    settings.write_text("home = /x\nversion = 3.11.7\n")
    write_stamp(environment, read_stamp(environment) | {"python": base_python(environment)})
    for python, reason in zip(pythons, (None, None, "its Python was replaced"), strict=True):
        link.unlink()
        link.symlink_to(python)
        assert reason_to_build(environment, frozenset()) == reason
    link.unlink()
    link.symlink_to(pythons[0])
    # As `python3.12 -m venv .venv` leaves it on Windows, where the file of .venv's Python is always called the same.
    settings.write_text("home = /x\nversion = 3.12.1\n")
    assert reason_to_build(environment, frozenset()) == "its Python was replaced"


@pytest.mark.parametrize("name", ["pyproject.toml", "settings/default_setting_overrides.json"])
def test_a_changed_file_leads_to_a_new_installation(course, name):
    environment = Environment(course)
    finished(environment)
    with (course / name).open("a") as file:
        file.write("\n")
    assert "have changed" in reason_to_build(environment, frozenset())


def test_discard_leaves_no_half_environment(course):
    environment = Environment(course)
    finished(environment)
    environment.scratch.mkdir()
    building.discard(environment)
    assert not environment.folder.exists()
    assert list(environment.scratch.iterdir()) == []


@posix
def test_environment_of_others_is_never_removed(course):
    environment = Environment(course)
    finished(environment)
    environment.stamp.unlink()
    assert said(start(course, "build")).startswith("The .venv here was not made by start.py")
    assert environment.python.exists()


@posix
def test_discard_of_a_link_leaves_what_it_points_to(course, tmp_path):
    environment = Environment(course)
    (tmp_path / "far").mkdir()
    environment.folder.symlink_to(tmp_path / "far")
    building.discard(environment)
    assert (tmp_path / "far").exists()
    assert not environment.folder.exists()


# Bad starts


def test_no_network_then_interrupted_then_again(course):
    assert said(start(course, "build")).startswith(NO_NETWORK)
    environment = Environment(course)
    assert read_stamp(environment)["finished"] is False
    assert "pip" in environment.log.read_text("utf-8")


@posix
def test_interrupted_build_stops_with_a_sentence(course):
    process = subprocess.Popen(
        [sys.executable, str(course / "start.py")],
        env=os.environ | OFFLINE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert "there is none yet" in process.stdout.readline()
    # As a manager of jobs would: Ctrl-C may be shut off where the tests themselves run in the background.
    process.send_signal(signal.SIGTERM)
    _, complaint = process.communicate(timeout=30)
    assert process.returncode == launcher.STOPPED
    assert complaint.strip() == "Stopped. Run it again to go on."
    assert reason_to_build(Environment(course), frozenset())


@posix
def test_path_with_a_colon(tmp_path):
    folder = tmp_path / "a:b"
    folder.mkdir()
    assert said(start(copy_course(folder), "build")).startswith("A folder with ':' in its path cannot hold")


def test_folder_without_write_permission(course, monkeypatch):
    """Root may write everywhere, so the answer of the system is put in."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError) as caught:
        building.check_place(course)
    assert explain_os_error(caught.value).startswith(NOT_WRITABLE)


def test_python_without_venv(course, monkeypatch):
    monkeypatch.setattr(building.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else name)
    with pytest.raises(Mishap, match=r"no module ensurepip\. On Debian or Ubuntu .* apt install python3\.\d+-venv"):
        building.check_place(course)


def test_disk_too_small_for_a_first_build(course, monkeypatch):
    monkeypatch.setattr(building, "SPACE_NEEDED", float("inf"))
    with pytest.raises(Mishap, match="The disk is full"):
        building.ready(root=course)


def test_port_in_use_is_one_sentence():
    with socket.socket() as other:
        other.bind((lab.HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Mishap, match=f"Port {port} is in use"):
            lab.choose_port(port)


@pytest.mark.parametrize("port", [-1, 0, 70000])
def test_port_that_does_not_exist(port):
    with pytest.raises(Mishap, match=f"Port {port} is in use or not allowed"):
        lab.choose_port(port)


def test_next_free_port_is_taken_and_said(monkeypatch, capsys):
    monkeypatch.setattr(lab, "is_free", lambda port: port > 8889)
    assert lab.choose_port(None) == 8890
    assert capsys.readouterr().out == "Port 8888 is in use, so JupyterLab takes 8890.\n"


def test_second_build_waits_for_the_first(tmp_path, capsys):
    path = tmp_path / ".tmp" / "start.lock"
    with lock.only_one(path):
        holder = "from pathlib import Path; import sys; from tools.lock import acquire;"
        holder += " print(acquire(Path(sys.argv[1]).open('ab')))"
        other = [sys.executable, "-c", holder, str(path)]
        answer = subprocess.run(other, cwd=ROOT, capture_output=True, encoding="utf-8", check=True).stdout
        assert answer.strip() == "False"
    with lock.only_one(path):
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ("ERROR: Could not install: [Errno 28] No space left on device", DISK_FULL),
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError'\nERROR: No matching distribution",
            NO_NETWORK,
        ),
        ("OSError: [Errno 30] Read-only file system: '/x'", NOT_WRITABLE),
        ("something else", None),
    ],
)
def test_what_pip_says_is_explained(log, sentence):
    assert explain_log(log) == sentence


def test_missing_release_is_named():
    assert explain_log("ERROR: No matching distribution found for torch>=2.13").startswith(
        "pip finds no torch for Python"
    )


def test_unknown_failure_shows_the_end_of_the_log(course):
    text = "\n".join(f"line {i}" for i in range(20))
    sentence = building.explain(text, Environment(course))
    assert "line 19" in sentence
    assert "line 3\n" not in sentence
    assert "install.log" in sentence


def test_errors_of_the_system_are_explained():
    assert explain_os_error(OSError(errno.ENOSPC, "full")) == DISK_FULL
    assert explain_os_error(PermissionError(errno.EACCES, "no", "/x")) == f"{NOT_WRITABLE} (/x)"
    assert explain_os_error(OSError(errno.EIO, "broken", "/x")) == "broken: /x"


# What is needed, and --here


@pytest.mark.parametrize(
    ("version", "fits"),
    [("2.13.0", True), ("2.13.0+cpu", True), ("2.14.1", True), ("2.9.1", False), ("3.0", False), ("2.12.9", False)],
)
def test_bounds(version, fits):
    assert TORCH.accepts(version) is fits


def test_requirement_lines():
    assert parse_requirement("nbval>=0.11") == ("nbval", ">=0.11")
    assert parse_requirement("py-rattler") == ("py-rattler", "")
    assert parse_requirement("x").accepts("1")
    assert str(requirements()[0]).startswith("torch>=")


def test_this_environment_has_what_the_course_needs():
    assert list(here.missing(requirements(frozenset({"test"})))) == []


def test_here_names_what_is_missing_and_the_command(monkeypatch):
    wanted = [Requirement("no-such-package", ">=1"), Requirement("pytest", ">=999")]
    monkeypatch.setattr(here, "requirements", lambda extras: wanted)
    with pytest.raises(Mishap, match=r"lacks no-such-package>=1, pytest>=999 \(it has .*\).* -m pip install -e"):
        here.check(frozenset({"test"}))


@pytest.mark.parametrize(
    ("origin", "complaint"),
    [
        ({"url": ROOT.as_uri(), "dir_info": {"editable": True}}, None),
        ({"url": ROOT.as_uri(), "dir_info": {}}, "it has a copy"),
        ({"url": "file:///elsewhere", "dir_info": {"editable": True}}, "the one from another"),
        (None, "it has a copy"),
    ],
)
def test_here_wants_the_course_itself_and_no_copy(origin, complaint, monkeypatch):
    class Distribution:
        def read_text(self, name):
            return origin and json.dumps(origin)

    monkeypatch.setattr(here, "requirements", lambda extras: [])
    monkeypatch.setattr(here.importlib.metadata, "distribution", lambda name: Distribution())
    if complaint is None:
        here.check(frozenset())
        return
    with pytest.raises(Mishap, match=rf"{complaint}.* -m pip install -e"):
        here.check(frozenset())


# JupyterLab and progress


def test_jupyterlab_stays_on_this_machine_and_keeps_its_token():
    command = lab.lab_command(Path("python"), 8888, browser=False)
    assert "--ServerApp.ip=127.0.0.1" in command
    assert "--no-browser" in command
    assert not [part for part in command if re.search(r"token=\w|password=", part)]
    assert ("--allow-root" in command) == (hasattr(os, "geteuid") and os.geteuid() == 0)


class Running:
    """A server that runs and is never done."""

    def poll(self):
        return None


def test_server_that_never_answers_is_given_up(monkeypatch):
    tries = []
    monkeypatch.setattr(lab, "PATIENCE", 0.25)
    # As a server does whose own settings put it elsewhere.
    monkeypatch.setattr(lab.http.client.HTTPConnection, "request", lambda *_: tries.append(_))
    answer = type("Answer", (), {"status": 404})()
    monkeypatch.setattr(lab.http.client.HTTPConnection, "getresponse", lambda _: answer)
    with pytest.raises(Mishap, match=r"^JupyterLab has not answered for 0 s and was stopped"):
        lab.wait_until_it_answers(Running(), 9)
    assert 2 <= len(tries) <= 5


def test_printed_address_is_right_whatever_the_users_own_settings_say(tmp_path):
    (tmp_path / "jupyter_server_config.py").write_text(
        "c.ServerApp.base_url = '/x/'; c.ServerApp.sock = '/x'\n"
        "c.ServerApp.certfile = c.ServerApp.keyfile = c.ServerApp.client_ca = '/x.pem'\n"
        "c.ServerApp.ssl_options = {'certfile': '/x.pem'}\n"
        "c.IdentityProvider.token = c.PasswordIdentityProvider.token = 'theirs'\n"
        "c.PasswordIdentityProvider.hashed_password = 'argon2:x'\n"
    )
    # JupyterLab prepares everything, and in place of the service it tells what it would have done.
    told = "print(app.connection_url, repr(app.sock), app.ssl_options, app.identity_provider.token)"
    watch = f"from jupyter_server.serverapp import ServerApp; ServerApp.start = lambda app: {told}; "
    command = lab.lab_command(Path(sys.executable), 9, browser=False)
    command[2] = lab.START_LAB.replace("sys.exit(", watch + "sys.exit(")
    variables = os.environ | {"JUPYTER_CONFIG_DIR": str(tmp_path), "JUPYTER_TOKEN": "ours"}
    answer = subprocess.run(command, env=variables, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8", timeout=60)
    assert answer.stdout.split() == ["http://127.0.0.1:9/", "''", "None", "ours"]


@pytest.mark.parametrize(("screen", "expected"), [("", False), (":0", True)])
def test_no_browser_without_a_screen(screen, expected, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.setattr(lab.webbrowser, "get", lambda: None)
    assert lab.has_browser() is expected


def test_a_step_is_one_line_with_its_seconds(capsys):
    progress = Progress(2)
    with progress.step("Making .venv"):
        progress.show("something")
    assert capsys.readouterr().out == "[1/2] Making .venv … 0 s\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Collecting torch<3,>=2.13", "torch"),
        ("  Downloading torch-2.13.0-cp311-cp311-linux.whl (190.4 MB)", "torch 2.13.0, 190.4 MB"),
        ("Processing /some/where/numpy-2.4.6-cp311.whl", "numpy 2.4.6"),
        ("Installing collected packages: a, b", "writing files"),
        ("Requirement already satisfied: x", ""),
    ],
)
def test_what_pip_is_doing(line, told):
    assert building.doing(line) == told
