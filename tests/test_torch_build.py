"""Which build of torch start.py installs: one for the CPU where there is one, CUDA never by surprise."""

import socket
import sys
import time

import pytest

from tools import torch_build
from tools.mishaps import Mishap
from tools.project import ROOT, Requirement

TORCH = Requirement("torch", ">=2.13,<3")
NOWHERE = "http://127.0.0.1:9"


def package(name, version="1", url="file:///nowhere"):
    return {"metadata": {"name": name, "version": version}, "download_info": {"url": url}}


CPU = [package("torch", "2.13.0+cpu"), package("numpy")]
CUDA = [package("torch", "2.14.1"), package("nvidia-cublas"), package("triton")]


@pytest.fixture
def linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(torch_build, "answers", lambda url: False)
    return monkeypatch


def answer_with(answers, asked):
    def resolve(requirement, options):
        asked.append((requirement, options))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return resolve


def test_cpu_index_is_asked_first_and_alone(linux):
    linux.setattr(torch_build, "answers", lambda url: True)
    asked = []
    build = torch_build.choose(TORCH, answer_with([CPU], asked))
    assert asked == [("torch>=2.13,<3", ("--index-url", torch_build.CPU_WHEELS))]
    assert (build.requirement, build.options, build.is_cuda) == ("torch==2.13.0+cpu", asked[0][1], False)


def test_lower_bound_is_taken_where_the_newest_is_cuda(linux):
    asked = []
    build = torch_build.choose(TORCH, answer_with([CUDA, CPU], asked))
    assert asked == [("torch>=2.13,<3", ()), ("torch==2.13", ())]
    assert (build.requirement, build.is_cuda) == ("torch==2.13.0+cpu", False)


def test_newest_cuda_is_offered_where_there_is_no_other(linux):
    build = torch_build.choose(TORCH, answer_with([CUDA, Mishap("no such release")], []))
    assert (build.requirement, build.is_cuda) == ("torch==2.14.1", True)


def test_no_torch_at_all_tells_why(linux):
    with pytest.raises(Mishap, match="second"):
        torch_build.choose(TORCH, answer_with([Mishap("first"), Mishap("second")], []))


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_elsewhere_the_usual_index_is_right(platform, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    assert torch_build.choose(TORCH, answer_with([], [])).requirement == "torch>=2.13,<3"


def test_cuda_is_never_downloaded_without_a_yes(monkeypatch):
    build = torch_build.Build("torch==2.14.1", (), is_cuda=True, size=2_812_000_000)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(Mishap, match=r"Only a CUDA build .*: 2\.8 GB to download\. Run it again with --yes"):
        torch_build.accept_cuda(build)
    with pytest.raises(Mishap, match="several GB"):
        torch_build.accept_cuda(build._replace(size=None))


@pytest.mark.parametrize("answer", ["", "n", EOFError])
def test_ctrl_d_is_a_no(answer, monkeypatch):
    def reply(question):
        if answer is EOFError:
            raise EOFError
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", reply)
    with pytest.raises(Mishap, match="Nothing was downloaded"):
        torch_build.accept_cuda(torch_build.Build("torch==2.14.1", (), is_cuda=True))


def test_download_size_adds_up_files(tmp_path):
    (tmp_path / "a b").write_bytes(b"12345")
    url = (tmp_path / "a b").as_uri()
    assert torch_build.download_size([url, url]) == 10
    assert torch_build.download_size([url, f"{NOWHERE}/x"]) is None


def test_silent_index_costs_little():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        began = time.monotonic()
        assert not torch_build.answers(f"http://127.0.0.1:{deaf.getsockname()[1]}/")
        assert time.monotonic() - began < torch_build.PROBE_SECONDS + 20


def test_one_address_of_a_package_index_stands_in_one_place():
    texts = [path.read_text("utf-8") for path in [ROOT / "start.py", *(ROOT / "tools").glob("*.py")]]
    assert sum(text.count(torch_build.CPU_WHEELS) for text in texts) == 1
