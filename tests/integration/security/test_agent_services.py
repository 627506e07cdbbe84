# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a node agent may write to Services, and the messages of the refusals."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from labkit.api import ApiError
from purelb.core.api import codec
from purelb.core.model import Announcement
from purelb.core.node.annotations import format_announcing, merge_announcing
from tests.support.lab.dry_runs import ENTRIES, SERVICES, V4, V6, assert_refused, with_owners

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]


def merged(annotation, *own, live=("n1", "n2"), alone=True):
    """Return the annotation that the agent of n1 writes when it has these addresses."""
    entries = merge_announcing(
        codec.parse_announcements(ENTRIES[annotation]),
        [Announcement("n1", "eth0", ip_address(text)) for text in own],
        node="n1",
        live_nodes=frozenset(live),
        alone=alone,
    )
    return format_announcing(entries) or None


NEEDED = {
    "v4 kept, v6 lost": {V4: merged(V4, "192.0.2.1"), V6: merged(V6)},
    "v6 kept, v4 lost": {V4: merged(V4), V6: merged(V6, "2001:db8::1")},
    "v4 gained": {V4: merged(V4, "192.0.2.1", "192.0.2.9")},
    "v6 gained": {V6: merged(V6, "2001:db8::1", "2001:db8::9")},
    "v4 gained from another": {V4: merged(V4, "192.0.2.2")},
    "v6 gained from another": {V6: merged(V6, "2001:db8::2")},
    "v4 gained next to others": {V4: merged(V4, "192.0.2.2", alone=False)},
    "v6 gained next to others": {V6: merged(V6, "2001:db8::2", alone=False)},
    "entries of a gone node": {
        V4: merged(V4, "192.0.2.1", live=["n1"]),
        V6: merged(V6, "2001:db8::1", live=["n1"]),
    },
    "all lost": {V4: merged(V4, live=[]), V6: merged(V6, live=[])},
    "nothing": {},
}
FORGED = {
    "v4 of another node": {V4: f"{ENTRIES[V4]} n3,eth0,192.0.2.3"},
    "v6 of another node": {V6: f"{ENTRIES[V6]} n3,eth0,2001:db8::3"},
    "v4 of another node changed": {V4: ENTRIES[V4].replace("n2,eth0", "n2,eth1")},
    "v6 of another node changed": {V6: ENTRIES[V6].replace("n2,eth0", "n2,eth1")},
    "another node's alone": {V4: "n2,eth0,192.0.2.1"},
    "v4 as v6": {V6: f"{ENTRIES[V6]} n2,eth0,192.0.2.2"},
    "a node whose name begins so": {V4: f"{ENTRIES[V4]} n11,eth0,192.0.2.3"},
    "behind a tab": {V4: f"{ENTRIES[V4]}\tn3,eth0,192.0.2.3"},
    "behind a space of another kind": {V4: "n1,eth0,192.0.2.1\u00a0n3,eth0,192.0.2.3"},
    "no node": {V4: f"{ENTRIES[V4]} ,eth0,192.0.2.3"},
}


