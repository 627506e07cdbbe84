# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The audit's page of a real cluster in a browser, also on a phone and in dark mode."""

from __future__ import annotations

import json

import pytest

from tests.support.lab.browser import DESKTOP, PHONE, WIDTH, browser, show
from tests.support.lab.cluster_queries import (
    VIPS_V4,
    VIPS_V6,
    addresses_of,
    eventually,
    lease_info,
)

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


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


@pytest.mark.thorough
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
        where = f"purelb_audit_folder={tmp_path}"
        for severity, succeeds in (("error", True), ("warning", False)):
            how = f"purelb_audit_fail_on={severity}"
            done = playbook("purelb.purelb.audit", "-e", where, "-e", how, check=False)
            assert (done.returncode == 0) == succeeds, done.stdout
            assert "warning leaseExpired: " in done.stdout
    finally:
        cluster.kill("n1", "lbnodeagent", "CONT")
    show(page, tmp_path / "purelb-audit.html")
    finding = page.value_of("document.querySelector('tr[data-mark=warning]').innerText")
    assert "leaseExpired" in finding
    assert "look at the lbnodeagent pod on n1" in finding
