# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from purelb.core.names import ADDRESS_PROTOCOL
from purelb.core.node.snapshot import vips_on
from tests.support.core.snapshots import DUMMY, OWN4, OWN6, VIP4, VIP6, on_eth0, service, snapshot


def test_vips_of_the_node_are_those_that_agents_put_on_real_interfaces():
    ours = [replace(own, address=vip, protocol=ADDRESS_PROTOCOL)
            for own, vip in ((OWN4, VIP4), (OWN6, VIP6))]  # fmt: skip
    on_dummy = [replace(held, link=DUMMY.index) for held in ours]
    node = snapshot(service(), held=ours, dummies=frozenset({DUMMY.index}))
    assert vips_on((OWN4, OWN6, *ours), node) == {VIP4, VIP6}
    assert vips_on((OWN4, OWN6, *on_dummy), node) == set()


class TestDeprecatedSubnets:
    def of(self, *addresses):
        return snapshot(addresses=addresses).deprecated

    def test_are_those_with_deprecated_own_addresses_only(self):
        old4, old6 = replace(OWN4, deprecated=True), replace(OWN6, deprecated=True)
        assert self.of(old4, old6) == {OWN4.network, OWN6.network}
        assert self.of(OWN4, old6) == {OWN6.network}

    def test_have_no_preferred_address(self):
        other = replace(OWN6, address=OWN6.address + 9, deprecated=True)
        assert self.of(OWN4, OWN6, other) == frozenset()

    def test_are_not_those_of_vips(self):
        vip = on_eth0(VIP6, deprecated=True, protocol=ADDRESS_PROTOCOL)
        assert self.of(OWN4, OWN6, vip) == frozenset()
