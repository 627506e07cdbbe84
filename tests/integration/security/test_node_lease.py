# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which Leases a node agent may write, and the messages of the refusals."""

from __future__ import annotations

import pytest

from purelb.core import names
from purelb.core.api import codec
from tests.support.lab.accounts import client
from tests.support.lab.dry_runs import (
    LEASES,
    NAMESPACE,
    SERVICES,
    V4,
    Account,
    assert_refused,
    lease,
    with_owners,
)

WRONG = "purelb_install_node_subnets (192.0.2.0/24, 2001:db8::/32, 198.51.100.0/24)"


def said(annotation, text):
    return lambda body, _pods: body["metadata"]["annotations"].update({annotation: text})


pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]


class TestLeaseOfANode:
    """The agent of n1 and Leases."""

    def test_own_lease_may_be_created_renewed_and_deleted(self, agent, pods):
        own = f"{LEASES}/purelb-node-n1"
        held = codec.lease_of(lease(pods["n1"]))
        agent.send("PUT", own, lease(pods["n1"], renew_time=1_700_000_005.0, outage=held.outage))
        agent.send("DELETE", own)

    def test_missing_lease_may_be_created(self, lab, agent, pods):
        lab.api.delete(f"{LEASES}/purelb-node-n1")
        agent.send("POST", LEASES, lease(pods["n1"]))
        lab.api.create(lease(pods["n1"]))

    def test_lease_of_an_earlier_pod_may_be_taken_over(self, lab, pods, agent):
        successor = Account(client(lab, NAMESPACE, "lbnodeagent", pods["next"]))
        successor.send("PUT", f"{LEASES}/purelb-node-n1", lease(pods["next"]))

    def test_lease_may_be_released_as_its_agent_leaves(self, pods, agent):
        released = lease(pods["n1"])
        released["spec"]["holderIdentity"] = ""
        agent.send("PUT", f"{LEASES}/purelb-node-n1", released)
        agent.send("PUT", f"{LEASES}/purelb-node-n1", lease(pods["n1"]))

    def test_deletion_by_another_pod_of_the_node_is_refused(self, lab, pods, agent):
        successor = Account(client(lab, NAMESPACE, "lbnodeagent", pods["next"]))
        words = "must carry the UID of the Pod"
        assert_refused(words, "lbnodeagent-leases", successor, "DELETE", f"{LEASES}/purelb-node-n1")

    @pytest.mark.parametrize(
        ("method", "name"),
        [
            ("POST", "purelb-node-n3"),
            ("POST", "purelb-node-n11"),
            ("POST", "purelb-allocator"),
            ("POST", "anything"),
            ("PUT", "purelb-node-n2"),
            ("DELETE", "purelb-node-n2"),
        ],
    )
    def test_lease_of_another_name_is_refused(self, agent, pods, method, name):
        body = lease(pods["n1"])
        body["metadata"]["name"] = name
        path = LEASES if method == "POST" else f"{LEASES}/{name}"
        words = f"lbnodeagent on node n1 may write no Lease but {NAMESPACE}/purelb-node-n1"
        assert_refused(
            words, "lbnodeagent-leases", agent, method, path, body if method != "DELETE" else None
        )

    def test_lease_in_another_namespace_is_refused(self, agent, pods):
        body = lease(pods["n1"])
        body["metadata"]["namespace"] = "kube-node-lease"
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        assert_refused("may write no Lease but", "lbnodeagent-leases", agent, "POST", path, body)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda b, _p: b["spec"].update(holderIdentity="n2"), "holderIdentity"),
            (lambda b, _p: b["spec"].pop("holderIdentity"), "must be the node n1"),
            (lambda b, _p: b["metadata"].pop("ownerReferences"), "one owner, the Node n1"),
            (
                lambda b, _p: b.update(with_owners(b, {"kind": "Node", "name": "n2"})),
                "one owner, the Node n1",
            ),
            (
                lambda b, _p: b.update(with_owners(b, {"kind": "Pod", "name": "n1"})),
                "one owner, the Node n1",
            ),
            (
                lambda b, _p: b.update(
                    with_owners(b, {"kind": "Node", "name": "n1"}, {"kind": "Node", "name": "n2"})
                ),
                "one owner, the Node n1",
            ),
            (
                lambda b, p: b["metadata"]["annotations"].update(
                    {names.INSTANCE_ANNOTATION: p["n2"]["metadata"]["uid"]}
                ),
                "must carry the UID of the Pod",
            ),
            (lambda b, _p: b["metadata"].pop("annotations"), "must carry the UID of the Pod"),
            (
                lambda b, _p: b["metadata"]["ownerReferences"][0].update(blockOwnerDeletion=True),
                "not block its deletion",
            ),
            (lambda b, _p: b["metadata"].update(finalizers=["a.b/c"]), "no finalizers"),
            (lambda b, _p: b["spec"].update(leaseDurationSeconds=61), "may last 60 seconds"),
            (said(names.MAIL_ANNOTATION, "x" * 65_537), "may have 65536 characters"),
            (said(names.SUBNETS_ANNOTATION, "0.0.0.0/0"), f"{WRONG}: 0.0.0.0/0"),
            (said(names.SUBNETS_ANNOTATION, "192.0.2.0/24,128.0.0.0/7"), f"{WRONG}: 128.0.0.0/7"),
            (said(names.SUBNETS_ANNOTATION, "2001:db8::/64,2001::/15"), f"{WRONG}: 2001::/15"),
            (said(names.SUBNETS_ANNOTATION, "203.0.113.0/24"), f"{WRONG}: 203.0.113.0/24"),
            (said(names.SUBNETS_ANNOTATION, "2001:db9::/64"), f"{WRONG}: 2001:db9::/64"),
            (said(names.SUBNETS_ANNOTATION, "x"), f"{WRONG}: x"),
            (said(names.SUBNETS_ANNOTATION, "192.0.2.0/24," * 257), "may list 256 subnets"),
        ],
        ids=[
            "other holder",
            "no holder",
            "no owner",
            "other owner",
            "other kind of owner",
            "two owners",
            "other instance",
            "no instance",
            "blocking owner",
            "finalizer",
            "duration",
            "long text",
            "all of IPv4",
            "wide IPv4",
            "wide IPv6",
            "other IPv4",
            "other IPv6",
            "no subnet",
            "too many subnets",
        ],
    )
    def test_what_a_lease_may_not_say_is_refused(self, agent, pods, change, words):
        body = lease(pods["n1"])
        change(body, pods)
        assert_refused(words, "lbnodeagent-leases", agent, "PUT", f"{LEASES}/purelb-node-n1", body)


def test_token_without_a_node_is_refused_with_the_reason(lab, agent, pods):
    anyone = Account(client(lab, NAMESPACE, "lbnodeagent"))
    words = "names no node (authentication.kubernetes.io/node-name)"
    own = f"{LEASES}/purelb-node-n1"
    assert_refused(words, "lbnodeagent-leases", anyone, "PUT", own, lease(pods["n1"]))
    patch = {"metadata": {"annotations": {V4: None}}}
    assert_refused(words, "lbnodeagent-services", anyone, "PATCH", f"{SERVICES}/announced", patch)
