# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The API refuses the agents' requests, or a program corrupts their Leases.

Each test checks both families and prints its figures.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from labkit.topology import API_PORT
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import CRASH, GRACEFUL, LEASES, Logs, agent_pod, eventually

pytestmark = [pytest.mark.timeout(150), pytest.mark.safety]
# Longer than a Lease lasts without renewal.
REFUSING = 12.0
FLOW = "flowcontrol.apiserver.k8s.io/v1"
ADMISSION = "admissionregistration.k8s.io/v1"


def no_seats():
    """Return objects that give the agents no share of the API server, which answers 429."""
    limited = {
        "nominalConcurrencyShares": 0,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    account = {"name": "lbnodeagent", "namespace": "purelb-system"}
    everything = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
        "resourceRules": [
            {
                "verbs": ["*"],
                "apiGroups": ["*"],
                "resources": ["*"],
                "clusterScope": True,
                "namespaces": ["*"],
            }
        ],
    }
    return [
        {
            "apiVersion": FLOW,
            "kind": "PriorityLevelConfiguration",
            "metadata": {"name": "nothing"},
            "spec": {"type": "Limited", "limited": limited},
        },
        {
            "apiVersion": FLOW,
            "kind": "FlowSchema",
            "metadata": {"name": "nothing"},
            "spec": {
                "priorityLevelConfiguration": {"name": "nothing"},
                "matchingPrecedence": 100,
                "rules": [everything],
            },
        },
    ]


def broken_webhook():
    """Return a webhook that fails all writes of the agents' Leases with status 500."""
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["leases"],
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": "purelb-system"}}
    webhook = {
        "name": "nothing.example.com",
        "rules": [rule],
        "namespaceSelector": here,
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return [
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "nothing"},
            "webhooks": [webhook],
        }
    ]


@contextmanager
def applied(cluster, things):
    for thing in things:
        cluster.api.apply(thing)
    try:
        yield
    finally:
        for thing in reversed(things):
            cluster.api.delete(cluster.api.path_of(thing))


@contextmanager
def seat_taken(cluster):
    """Occupy the one seat that even a priority level without a share has, as an agent.

    A list with a resource version of the future waits for 3 s; then the next one follows.
    """
    pki = cluster.at.run / "pki"
    identity = ["--cacert", pki / "ca.crt", "--cert", pki / "admin.crt", "--key", pki / "admin.key"]
    agent = ["-H", "Impersonate-User: system:serviceaccount:purelb-system:lbnodeagent"]
    newer = "resourceVersionMatch=NotOlderThan&resourceVersion=9999999[10-99]"
    url = f"https://127.0.0.1:{API_PORT}{LEASES}?{newer}"
    curl = ["curl", "-s", *map(str, identity), *agent, url]
    lists = cluster.popen_in("control", curl, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        lists.kill()
        lists.wait()


@contextmanager
def following(cluster):
    """Record the agents' writes; the list is complete at the end."""
    logs, lines = Logs(cluster), []
    logs.news()
    try:
        yield lines
    finally:
        lines += logs.news()
        logs.close()


def at_home(holders, holder_by_vip):
    return holders.now == {vip: {node} for vip, node in holder_by_vip.items()}


def renewals(cluster):
    """Return the time of each node's last renewal."""
    leases = cluster.api.items(LEASES, labelSelector="app.kubernetes.io/component=lbnodeagent")
    return {lease["spec"]["holderIdentity"]: lease["spec"]["renewTime"] for lease in leases}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("things", "said"),
    [(no_seats(), "429"), (broken_webhook(), "failed calling webhook")],
    ids=["429", "500"],
)
def test_addresses_stay_while_the_api_refuses_every_agent(
    cluster, holder_by_vip, things, said, figure
):
    with record_holders(cluster, *holder_by_vip) as holders:
        with following(cluster) as lines, applied(cluster, things), seat_taken(cluster):
            time.sleep(REFUSING)
            before = renewals(cluster)
        removed = time.monotonic()
        eventually(
            lambda: all(before[n] != moment for n, moment in renewals(cluster).items()),
            "renewal by each node",
            seconds=CRASH,
        )
        recovery = time.monotonic() - removed
        time.sleep(1)
    refused = {line.partition("/")[0] for line in lines if said in line}
    figure(f"each node renewed its Lease {recovery:.2f} s after the last refusal")
    assert refused == set(cluster.nodes)
    # No node could renew, so no node could take over.
    assert {vip: holders.sequence(vip) for vip in holder_by_vip} == {
        v: [{n}] for v, n in holder_by_vip.items()
    }
    assert recovery < GRACEFUL


