#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_lb_node_agent
short_description: Set which interfaces nodes announce addresses on, and how
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Creates, changes or removes an LBNodeAgent, with an option for each field of its C(spec). Running node
    agents apply it immediately.
  - A task describes the whole C(spec). Fields that an earlier task of this collection set and this one omits are
    removed. Unset fields have the default of the definition.
  - The values are validated with the rules of the node agents before any request is sent. An invalid regular
    expression, which the API server accepts and with which nodes announce nothing, is an error.
  - Valid but probably unintended settings produce a warning, such as a second object for the same nodes, or that no
    object selects some nodes, which announce nothing then. Where all objects have a selector, Nodes are read for that.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
  - purelb.purelb.presence
  - purelb.purelb.metadata
  - purelb.purelb.writing
options:
  node_selector:
    description:
      - Selects the nodes to which the settings apply, by default all. Objects with a selector take precedence over those
        without, then the first by name.
    type: dict
    suboptions:
      match_labels:
        description:
          - Labels of which a node must have all.
        type: dict
      match_expressions:
        description:
          - Conditions on labels of which a node must meet all.
        type: list
        elements: dict
        suboptions:
          key:
            description:
              - Name of the label.
            type: str
            required: true
          operator:
            description:
              - Relation of the label to the values.
            type: str
            choices: [In, NotIn, Exists, DoesNotExist]
            required: true
          values:
            description:
              - Values for V(In) and V(NotIn); none for V(Exists) and V(DoesNotExist).
            type: list
            elements: str
  local:
    description:
      - The interfaces for addresses, and how to announce them. Omitted, all of it has the definition's defaults.
    type: dict
    suboptions:
      local_interface:
        description:
          - The interfaces for local addresses. V(default) is the one with the default route of the lowest metric, V(none)
            means only those in O(local.interfaces), any other value is a regular expression on interface names.
          - The expression matches anywhere in a name, as in the Go implementation of PureLB. V(eth0) also matches C(eth0.100),
            C(eth01) and C(veth0a1b2c3d); V(^eth0$) matches only C(eth0). An expression that probably matches more than it
            should causes a warning.
        type: str
      interfaces:
        description:
          - Further interfaces for local addresses, by exact name. Missing ones are ignored.
        type: list
        elements: str
      dummy_interface:
        description:
          - The interface for remote addresses. The agent creates it if it does not exist.
        type: str
      garp_config:
        description:
          - How to announce a newly added address, by gratuitous ARP and unsolicited neighbor advertisements.
        type: dict
        suboptions:
          enabled:
            description:
              - Whether to announce newly added addresses.
            type: bool
          count:
            description:
              - Number of announcements after the immediate one, V(1) to V(10).
            type: int
          interval_ms:
            description:
              - Milliseconds between them, V(100) to V(5000).
            type: int
          delay_ms:
            description:
              - Milliseconds before the first of them, V(0) to V(5000).
            type: int
          interval:
            description:
              - The same as O(local.garp_config.interval_ms), as a duration such as V(500ms) or V(1s).
            type: str
          initial_delay:
            description:
              - The same as O(local.garp_config.delay_ms), as a duration.
            type: str
          verify_before_send:
            description:
              - Check before each of them that the node still holds the address, and stop if not.
            type: bool
      address_config:
        description:
          - How to add addresses to interfaces.
        type: dict
        suboptions:
          local_interface:
            description:
              - How to add addresses to the interfaces for local addresses.
            type: dict
            suboptions: &lifetimes
              valid_lifetime:
                description:
                  - Seconds until the kernel removes an address that is not refreshed, V(60) or more; V(0) for no
                    limit.
                type: int
              preferred_lifetime:
                description:
                  - Seconds for which the node may choose an address as the source of its own traffic, at most the valid
                    lifetime; V(0) is never. The default is never for IPv6, and the valid lifetime for IPv4.
                type: int
              no_prefix_route:
                description:
                  - Add addresses without the route to their subnet.
                type: bool
          dummy_interface:
            description:
              - How to add addresses to the interface for remote addresses.
            type: dict
            suboptions: *lifetimes
seealso:
  - module: purelb.purelb.purelb_service_group
  - module: purelb.purelb.purelb_objects
  - module: purelb.purelb.purelb_crd
notes:
  - The user needs the verbs get, list, patch and create (get and delete to remove) on lbnodeagents.purelb.io in the
    namespace.
  - If any LBNodeAgent exists, nodes that none selects announce nothing.
"""

EXAMPLES = r"""
- name: Announce on the interface with the default route, five times
  purelb.purelb.purelb_lb_node_agent:
    name: default
    local:
      garp_config:
        count: 5
        interval: 1s

- name: Use other interfaces in one rack
  purelb.purelb.purelb_lb_node_agent:
    name: rack-a
    node_selector:
      match_labels:
        rack: a
    local:
      local_interface: "^bond[0-9]+$"
      interfaces: [eth3]

- name: Remove the exception
  purelb.purelb.purelb_lb_node_agent:
    name: rack-a
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
        .merge(specs.node_agent())
    )
    module = AnsibleModule(**spec.arguments(), supports_check_mode=True)
    run.run(module, custom_resources.manage_node_agent)


if __name__ == "__main__":
    main()