class TestServiceAndTheAgent:
    """The agent of n1 and Services."""

    @pytest.mark.parametrize("annotations", NEEDED.values(), ids=NEEDED)
    def test_regular_writes_of_an_agent_pass(self, agent, annotations):
        agent.annotate(f"{SERVICES}/entries", **annotations)

    @pytest.mark.parametrize("annotations", FORGED.values(), ids=FORGED)
    def test_entry_of_another_node_is_refused(self, agent, annotations):
        patch = {"metadata": {"annotations": annotations}}
        words = "lbnodeagent on node n1 may add no entries but its own"
        assert_refused(words, "lbnodeagent-services", agent, "PATCH", f"{SERVICES}/entries", patch)

    @pytest.mark.parametrize(
        ("patch", "words"),
        [
            ({"metadata": {"annotations": {"a.b/c": "1"}}}, "this annotation of a Service: a.b/c"),
            ({"metadata": {"annotations": {"example.com/mine": None}}}, "example.com/mine"),
            ({"metadata": {"annotations": {"example.com/mine": "2"}}}, "example.com/mine"),
            ({"metadata": {"annotations": {"purelb.io/pool-type": "remote"}}}, "pool-type"),
            ({"metadata": {"labels": {"a": "b"}}}, "this part of a Service: labels"),
            ({"metadata": {"finalizers": ["a.b/c"]}}, "finalizers"),
            (
                with_owners({"metadata": {}}, {"kind": "Node", "name": "n1"}),
                "this part of a Service: ownerReferences",
            ),
            ({"spec": {"externalIPs": ["192.0.2.1"]}}, "this part of a Service: externalIPs"),
            ({"spec": {"externalIPs": ["2001:db8::1"]}}, "externalIPs"),
            ({"spec": {"selector": {"app": "other"}}}, "selector"),
            ({"spec": {"externalTrafficPolicy": "Local"}}, "externalTrafficPolicy"),
            ({"spec": {"ports": [{"port": 81}]}}, "ports"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_other_changes_of_a_service_are_refused(self, agent, patch, words):
        assert_refused(
            words, "lbnodeagent-services", agent, "PATCH", f"{SERVICES}/announced", patch
        )

    @pytest.mark.parametrize(
        "text",
        [
            " ".join(f"n1,eth0,192.0.2.{number}" for number in range(65)),
            f"n1,eth0,{'x' * 512}",
            f"n1,eth0,192.0.2.1{' ' * 500}",
            f"n1,eth0,192.0.2.1 {chr(0x2028) * 500}",
        ],
        ids=["many", "long", "spaces", "other separators"],
    )
    def test_more_text_than_an_agent_needs_is_refused(self, agent, text):
        """It would leave no room for what others write."""
        patch = {"metadata": {"annotations": {V4: f"{ENTRIES[V4]} {text}"}}}
        words = "a node may have 64 entries of 512 characters"
        assert_refused(words, "lbnodeagent-services", agent, "PATCH", f"{SERVICES}/entries", patch)

    @pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"], ids=["v4", "v6"])
    @pytest.mark.parametrize("annotations", [{}, {V4: None}], ids=["alone", "with entries"])
    def test_change_of_the_status_is_refused(self, agent, address, annotations):
        status = codec.ingress_status([ip_address(address)])
        patch = {"metadata": {"annotations": annotations}, "status": status}
        words = "lbnodeagent may not change the status of a Service"
        path = f"{SERVICES}/announced/status"
        assert_refused(words, "lbnodeagent-services", agent, "PATCH", path, patch)

    @pytest.mark.parametrize(
        ("annotation", "address"), [(V4, "192.0.2.{}"), (V6, "2001:db8::{}")], ids=["v4", "v6"]
    )
    @pytest.mark.parametrize("twice", ["", " n1999,eth0,x"], ids=["each once", "one twice"])
    def test_policy_stays_within_its_cost_limit_for_many_nodes(
        self, lab, agent, annotation, address, twice
    ):
        count = 3000 if not twice else 500
        others = [f"n{i},kube-lb0,{address.format(1)}" for i in range(2, count)]
        path = f"{SERVICES}/entries"
        text = f"{' '.join(others)}{twice and ' ' + others[-1]}"
        lab.api.merge_patch(path, {"metadata": {"annotations": {annotation: text}}})
        try:
            mine = f"n1,kube-lb0,{address.format(1)}"
            agent.annotate(path, **{annotation: f"{mine} {text}"})
            agent.annotate(path, **{annotation: f"{mine} {' '.join(others[1:])}"})
            forged = {"metadata": {"annotations": {annotation: f"{text} n0,eth0,x"}}}
            # A larger object may exceed the cost budget.
            with pytest.raises(ApiError, match="'lbnodeagent-services"):
                agent.patch(path, forged)
        finally:
            lab.api.merge_patch(path, {"metadata": {"annotations": ENTRIES}})