class TokenFile:
    """The token file that the kubelet projects into the agent's pod on a node."""

    def __init__(self, cluster, node):
        pod = agent_pod(cluster, node)
        kubelet = cluster.kill(node, "kubelet", "STOP")  # or it would restore the file
        root = Path(f"/proc/{kubelet}/root/var/lib/kubelet/pods/{pod['metadata']['uid']}")
        (self._file,) = root.glob("volumes/kubernetes.io~projected/*/token")
        self._good = self._file.read_text()
        self._cluster, self._node, self._pod = cluster, node, pod

    def spoil(self):
        self._file.write_text("not a token")

    def renew(self):
        """Write a token that the API server has just issued for this pod."""
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": self._pod["metadata"]["name"],
            "uid": self._pod["metadata"]["uid"],
        }
        issued = self._cluster.api.call(
            "POST",
            "/api/v1/namespaces/purelb-system/serviceaccounts/lbnodeagent/token",
            {"spec": {"expirationSeconds": 3600, "boundObjectRef": reference}},
        )
        self._file.write_text(issued["status"]["token"])

    def restore(self):
        self._file.write_text(self._good)
        self._cluster.kill(self._node, "kubelet", "CONT")


@contextmanager
def token_of_agent(cluster, node):
    file = TokenFile(cluster, node)
    try:
        yield file
    finally:
        file.restore()


def test_node_with_an_invalid_token_is_replaced_and_returns_with_a_new_one(
    cluster, holder_by_vip, figure
):
    nodes = list(holder_by_vip.values())
    refused = max(cluster.nodes, key=nodes.count)
    with (
        following(cluster) as lines,
        record_holders(cluster, *holder_by_vip) as holders,
        token_of_agent(cluster, refused) as token,
    ):
        start = time.monotonic()
        token.spoil()
        eventually(
            lambda: all(held and refused not in held for held in holders.now.values()),
            "takeover",
            seconds=CRASH,
        )
        taken = time.monotonic() - start
        fenced = max(holders.seconds_doubled(vip) for vip in holder_by_vip)
        token.renew()
        renewed = time.monotonic()
        eventually(lambda: at_home(holders, holder_by_vip), "return", seconds=30)
        returned = time.monotonic() - renewed
        time.sleep(1)
        assert at_home(holders, holder_by_vip)
    doubled = max(holders.longest_doubled(vip) for vip in holder_by_vip)
    figure(
        f"taken over after {taken:.2f} s, returned {returned:.2f} s after the new token, "
        f"on two {fenced:.2f} s and {doubled:.2f} s"
    )
    assert {line.partition("/")[0] for line in lines if "Unauthorized" in line} == {refused}
    assert fenced == 0
    assert doubled < 1
    assert returned < GRACEFUL


def spoil(cluster, path):
    """Overwrite a Lease as a wrong program would."""
    cluster.api.merge_patch(
        path,
        {
            "metadata": {"annotations": {"purelb.io/subnets": ""}},
            "spec": {
                "holderIdentity": "another-program",
                "renewTime": "2020-01-01T00:00:00.000000Z",
            },
        },
    )


def lasting(lease):
    """The annotations but the epoch: another one begins when the Lease was deleted."""
    notes = lease["metadata"]["annotations"]
    return {name: text for name, text in notes.items() if name != "purelb.io/epoch"}


@pytest.mark.thorough
@pytest.mark.parametrize("harm", ["deleted", "overwritten"])
def test_corrupted_lease_is_repaired_immediately(cluster, holder_by_vip, harm, figure):
    nodes = list(holder_by_vip.values())
    owner = max(cluster.nodes, key=nodes.count)
    path = f"{LEASES}/purelb-node-{owner}"
    whole = cluster.api.get(path)

    def is_whole():
        if not cluster.api.exists(path):
            return False
        now = cluster.api.get(path)
        return (now["spec"]["holderIdentity"], lasting(now)) == (owner, lasting(whole))

    with record_holders(cluster, *holder_by_vip) as holders:
        start = time.monotonic()
        if harm == "deleted":
            cluster.api.delete(path)
        else:
            spoil(cluster, path)
        eventually(is_whole, "Lease as it was", seconds=10)
        right = time.monotonic() - start
        eventually(lambda: at_home(holders, holder_by_vip), "return", seconds=10)
        returned = time.monotonic() - start
        time.sleep(1)
        assert at_home(holders, holder_by_vip)
    unheld = max(holders.longest_unheld(vip) for vip in holder_by_vip)
    doubled = max(holders.longest_doubled(vip) for vip in holder_by_vip)
    figure(
        f"put right after {right:.2f} s, addresses back after {returned:.2f} s, on none "
        f"{unheld:.2f} s, on two {doubled:.2f} s"
    )
    assert right < 3
    assert returned < 3
    assert doubled < 1
