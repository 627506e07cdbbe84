# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit.cluster import prerequisites
from labkit.cluster.prerequisites import go_problem
from labkit.errors import Problem
from labkit.host import packages
from labkit.host.places import Places
from labkit.images import environment, rootfs
from tests.support import ROOT

NEEDED = (1, 26)


@pytest.mark.parametrize("installed", ["go1.26", "go1.26.8\n", "go1.30rc1", "go2.0"])
def test_go_of_the_needed_version_or_later_will_do(installed: str):
    assert go_problem(installed, NEEDED, toolchain="local") == ""


@pytest.mark.parametrize(
    ("installed", "toolchain", "is_enough"),
    [
        ("go1.19.8", "", False),
        ("go1.20.1", "auto", False),
        ("go1.25.3", "local", False),
        ("go1.21.0", "auto", True),
        ("go1.25.3", "go1.26.0+auto", True),
    ],
)
def test_older_go_will_do_if_it_fetches_a_newer_one(installed, toolchain, is_enough):
    problem = go_problem(installed, NEEDED, toolchain=toolchain)
    version = ".".join(installed.removeprefix("go").split(".")[:2])
    wanted = f"Go {version} is too old: install 1.26 or later"
    assert problem == ("" if is_enough else wanted)


def test_what_is_no_version_of_go_is_named():
    with pytest.raises(Problem, match="no version of Go in 'devel"):
        go_problem("devel +abc", NEEDED, toolchain="")


def test_the_needed_go_is_that_of_the_go_mod():
    assert (
        f"\ngo {'.'.join(map(str, prerequisites.required_go()))}"
        in (ROOT / "lab/kubernetes/go.mod").read_text()
    )


def test_missing_go_is_named_with_the_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Problem, match=r"no 'go' on PATH: install Go 1\.\d+ or later"):
        prerequisites.check_go()


@pytest.fixture
def mute_server() -> Iterator[str]:
    """The URL of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """The URL of a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("server", ["mute_server", "closed"])
def test_sources_that_do_not_answer_are_one_line_each_within_seconds(
    server: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    url = request.getfixturevalue(server)
    monkeypatch.setattr(prerequisites, "_SECONDS", 1.0)
    monkeypatch.setattr(rootfs, "mirror", lambda: f"{url}/debian/")
    monkeypatch.setattr(environment, "prepare", lambda _at: Path(sys.executable))
    for name, value in {
        "GOPROXY": url, "GOMODCACHE": str(tmp_path / "modules"), "GOFLAGS": "-modcacherw",
        "PIP_INDEX_URL": url, "PIP_FIND_LINKS": "", "NO_PROXY": "*",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    start = time.monotonic()
    for test, words in {
        prerequisites.check_debian: ("Debian packages", "sources in /etc/apt"),
        prerequisites.check_modules: ("Go modules", "GOPROXY"),
        lambda: prerequisites.check_index(Places(cache=tmp_path)): ("Python", "PIP_INDEX_URL"),
    }.items():
        with pytest.raises(Problem, match=r"cannot be fetched \(.+\): check the network") as raised:
            test()
        assert all(word in str(raised.value) for word in words)
        assert "\n" not in str(raised.value)
    assert time.monotonic() - start < 15


def test_all_that_is_wrong_stands_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def fail(text: str):
        def test(*_args: object, **_options: object) -> None:
            raise Problem(text)

        return test

    monkeypatch.setattr(prerequisites.preflight, "check_disk", fail("no disk"))
    monkeypatch.setattr(prerequisites, "check_go", fail("no go"))
    monkeypatch.setattr(prerequisites, "check_debian", fail("no mirror"))
    absent = {"ca-certificates": str(tmp_path / "none")}
    with pytest.raises(Problem, match=r"^no disk; no mirror; no go$"):
        prerequisites.check(Places(cache=tmp_path), absent)


def test_machine_that_is_set_up_is_asked_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    asked = []
    for name in ("check_debian", "check_go", "check_modules", "check_index"):
        monkeypatch.setattr(prerequisites, name, lambda *_args, name=name: asked.append(name))
    monkeypatch.setattr(prerequisites.programs, "builds", lambda _at: [])
    monkeypatch.setattr(prerequisites.bases, "tree_build", lambda _at: Done())
    monkeypatch.setattr(environment, "is_done", lambda _at: True)
    prerequisites.check(Places(cache=tmp_path), {"coreutils": "/usr/bin/cp"})
    assert asked == []


class Done:
    is_done = True


def test_missing_packages_are_found_by_their_files(tmp_path: Path):
    assert packages.missing({"coreutils": "/usr/bin/cp", "other": f"{tmp_path}/x"}) == ["other"]


@pytest.mark.real_time
def test_program_that_is_missing_at_run_time_is_one_line(tmp_path: Path):
    (tmp_path / "python3").symlink_to(sys.executable)
    done = subprocess.run(
        [sys.executable, ROOT / "lab/lab", "up"],
        env={**os.environ, "PATH": str(tmp_path), "PURELB_LAB_CACHE": str(tmp_path / "cache")},
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert "setup" in done.stderr
