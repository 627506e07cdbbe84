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
  - PureLB for Ansible authors (@purelb)
description:
  - Creates, changes or removes an LBNodeAgent, with an option for each field of its C(spec). It takes effect while
    the node agents run.
  - The task says the whole C(spec). What an earlier task of this collection set and this one leaves out is removed;
    for what nobody sets the default of the definition holds.
  - The values are checked with the rules of the node agents before the API server is asked. A regular expression that
    does not compile, which the API server would take and with which nodes announce nothing, is an error.
  - Warns of what is allowed and hardly meant so, such as a second object for the same nodes.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
  - purelb.purelb.presence
  - purelb.purelb.metadata
  - purelb.purelb.writing
options:
  node_selector:
    description:
      - Labels of the nodes that the settings are for; every node by default. An object with a selector goes before
        one without, then the first by name.
    type: dict
    suboptions:
      match_labels:
        description:
          - Labels that a node must have, all of them.
        type: dict
      match_expressions:
        description:
          - Conditions on labels that a node must meet, all of them.
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
              - How the label relates to the values.
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
      - Which interfaces carry addresses, and how they are announced.
    type: dict
    suboptions:
      local_interface:
        description:
          - The interfaces for local addresses. V(default) is the one with the default route of the lowest metric,
            V(none) only those of O(local.interfaces), anything else a regular expression on interface names.
        type: str
      interfaces:
        description:
          - Further interfaces for local addresses, by exact name. Those that a node lacks are skipped.
        type: list
        elements: str
      dummy_interface:
        description:
          - The interface for remote addresses. It is made where it is absent.
        type: str
      garp_config:
        description:
          - How a gained address is announced on the wire, by ARP and by neighbour advertisements.
        type: dict
        suboptions:
          enabled:
            description:
              - Whether gained addresses are announced.
            type: bool
          count:
            description:
              - How many announcements follow the one that is sent at once, V(1) to V(10).
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
              - Ask before each of them whether the address is still this node's, and stop if not.
            type: bool
      address_config:
        description:
          - How addresses are added to interfaces.
        type: dict
        suboptions:
          local_interface:
            description:
              - How addresses are added to the interfaces for local addresses.
            type: dict
            suboptions: &lifetimes
              valid_lifetime:
                description:
                  - Seconds that an address lives without being refreshed, V(60) or more; V(0) sets no limit.
                type: int
              preferred_lifetime:
                description:
                  - Seconds that an address is preferred as a source, at most the valid lifetime.
                type: int
              no_prefix_route:
                description:
                  - Add addresses without the route to their subnet.
                type: bool
          dummy_interface:
            description:
              - How addresses are added to the interface for remote addresses.
            type: dict
            suboptions: *lifetimes
seealso:
  - module: purelb.purelb.purelb_service_group
  - module: purelb.purelb.purelb_objects
  - module: purelb.purelb.purelb_crd
notes:
  - The user needs the verbs get, list, patch and create (get and delete to remove) on lbnodeagents.purelb.io in the
    namespace.
  - As soon as there is one LBNodeAgent, nodes that none selects announce nothing.
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
      local_interface: "bond[0-9]+"
      interfaces: [eth3]

- name: Remove the exception
  purelb.purelb.purelb_lb_node_agent:
    name: rack-a
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
        .merge(specs.node_agent())
    )
    module = AnsibleModule(**spec.arguments(), supports_check_mode=True)
    run.run(module, custom_resources.manage_node_agent)


if __name__ == "__main__":
    main()
