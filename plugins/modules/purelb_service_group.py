#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_service_group
short_description: Define a pool of addresses for Services of type LoadBalancer
version_added: 0.1.0
author:
  - PureLB for Ansible authors (@purelb)
description:
  - Creates, changes or removes a ServiceGroup, with an option for each field of its C(spec).
  - The task says the whole C(spec). What an earlier task of this collection set and this one leaves out is removed;
    for what nobody sets the default of the definition holds.
  - The ranges are checked with the rules of the allocator before the API server is asked, so that C(--check) in front
    of a cluster and the error of a task name the option and what to write.
  - Warns of what is allowed and hardly meant so, such as addresses that another ServiceGroup has, too.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
  - purelb.purelb.presence
  - purelb.purelb.metadata
  - purelb.purelb.writing
options:
  local:
    description:
      - Addresses of the nodes' own subnets. Each lives on exactly one node.
      - With O(state=present), exactly one of O(local), O(remote), O(netbox) and O(external) is needed.
    type: dict
    suboptions: &pools
      v4pool:
        description:
          - A range of IPv4 addresses.
        type: dict
        suboptions: &range
          pool:
            description:
              - The addresses to give out. A CIDR, or first and last address with a dash between them.
            type: str
            required: true
          subnet:
            description:
              - The subnet that holds the whole pool, as a CIDR. Nodes with an address in it are candidates for the
                addresses of a local pool.
            type: str
            required: true
          aggregation:
            description:
              - The prefix length that an address gets on its interface, and so the route that routing software
                sees. V(default) takes the subnet's, V(/32) or V(/128) makes a host route.
            type: str
      v4pools:
        description:
          - Several ranges of IPv4 addresses, tried in this order.
        type: list
        elements: dict
        suboptions: *range
      v6pool:
        description:
          - A range of IPv6 addresses.
        type: dict
        suboptions: *range
      v6pools:
        description:
          - Several ranges of IPv6 addresses, tried in this order.
        type: list
        elements: dict
        suboptions: *range
      skip_ipv6_dad:
        description:
          - Add IPv6 addresses without duplicate address detection. They answer about a second sooner, and a host
            that has the same address is not noticed.
        type: bool
      multi_pool:
        description:
          - Give a Service one address of each range that has live nodes, per family.
        type: bool
      balance_pools:
        description:
          - Take each address from the range with the fewest addresses in use, per family.
        type: bool
  remote:
    description:
      - Addresses that routing software makes known. Each lives on every node's dummy interface, and routers spread
        the traffic.
    type: dict
    suboptions: *pools
  netbox:
    description:
      - Addresses that a NetBox gives out, announced as remote. The token is in a Secret of the installation.
    type: dict
    suboptions:
      url:
        description:
          - Address of the NetBox.
        type: str
        required: true
      tenant:
        description:
          - The NetBox tenant whose reserved addresses are given out.
        type: str
        required: true
      aggregation:
        description:
          - The prefix length that an address gets on its interface. V(default) takes the one that the NetBox gives.
        type: str
  external:
    description:
      - Addresses that a sidecar of the allocator gives out, asked by gRPC over a Unix socket.
    type: dict
    suboptions:
      provider:
        description:
          - Name of the address management behind the sidecar, shown in C(status.ipam).
        type: str
        required: true
      socket:
        description:
          - Absolute path of the sidecar's socket in the allocator's Pod.
        type: str
      announce:
        description:
          - Where the addresses are announced.
        type: str
        choices: [local, remote]
        required: true
  namespaces:
    description:
      - Namespaces whose Services take addresses from here without naming the group.
    type: list
    elements: str
  enforce_namespaces:
    description:
      - Make O(namespaces) a boundary. Services elsewhere get no address of this group, and Services in them none of a
        group that does not serve their namespace.
    type: bool
  namespace_default:
    description:
      - Where several groups serve a namespace, take this one for Services that name none.
    type: bool
  wait:
    description:
      - Wait until the allocator has accepted the group as it is now, which it says in the condition C(Ready) of the
        status. If it refuses, the task fails with its reason. Nothing is waited for in check mode.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds to wait.
    type: int
    default: 60
seealso:
  - module: purelb.purelb.purelb_lb_node_agent
  - module: purelb.purelb.purelb_objects
  - module: purelb.purelb.purelb_crd
notes:
  - The user needs the verbs get, list, patch and create (get and delete to remove) on servicegroups.purelb.io in the
    namespace.
  - Removing a group does not take addresses from Services that have them.
"""

EXAMPLES = r"""
- name: Give out addresses of the nodes' subnet, of both families
  purelb.purelb.purelb_service_group:
    name: default
    local:
      v4pool:
        subnet: 192.168.1.0/24
        pool: 192.168.1.240-192.168.1.250
      v6pool:
        subnet: fd00:1::/64
        pool: fd00:1::100-fd00:1::1ff

- name: Give two teams addresses that routers find, as host routes
  purelb.purelb.purelb_service_group:
    name: teams
    remote:
      v4pools:
        - {subnet: 10.100.0.0/24, pool: 10.100.0.0/24, aggregation: /32}
        - {subnet: 10.100.1.0/24, pool: 10.100.1.0/24, aggregation: /32}
      balance_pools: true
    namespaces: [team-a, team-b]
    enforce_namespaces: true
    wait: true

- name: Remove a group
  purelb.purelb.purelb_service_group:
    name: old
    state: absent
"""

RETURN = r"""
action:
  description: One of C(created), C(changed), C(unchanged), C(deleted) and C(absent); in check mode what it would be.
  type: str
  returned: success
  sample: changed
object:
  description: The object as the API server has it, or in check mode would have it; null if it is gone.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.apply import custom_resources
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import argspec, run, specs


def main() -> None:
    spec = (
        argspec.connection()
        .merge(argspec.namespace())
        .merge(argspec.presence())
        .merge(argspec.metadata())
        .merge(specs.service_group())
        .merge(
            argspec.ArgumentSpec(
                {
                    "wait": {"type": "bool", "default": False},
                    "wait_timeout": {"type": "int", "default": 60},
                }
            )
        )
    )
    module = AnsibleModule(**spec.arguments(), supports_check_mode=True)
    run.run(module, custom_resources.manage_service_group)


if __name__ == "__main__":
    main()
