# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The audit's page in a browser: on a desktop, on a phone and in print."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from purelb.core.audit.audit import audit
from purelb.core.audit.report import NodeReport, NodeState, report_dict
from purelb.core.election.election import rank
from purelb.core.model import Announcement, Lease, PoolType, Service, ServiceKey
from tests.support.lab.browser import DESKTOP, PHONE, WIDTH, browser, show
from tests.support.lab.cluster_queries import run_ansible

pytestmark = pytest.mark.timeout(180)
NOW = 1_700_000_000.0
# Attacks by names and annotations.
HOSTILE = """<img src="https://example.com/x" onerror='document.title="broken"'>&amp;{{ 7 * 7 }}"""
SHOWN = "[...document.querySelectorAll('tbody tr')].filter(row => row.checkVisibility()).length"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


def type_words(page, words):
    page.value_of(
        f"words.value = {json.dumps(words)}; words.dispatchEvent(new InputEvent('input'))"
    )


# A file of variables would be evaluated as templates; a module's result is not.
PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.slurp: {src: "{{ folder }}/seen.json"}
      register: read
    - ansible.builtin.include_role: {name: purelb.purelb.purelb_audit, tasks_from: write}
      vars:
        purelb_audit_folder: "{{ folder }}"
        purelb_audit_seen: "{{ read.content | b64decode | from_json }}"
        purelb_audit_groups: {objects: []}
        purelb_audit_fail_on: never
"""


def write(folder, report):
    """Write the page of a generated audit."""
    (folder / "seen.json").write_text(json.dumps(report_dict(report)))
    (folder / "play.yml").write_text(PLAY)
    run_ansible(str(folder / "play.yml"), "-e", f"folder={folder}")
    return folder / "purelb-audit.html"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return write(tmp_path_factory.mktemp("small"), made_up(nodes=3, services=4))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return write(tmp_path_factory.mktemp("hostile"), made_up(nodes=3, services=4, mark=HOSTILE))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return write(tmp_path_factory.mktemp("large"), made_up(nodes=100, services=500))


def made_up(*, nodes, services, mark=""):
    """Return an audit without findings, except that no node announces the last address."""
    subnets = (ip_network("10.0.0.0/16"), ip_network("fd00::/64"))
    names = [f"worker-{i}{mark}" for i in range(nodes)]
    leases = [Lease(name, subnets, holder=name, renew_time=NOW - 2) for name in names]
    made = []
    for i in range(services):
        vip = ip_address(f"fd00::{i:x}") if i % 2 else ip_address("10.0.1.0") + i
        entry = Announcement(rank(names, vip)[0], f"eth0{mark}", vip)
        made.append(
            Service(
                ServiceKey("default", f"web-{i}{mark}"),
                addresses=(vip,),
                allocated_by_us=True,
                pool_type=PoolType.LOCAL,
                announcing={vip.version: (entry,) if i < services - 1 else ()},
            )
        )
    nodes = tuple(NodeReport(name, NodeState.LIVE) for name in names)
    return replace(audit(leases, made, wall_time=NOW), nodes=nodes)


@pytest.mark.parametrize("width", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_hostile_names_are_shown_as_text(hostile, page, width):
    show(page, hostile, width=width)
    assert page.value_of("document.querySelectorAll('img').length") == 0
    assert page.value_of("document.title") == "PureLB audit: 1 error"
    assert HOSTILE in page.value_of("document.body.textContent")
    assert page.value_of(WIDTH) == width


def test_page_runs_only_its_own_style_and_script(small, page, tmp_path):
    path = tmp_path / "more.html"
    more = "<script>document.title = 'broken'</script><img src='https://example.com/x'>"
    path.write_text(small.read_text().replace("</main>", f"{more}</main>"))
    page.open(path)
    assert page.value_of("document.title") == "PureLB audit: 1 error"
    assert page.value_of("document.querySelector('.tools').hidden") is False
    forbidden = "".join(page.console_errors())
    assert "script-src" in forbidden
    assert "default-src 'none'" in forbidden


class TestALargeCluster:
    @pytest.mark.parametrize("width", [PHONE, DESKTOP], ids=["phone", "desktop"])
    def test_is_folded_and_a_search_opens_the_matches(self, large, page, width):
        show(page, large, width=width)
        assert page.value_of(SHOWN) == 1  # the finding
        type_words(page, "default/web-77")
        assert page.value_of(SHOWN) == 1
        assert page.value_of("count.textContent") == "1 of 701 rows"
        type_words(page, "")
        assert page.value_of(SHOWN) == 701
        page.value_of("wrong.click()")
        assert page.value_of(SHOWN) == 2  # the finding, and the address
        assert page.value_of(WIDTH) == width

    def test_is_complete_in_print(self, large, page):
        show(page, large)
        folded = page.value_of("document.querySelectorAll('details:not([open])').length")
        assert folded == 3
        assert page.pages_in_print() > 15
        assert page.value_of("document.querySelectorAll('details:not([open])').length") == 0


@pytest.mark.parametrize(
    ("what", "has"),
    [
        ("table", "it.querySelector('thead th[scope=col]')"),
        ("tbody tr", "it.querySelectorAll('th[scope=row]').length === 1"),
        ("span.ok, span.warning, span.error", "/[a-z]{2}/.test(it.innerText)"),
        ("input", "it.labels.length === 1"),
    ],
    ids=["headers-of-columns", "headers-of-rows", "words-beside-colours", "labels"],
)
def test_screen_readers_find(small, page, what, has):
    show(page, small)
    found = f"[...document.querySelectorAll('{what}')]"
    assert page.value_of(f"{found}.length > 0 && {found}.every(it => {has})") is True
