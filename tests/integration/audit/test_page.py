# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The audit's page in a browser: on a desktop, on a phone, in dark mode and in print."""

from __future__ import annotations

import json
from ipaddress import ip_address, ip_network

import pytest

from purelb.core.audit import audit
from purelb.core.election.election import rank
from purelb.core.model import Announcement, Lease, PoolType, Service, ServiceKey
from tests.support.lab.browser import browser
from tests.support.lab.cluster_queries import (
    VIPS_V4,
    VIPS_V6,
    addresses_of,
    eventually,
    lease_info,
    run_ansible,
)

pytestmark = pytest.mark.timeout(180)
PHONE, DESKTOP = 390, 1200
NOW = 1_700_000_000.0
# Attacks by names and annotations.
HOSTILE = """<img src="https://example.com/x" onerror='document.title="broken"'>&amp;{{ 7 * 7 }}"""
SHOWN = "[...document.querySelectorAll('tbody tr')].filter(row => row.checkVisibility()).length"
WIDTH = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


def show(page, path, **how):
    """Open a page; assert that it loads nothing else and logs no errors."""
    page.open(path, **how)
    assert page.requests() == [path.as_uri()]
    assert page.console_errors() == []


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
"""


def write(folder, report):
    """Write the page of a generated audit."""
    (folder / "seen.json").write_text(json.dumps(audit.as_dict(report)))
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
    """Return an audit without findings, except that nobody announces the last address."""
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
    return audit.audit(leases, made, wall_time=NOW)


@pytest.fixture
def stray_group(cluster):
    """A group that is never used, as it is in another namespace than the allocator."""
    meta = {"name": "stray", "namespace": "default"}
    spec = {"remote": {"v4pool": {"pool": "192.0.2.0/28", "subnet": "192.0.2.0/24"}}}
    body = {"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": meta, "spec": spec}
    made = cluster.api.create(body)
    yield
    cluster.api.delete(cluster.api.path_of(made))


@pytest.mark.usefixtures("stray_group")
def test_page_of_a_cluster_shows_the_modules_result(
    cluster, playbook, make_service, page, tmp_path
):
    vips = addresses_of(cluster, make_service())
    eventually(
        lambda: not lease_info(cluster.kubeconfig)["findings"], "audit without findings", seconds=60
    )
    playbook("purelb.purelb.audit", "-e", f"purelb_audit_folder={tmp_path}")
    facts = json.loads((tmp_path / "purelb-audit.json").read_text())
    assert {row["range"] for row in facts["pools"]} == {VIPS_V4, VIPS_V6}
    winners = {vip["address"]: vip["winner"] for vip in facts["vips"]}

    for width in (DESKTOP, PHONE):
        for dark in (False, True):
            show(page, tmp_path / "purelb-audit.html", width=width, dark=dark)
            assert page.value_of(WIDTH) == width
            text = page.value_of("document.body.innerText")
            assert "nothing is wrong" in text
            assert all(node in text for node in cluster.nodes)
            assert facts["leader_locks"][0]["holder"] in text
            assert f"{len(cluster.nodes)} of {len(cluster.nodes)}" in text
            for vip in vips:
                rows = "[...document.querySelectorAll('tr')]"
                row = f"{rows}.find(row => row.textContent.startsWith({vip!r}))"
                assert winners[vip] in page.value_of(f"{row}.innerText")
            page.screenshot(tmp_path / f"{width}{'-dark' if dark else ''}.png")


def test_page_of_a_second_run_shows_a_dead_agent_with_its_remedy(
    cluster, playbook, make_service, page, tmp_path
):
    addresses_of(cluster, make_service())
    cluster.kill("n1", "lbnodeagent", "STOP")
    try:
        eventually(
            lambda: any(not lease["live"] for lease in lease_info(cluster.kubeconfig)["leases"]),
            "expired Lease",
            # It expires after up to 10 s, and each audit takes seconds on a busy machine.
            seconds=60,
        )
        playbook("purelb.purelb.audit", "-e", f"purelb_audit_folder={tmp_path}")
    finally:
        cluster.kill("n1", "lbnodeagent", "CONT")
    show(page, tmp_path / "purelb-audit.html")
    finding = page.value_of("document.querySelector('tr[data-mark=warning]').innerText")
    assert "leaseExpired" in finding
    assert "look at the lbnodeagent pod on n1" in finding


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
