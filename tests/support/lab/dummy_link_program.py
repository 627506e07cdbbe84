# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A program for a kernel of its own: makes, uses and removes a dummy interface as the agent does.

Prints what it saw as one line of JSON; test_dummy_link judges it.
"""

from __future__ import annotations

import json
from ipaddress import ip_interface
from typing import Any

from purelb.core.node.plan import Put
from purelb_agent.node.netlink import Kernel

NAME = "kube-lb0"
ADDRESSES = ("10.100.0.7/32", "fd28:100::7/128")


def look(kernel: Kernel, name: str) -> dict[str, Any] | None:
    """What the kernel says of a link, and of its addresses but the link-local one."""
    found = [link for link in kernel.links() if link.name == name]
    if not found:
        return None
    (link,) = found
    addresses = [
        f"{held.address}/{held.prefixlen}"
        for held in kernel.addresses()
        if held.link == link.index and not held.address.is_link_local
    ]
    return {
        "index": link.index,
        "is_up": link.is_up,
        "alias": link.alias,
        "addresses": sorted(addresses),
    }


def main() -> None:
    """Go through the life of the interface."""
    kernel = Kernel()
    seen: dict[str, Any] = {"before": look(kernel, NAME)}
    kernel.add_dummy(NAME)
    seen["made"] = look(kernel, NAME)
    (link,) = (link for link in kernel.links() if link.name == NAME)
    for address in map(ip_interface, ADDRESSES):
        kernel.put(
            Put(
                link=link.index,
                address=address.ip,
                prefixlen=address.network.prefixlen,
                valid_lft=300,
                preferred_lft=300,
                no_prefix_route=False,
                no_dad=True,
                is_new=True,
            )
        )
    seen["used"] = look(kernel, NAME)
    kernel.add_dummy(NAME)
    seen["made again"] = look(kernel, NAME)
    kernel.add_dummy("lo")
    seen["somebody else's"] = look(kernel, "lo")
    kernel.remove_link(link)
    kernel.remove_link(link)
    seen["removed"] = look(kernel, NAME)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
