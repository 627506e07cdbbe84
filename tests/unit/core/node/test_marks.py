# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses are ours, and that no plan touches or doubles any other."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.model import InterfaceAddress, Link, PoolType, Reason
from purelb.core.names import ADDRESS_PROTOCOL, PROXY_INTERFACES
from purelb.core.node.decisions import decide_vips
from purelb.core.node.snapshot import shows_marks
from tests.support.core.snapshots import (
    DUMMY,
    ETH0,
    GROUP,
    NOW,
    OWN4,
    REMOTE_GROUP,
    VIP4,
    VIP6,
    on_dummy,
    on_eth0,
    planned,
    service,
    snapshot,
)

BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
ETH1 = Link(3, "eth1")
# IFA_PROTO of the kernel, of keepalived and of OVN-Kubernetes.
OTHERS = (3, 18, 85)


def has(vip, **more):
    """An address that no agent put there, by default just like one of an agent without marks."""
    return on_eth0(vip, **{"protocol": 0, **more})


def reason_of(vip, made):
    return decide_vips(made).by_address[vip].reason


def wanting(vip, *held, **more):
    return snapshot(service(addresses=[vip]), held=held, all_links=(ETH0, ETH1), **more)


@BOTH
class TestOnAKernelWithMarks:
    @pytest.mark.parametrize(
        "own",
        [
            pytest.param({"lifetime": None, "no_prefix_route": False}, id="permanent"),
            pytest.param({"lifetime": 3600, "no_prefix_route": False}, id="dhclient"),
            pytest.param({"lifetime": 3600}, id="NetworkManager"),
            pytest.param({"lifetime": None, "prefixlen": 30}, id="other mask"),
            pytest.param({"dad_failed": True}, id="in use elsewhere"),
            *(pytest.param({"protocol": n}, id=f"protocol {n}") for n in OTHERS),
        ],
    )
    def test_an_unmarked_address_is_neither_removed_nor_replaced(self, vip, own):
        nobodys = planned(snapshot(held=[has(vip, **own)]))
        assert (nobodys.removes, nobodys.puts) == ((), ())
        won = wanting(vip, has(vip, **own))
        assert (planned(won).removes, planned(won).puts) == ((), ())
        assert reason_of(vip, won) is Reason.FOREIGN_ADDRESS
        assert won.foreign == {vip: "eth0"}

    def test_an_address_on_another_interface_is_not_doubled(self, vip):
        won = wanting(vip, has(vip, lifetime=None), has(vip + 1, lifetime=None))
        elsewhere = replace(
            won, addresses=(*won.addresses[:-2], replace(won.addresses[-2], link=3))
        )
        assert planned(elsewhere).puts == ()
        assert elsewhere.foreign == {vip: "eth1"}

    def test_a_remote_address_that_the_node_has_is_not_doubled(self, vip):
        remote = service(addresses=[vip], pool_type=PoolType.REMOTE)
        dummy = {"dummy": DUMMY, "dummies": frozenset({DUMMY.index}), "groups": (REMOTE_GROUP,)}
        won = snapshot(remote, held=[has(vip, lifetime=None)], **dummy)
        assert planned(won).puts == ()
        assert reason_of(vip, won) is Reason.FOREIGN_ADDRESS

    @pytest.mark.parametrize("name", sorted(PROXY_INTERFACES))
    def test_the_copy_of_a_service_proxy_does_not_count(self, vip, name):
        copy = replace(has(vip, lifetime=None), link=4, prefixlen=vip.max_prefixlen)
        won = replace(wanting(vip, copy), all_links=(ETH0, Link(4, name)))
        assert [(p.link, p.address) for p in planned(won).puts] == [(ETH0.index, vip)]
        with_other = replace(wanting(vip, has(vip), copy), all_links=won.all_links)
        assert planned(with_other).puts == ()

    def test_ours_goes_when_others_add_the_same_with_another_mask(self, vip):
        ours, other = on_eth0(vip), has(vip, lifetime=None, prefixlen=30)
        made = planned(wanting(vip, ours, other))
        assert ([r.held for r in made.removes], made.puts) == ([ours], ())

    def test_an_address_that_lost_its_mark_is_put_again_when_it_has_ended(self, vip):
        """As after `ip addr change`, or of a killed agent without marks."""
        assert planned(wanting(vip, has(vip, lifetime=5))).puts == ()
        assert [p.is_new for p in planned(wanting(vip)).puts] == [True]

    def test_a_marked_address_is_always_ours(self, vip):
        odd = on_eth0(vip, lifetime=None, prefixlen=30, no_prefix_route=False)
        made = planned(snapshot(held=[odd], groups=()))
        assert [r.held for r in made.removes] == [odd]

    def test_an_unmarked_address_on_the_dummy_interface_gets_the_mark(self, vip):
        remote = service(addresses=[vip], pool_type=PoolType.REMOTE)
        dummy = {"dummy": DUMMY, "dummies": frozenset({DUMMY.index}), "groups": (REMOTE_GROUP,)}
        left = on_dummy(vip, protocol=0)
        (put,) = planned(snapshot(remote, held=[left], **dummy)).puts
        assert (put.link, put.is_new) == (DUMMY.index, False)
        old = planned(snapshot(remote, held=[left], keeps_marks=False, **dummy))
        assert (old.removes, old.puts) == ((), ())

    def test_on_the_dummy_interface_another_programs_address_stays(self, vip):
        other = replace(has(vip, lifetime=None, protocol=18), link=DUMMY.index)
        assert planned(snapshot(held=[other], dummies=frozenset({DUMMY.index}))).removes == ()


