# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Creates, uses and removes a dummy interface as the agent does; runs in a virtual machine.

Prints what it saw as one line of JSON, which test_dummy_link.py checks.
"""

from __future__ import annotations

import json
from ipaddress import ip_interface
from typing import Any

from purelb.core.node.plan import Put
from purelb_agent.node.netlink import Kernel

NAME = "kube-lb0"
ADDRESSES = ("10.100.0.7/32", "fd28:100::7/128")


def observe(kernel: Kernel, name: str) -> dict[str, Any] | None:
    """Return a link and its addresses except the link-local one, or None."""
    found = [link for link in kernel.links() if link.name == name]
    if not found:
        return None
    (link,) = found
    addresses = [
        f"{entry.address}/{entry.prefixlen}"
        for entry in kernel.addresses()
        if entry.link == link.index and not entry.address.is_link_local
    ]
    return {
        "index": link.index,
        "is_up": link.is_up,
        "alias": link.alias,
        "addresses": sorted(addresses),
    }


def main() -> None:
    """Print the states of the interface from creation to removal."""
    kernel = Kernel()
    seen: dict[str, Any] = {"before": observe(kernel, NAME)}
    kernel.add_dummy(NAME)
    seen["made"] = observe(kernel, NAME)
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
    seen["used"] = observe(kernel, NAME)
    kernel.add_dummy(NAME)
    seen["made again"] = observe(kernel, NAME)
    kernel.add_dummy("lo")
    seen["another program's"] = observe(kernel, "lo")
    kernel.remove_link(link)
    kernel.remove_link(link)
    seen["removed"] = observe(kernel, NAME)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
