# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from purelb.core.names import ADDRESS_PROTOCOL
from purelb.core.node.snapshot import vips_on
from tests.support.core.snapshots import DUMMY, OWN4, OWN6, VIP4, VIP6, service, snapshot


def test_vips_of_the_node_are_those_that_agents_put_on_real_interfaces():
    ours = [replace(own, address=vip, protocol=ADDRESS_PROTOCOL)
            for own, vip in ((OWN4, VIP4), (OWN6, VIP6))]  # fmt: skip
    on_dummy = [replace(held, link=DUMMY.index) for held in ours]
    node = snapshot(service(), held=ours, dummies=frozenset({DUMMY.index}))
    assert vips_on((OWN4, OWN6, *ours), node) == {VIP4, VIP6}
    assert vips_on((OWN4, OWN6, *on_dummy), node) == set()