@BOTH
class TestOnAKernelWithoutMarks:
    def removes(self, held, **more):
        made = planned(snapshot(held=[held], keeps_marks=False, **more))
        return [remove.held for remove in made.removes]

    def test_an_address_as_an_agent_leaves_it_is_removed(self, vip):
        before = has(vip, prefixlen=24 if vip.version == 4 else 64)
        for left in (has(vip), before):
            assert self.removes(left) == [left]

    @pytest.mark.parametrize(
        "unlike",
        [
            {"lifetime": None},
            {"no_prefix_route": False},
            {"prefixlen": 30},
            {"protocol": 18},
        ],
        ids=lambda unlike: next(iter(unlike)),
    )
    def test_any_other_stays(self, vip, unlike):
        assert self.removes(has(vip, **unlike)) == []
        assert self.removes(has(vip), known=frozenset({vip})) == []
        assert self.removes(has(vip), groups=()) == []

    def test_what_this_process_put_is_removed_unless_it_became_permanent(self, vip):
        put = {"groups": (), "put": frozenset({(ETH0.index, vip)})}
        routed = has(vip, no_prefix_route=False)
        assert self.removes(routed, **put) == [routed]
        of_others = replace(routed, prefixlen=30)
        assert self.removes(of_others, **put) == []
        assert self.removes(has(vip, lifetime=None), **put) == []

    def test_what_an_agent_left_is_refreshed_by_the_winner(self, vip):
        (put,) = planned(wanting(vip, has(vip, lifetime=3), keeps_marks=False)).puts
        assert not put.is_new


def test_marks_are_shown_by_an_address_with_any_protocol():
    assert not shows_marks([OWN4, has(VIP4)])
    assert shows_marks([OWN4, InterfaceAddress(1, ip_address("::1"), 128, protocol=1)])


VIPS = st.sampled_from([VIP4, VIP6, GROUP.ranges[0].last, GROUP.ranges[1].last])
ADDRESSES = st.builds(
    lambda vip, link, lifetime, prefixlen, **more: replace(
        on_eth0(vip, lifetime=lifetime, prefixlen=prefixlen, **more), link=link
    ),
    VIPS,
    st.sampled_from([ETH0.index, ETH1.index, 4]),
    st.none() | st.floats(0, 4000),
    st.sampled_from([None, 30]),
    no_prefix_route=st.booleans(),
    dad_failed=st.booleans(),
    tentative=st.booleans(),
    protocol=st.sampled_from([0, ADDRESS_PROTOCOL, *OTHERS]),
)


@given(
    held=st.lists(ADDRESSES, max_size=6),
    serving=st.sets(VIPS),
    put=st.sets(st.tuples(st.sampled_from([ETH0.index, ETH1.index]), VIPS)),
    members=st.sets(st.sampled_from(["n1", "n2"])),
    leaving=st.booleans(),
)
def test_nothing_that_is_not_ours_is_removed_replaced_or_doubled(
    held, serving, put, members, leaving
):
    start = snapshot(
        service(addresses=serving),
        members=sorted(members),
        held=held,
        put=frozenset(put),
        all_links=(ETH0, ETH1, Link(4, "kube-ipvs0")),
        leaving=leaving,
    )
    made = planned(start)
    assert all(remove.held.protocol == ADDRESS_PROTOCOL for remove in made.removes)
    foreign = [h for h in start.addresses if h.protocol != ADDRESS_PROTOCOL]
    assert not {p.address for p in made.puts} & {h.address for h in foreign if h.link != 4}
    ours = {(h.link, h.address) for h in start.addresses} - {(h.link, h.address) for h in foreign}
    assert all((p.link, p.address) in ours for p in made.puts if not p.is_new)
    # What is new is on that interface no more when it is added, so EEXIST always means a stranger.
    kept = {(h.link, h.address) for h in start.addresses if h not in {r.held for r in made.removes}}
    assert not {(p.link, p.address) for p in made.puts if p.is_new} & kept
    assert all(p.valid_lft is not None and NOW + p.valid_lft <= NOW + 10 for p in made.puts)
