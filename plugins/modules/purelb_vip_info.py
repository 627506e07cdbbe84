#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_vip_info
short_description: Show the addresses of PureLB on the interfaces of a node
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Runs on a node and returns the addresses in its kernel. It reads neither the cluster nor the agent, and needs no
    Python package, no command and no privileges, so it works even if these do not.
  - Register the result and pass it to M(purelb.purelb.purelb_verify), which knows the expected state.
options:
  vips:
    description:
      - Addresses to look for, such as those that M(purelb.purelb.purelb_lease_info) returns.
      - One of O(vips) and O(pools) is required; an address is returned if either contains it.
    type: list
    elements: str
  pools:
    description:
      - Ranges to look for, each a CIDR or C(first-last), as in a ServiceGroup. This also finds addresses without a
        Service.
    type: list
    elements: str
  interfaces:
    description:
      - Names of the interfaces to read; C(*) and C(?) are wildcards.
      - By default all with a default route, one of the requested addresses, or any address that is neither link-local
        nor loopback; except C(kube-ipvs0) and C(kube-dummy-if), to which kube-proxy in IPVS mode and kube-router add the
        addresses of all Services.
    type: list
    elements: str
extends_documentation_fragment:
  - purelb.purelb.reading
seealso:
  - module: purelb.purelb.purelb_verify
  - module: purelb.purelb.purelb_neighbor_info
notes:
  - Needs Linux, and Python 3.9 or later on the node.
"""

EXAMPLES = r"""
- name: Show the addresses of a pool
  hosts: nodes
  gather_facts: false
  tasks:
    - name: Read the addresses of a pool
      purelb.purelb.purelb_vip_info:
        pools: [192.168.1.240-192.168.1.250]
      register: seen

    - name: Fail if an address has no limited lifetime
      ansible.builtin.assert:
        that: seen.vips | selectattr('valid_lifetime', 'none') | length == 0
"""

RETURN = r"""
hostname:
  description: Host name in the kernel.
  type: str
  returned: success
  sample: worker-1
time:
  description: Time of the reading, in seconds since the epoch, by the clock of the node.
  type: float
  returned: success
  sample: 1763730000.25
vips:
  description: The requested addresses on this node, once for each interface.
  returned: success
  type: list
  elements: dict
  contains:
    address:
      description: The address.
      type: str
      returned: success
      sample: 192.168.1.240
    family:
      description: C(IPv4) or C(IPv6).
      type: str
      returned: success
      sample: IPv4
    interface:
      description: The interface that has it.
      type: str
      returned: success
      sample: eth0
    prefix_length:
      description: Length of its prefix.
      type: int
      returned: success
      sample: 24
    valid_lifetime:
      description: Seconds until the kernel removes the address, or null if unlimited.
      type: int
      returned: success
      sample: 8
    preferred_lifetime:
      description: Seconds for which it is a preferred source address, or null if unlimited.
      type: int
      returned: success
      sample: 8
    flags:
      description: Flags that are set, of C(nodad), C(dadfailed), C(deprecated), C(tentative), C(permanent) and
        C(noprefixroute).
      type: list
      elements: str
      returned: success
      sample: [noprefixroute]
    protocol:
      description: Who put it there, as a number (IFA_PROTO); 112, 113 or 114 for an agent of PureLB, 0 if the kernel does
        not say. With 113 it may stay for up to 40 s after the right of its node has ended, and is silent then.
      type: int
      returned: success
      sample: 112
    mac:
      description: MAC address of the interface.
      type: str
      returned: success
      sample: 02:00:00:00:00:01
    up:
      description: Whether the interface is administratively up.
      type: bool
      returned: success
      sample: true
    state:
      description: Operational state of the interface in the kernel, such as C(up), C(down) and C(lowerlayerdown). A dummy
        interface is C(unknown).
      type: str
      returned: success
      sample: up
proxies:
  description: The interfaces to which kube-proxy or kube-router adds the addresses of all Services, if there are any.
  type: list
  elements: str
  returned: success
  sample: [kube-ipvs0]
interfaces:
  description: The interfaces that were read.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The interface.
      type: str
      returned: success
      sample: eth0
    index:
      description: Its number.
      type: int
      returned: success
      sample: 2
    mac:
      description: Its MAC address.
      type: str
      returned: success
      sample: 02:00:00:00:00:01
    up:
      description: As in RV(vips[].up).
      type: bool
      returned: success
      sample: true
    state:
      description: As in RV(vips[].state).
      type: str
      returned: success
      sample: up
    default_metrics:
      description: Lowest metric of the default routes through it, by family.
      type: dict
      returned: success
      sample: {IPv4: 100}
    arp_ignore:
      description: Setting of this name in force on it, or null without IPv4; with 0 the node answers ARP for addresses of
        its other interfaces there.
      type: int
      returned: success
      sample: 0
    rp_filter:
      description: Setting of this name in force on it, or null without IPv4; with 1 (strict) the kernel drops what it
        would not answer through the same interface.
      type: int
      returned: success
      sample: 2
    subnets:
      description: Its subnets, from its addresses other than the requested ones and those that an agent put there, and from
        RV(interfaces[].on_link) where such an address has the mask of one host.
      type: list
      elements: str
      returned: success
      sample: [192.168.1.0/24]
    on_link:
      description: Subnets whose hosts are neighbors on it, by its routes without a gateway.
      type: list
      elements: str
      returned: success
      sample: [192.0.2.0/26]
    addresses:
      description: All its addresses.
      type: list
      elements: dict
      returned: success
      contains:
        address:
          description: The address.
          type: str
          returned: success
          sample: 192.168.1.11
        family:
          description: As in RV(vips[].family).
          type: str
          returned: success
          sample: IPv4
        prefix_length:
          description: As in RV(vips[].prefix_length).
          type: int
          returned: success
          sample: 24
        valid_lifetime:
          description: As in RV(vips[].valid_lifetime).
          type: int
          returned: success
          sample: null
        preferred_lifetime:
          description: As in RV(vips[].preferred_lifetime).
          type: int
          returned: success
          sample: null
        flags:
          description: As in RV(vips[].flags).
          type: list
          elements: str
          returned: success
          sample: [permanent]
        protocol:
          description: As in RV(vips[].protocol).
          type: int
          returned: success
          sample: 0
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.audit import vip_info
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import finish


def main() -> None:
    addresses = {"type": "list", "elements": "str"}
    module = AnsibleModule(
        argument_spec={
            "vips": addresses,
            "pools": addresses,
            "interfaces": addresses,
        },
        required_one_of=[["vips", "pools"]],
        supports_check_mode=True,
    )
    finish.finish(module, lambda: vip_info.vip_info(module.params))


if __name__ == "__main__":
    main()
