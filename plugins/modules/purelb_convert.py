#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_convert
short_description: Convert objects of purelb.io/v1 to v2, and list the open questions
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Reads ServiceGroups and LBNodeAgents of C(purelb.io/v1), from the cluster or from O(definitions), and returns the
    objects of C(purelb.io/v2) that replace them. Nothing is written.
  - v1 added an address to a physical interface if a node had its subnet, otherwise to the dummy interface. In v2 each group
    is explicitly local or remote. The module returns for each group which of the two it becomes, why, and what is unclear.
    A range in a subnet of a node is C(local); one outside all of them, or with C(aggregation) C(/32) or C(/128), is
    C(remote).
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.conversion
  - purelb.purelb.reading
options:
  definitions:
    description:
      - The v1 objects to convert instead of those in the cluster. With O(node_subnets), no cluster is needed.
    type: list
    elements: dict
seealso:
  - module: purelb.purelb.purelb_objects
notes:
  - It changes nothing. It is not named C(_info), because it computes objects to write, also from O(definitions) alone.
  - The user needs the verb list on C(servicegroups) and C(lbnodeagents) in O(namespace) unless O(definitions) is given,
    and on C(leases) in O(target_namespace) and C(nodes) unless O(node_subnets) is given.
"""

EXAMPLES = r"""
- name: Convert the v1 objects of the cluster
  purelb.purelb.purelb_convert:
  register: conversion

- name: Convert a file, without a cluster
  purelb.purelb.purelb_convert:
    definitions: "{{ lookup('ansible.builtin.file', 'groups-v1.yaml') | from_yaml_all | select | list }}"
    node_subnets: [192.168.1.0/24, 'fd00:1::/64']
    decisions:
      edge: remote
      mixed: proposed
  register: conversion

- name: Fail if there are open questions
  ansible.builtin.assert:
    that: conversion.questions | length == 0
    fail_msg: "{{ conversion.questions }}"

- name: Write the v2 objects to a file
  ansible.builtin.copy:
    content: "{{ conversion.objects | map('to_nice_yaml') | join('---\n') }}"
    dest: groups-v2.yaml
    mode: "0644"
"""

RETURN = r"""
objects:
  description: The v2 objects, ServiceGroups first, without invalid groups.
  returned: success
  type: list
  elements: dict
  sample:
    - apiVersion: purelb.io/v2
      kind: ServiceGroup
      metadata: {name: default, namespace: purelb-system}
      spec: {local: {v4pool: {pool: 192.168.1.240/29, subnet: 192.168.1.0/24, aggregation: default}}}
questions:
  description: Open decisions and invalid groups; empty if RV(objects) can be applied.
  returned: success
  type: list
  elements: dict
  contains:
    group:
      description: The v1 group, as C(ServiceGroup namespace/name).
      type: str
      returned: success
      sample: ServiceGroup purelb/edge
    question:
      description: What is unclear, and the possible remedies.
      type: str
      returned: success
      sample: give it a range of addresses, or delete it; it has none
groups:
  description: The v2 groups for each v1 group, and the reasons.
  returned: success
  type: list
  elements: dict
  contains:
    group:
      description: The v1 group, as C(ServiceGroup namespace/name).
      type: str
      returned: success
      sample: ServiceGroup purelb/default
    reason:
      description: The reason. One of C(inNodeSubnet), C(outsideNodeSubnets), C(hostRoute),
        C(hostRouteInNodeSubnet), C(partlyInNodeSubnet), C(mixed), C(netbox), C(writtenInV2), C(decided) and C(invalid).
      type: str
      returned: success
      sample: inNodeSubnet
    question:
      description: The open question, or an empty string.
      type: str
      returned: success
      sample: ""
    warning:
      description: Consequence of a decision that is probably unintended, or an empty string.
      type: str
      returned: success
      sample: ""
    becomes:
      description: The v2 groups that replace it; two if it is split, none if it is invalid.
      type: list
      elements: dict
      returned: success
      contains:
        name:
          description: Name of the group.
          type: str
          returned: success
          sample: default
        source:
          description: C(local), C(remote), C(netbox) or C(external).
          type: str
          returned: success
          sample: local
    ranges:
      description: Its address ranges.
      type: list
      elements: dict
      returned: success
      contains:
        range:
          description: First and last address.
          type: str
          returned: success
          sample: 192.168.1.240-192.168.1.247
        subnet:
          description: The subnet of the range, as in the group.
          type: str
          returned: success
          sample: 192.168.1.0/24
        proposed:
          description: The proposal C(local) or C(remote), independent of decisions.
          type: str
          returned: success
          sample: local
        reason:
          description: The reason, as in RV(groups[].reason).
          type: str
          returned: success
          sample: inNodeSubnet
node_agents:
  description: The v2 object for each v1 LBNodeAgent.
  returned: success
  type: list
  elements: dict
  contains:
    agent:
      description: The v1 object, as C(LBNodeAgent namespace/name).
      type: str
      returned: success
      sample: LBNodeAgent purelb/default
    becomes:
      description: The v2 object, as C(namespace/name).
      type: str
      returned: success
      sample: purelb-system/default
    warning:
      description: What changes with it, or an empty string.
      type: str
      returned: success
      sample: ""
node_subnets:
  description: The subnets of nodes with which the ranges were compared. If the subnet of a node is unknown, its
    address.
  returned: success
  type: list
  elements: str
  sample: [192.168.1.0/24]
node_subnets_from:
  description: Source of the subnets. One of C(option), C(leases) and C(nodes).
  returned: success
  type: str
  sample: nodes
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.migrate import conversion
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import (
    argspec,
    finish,
    run,
)


def main() -> None:
    given = {"definitions": {"type": "list", "elements": "dict"}}
    spec = argspec.connection().merge(argspec.conversion()).merge(argspec.ArgumentSpec(given))
    module = AnsibleModule(**spec.arguments(), supports_check_mode=True)
    if conversion.is_offline(module.params):
        finish.finish(module, lambda: conversion.offline(module.params))
    run.run(module, conversion.info)


if __name__ == "__main__":
    main()
