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
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Creates, changes or removes a ServiceGroup, with an option for each field of its C(spec).
  - A task describes the whole C(spec). Fields that an earlier task of this collection set and this one omits are
    removed. Unset fields have the default of the definition.
  - The ranges are validated with the rules of the allocator before any request is sent. Errors, also in check mode, name
    the option and the remedy.
  - Valid but probably unintended settings produce a warning, such as ranges that overlap those of another ServiceGroup.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
  - purelb.purelb.presence
  - purelb.purelb.metadata
  - purelb.purelb.writing
options:
  local:
    description:
      - Addresses in subnets of the nodes. Exactly one node announces each of them.
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
              - The addresses to allocate. A CIDR, or first and last address separated by a dash.
            type: str
            required: true
          subnet:
            description:
              - The subnet that contains the whole pool, as a CIDR. Nodes with an address in it are candidates for the
                addresses of a local pool.
            type: str
            required: true
          aggregation:
            description:
              - Prefix length of a remote address on the dummy interface, and so of the route that routing software
                advertises. V(default) is that of the subnet; V(/32) or V(/128) is a host route.
              - A local address is always a single host on its interface.
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
          - Add new IPv6 addresses without duplicate address detection. They are usable about a second sooner, but a
            duplicate on another host is found only by later probes. An address that moves is never detected again.
        type: bool
      multi_pool:
        description:
          - Allocate one address of each range with live nodes to a Service, for each family.
        type: bool
      balance_pools:
        description:
          - Allocate addresses from the range with the fewest addresses in use, for each family.
        type: bool
  remote:
    description:
      - Addresses that routing software advertises. Every node has each of them on its dummy interface, and routers
        distribute the traffic.
    type: dict
    suboptions: *pools
  netbox:
    description:
      - Addresses from a NetBox, announced as remote. The token is in a Secret of the installation.
    type: dict
    suboptions:
      url:
        description:
          - URL of the NetBox. It begins with C(https://), unless O(netbox.allow_http=true).
        type: str
        required: true
      tenant:
        description:
          - The NetBox tenant whose reserved addresses are allocated.
        type: str
        required: true
      aggregation:
        description:
          - Prefix length of an address on its interface. V(default) is the one in the NetBox.
        type: str
      allow_http:
        description:
          - Allow a URL that begins with C(http://). Everyone on the network path can then read NetBox's token.
        type: bool
  external:
    description:
      - Addresses from a sidecar of the allocator, by gRPC over a Unix socket.
    type: dict
    suboptions:
      provider:
        description:
          - Name of the IPAM system behind the sidecar, shown in C(status.ipam).
        type: str
        required: true
      socket:
        description:
          - Absolute path of the sidecar's socket in the allocator's Pod.
        type: str
      announce:
        description:
          - Whether the addresses are announced as local or remote.
        type: str
        choices: [local, remote]
        required: true
  namespaces:
    description:
      - Namespaces whose Services get addresses of this group by default.
    type: list
    elements: str
  enforce_namespaces:
    description:
      - Make O(namespaces) a boundary. Services in these namespaces get addresses only of groups that list their
        namespace, and no group that lists one of them allocates addresses to Services in namespaces that it does not
        list.
    type: bool
  namespace_default:
    description:
      - Use this group for Services that name no group if several groups list their namespace.
    type: bool
  sharing:
    description:
      - Which Services with the same annotation C(purelb.io/allow-shared-ip) may share an address. Those of one
        V(namespace), which is the default, or those of the whole V(cluster).
    type: str
    choices: [namespace, cluster]
  wait:
    description:
      - Wait until the allocator has accepted the present generation of the group (condition C(Ready) of its status). If
        the allocator refuses it, the task fails with the reason. Check mode does not wait.
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
    namespace. With list on leases there and on nodes, it also warns of ranges in the subnet of no node, and of ranges
    that contain addresses of nodes or of other hosts.
  - Services keep their addresses when the group is removed.
"""

EXAMPLES = r"""
- name: Assign addresses in the subnet of the nodes, of both families
  purelb.purelb.purelb_service_group:
    name: default
    local:
      v4pool:
        subnet: 192.168.1.0/24
        pool: 192.168.1.240-192.168.1.250
      v6pool:
        subnet: fd00:1::/64
        pool: fd00:1::100-fd00:1::1ff

- name: Assign two teams routed addresses, as host routes
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
  description: One of C(created), C(changed), C(unchanged), C(deleted) and C(absent); in check mode the expected one.
  type: str
  returned: success
  sample: changed
object:
  description: The object in the API server, in check mode the expected one; null if it does not exist.
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
