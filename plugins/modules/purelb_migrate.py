#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_migrate
short_description: One step of the way from a PureLB of purelb.io/v1 to this one, or back
version_added: 0.1.0
author:
  - PureLB for Ansible authors (@purelb)
description:
  - The steps of the role P(purelb.purelb.purelb_migrate#role), which takes them in order and installs v2 in between. Each step
    can be repeated, also after it was cut off half-way.
  - How far a migration has got is in the ConfigMap C(purelb-migration) in O(namespace), with the checksum of the backup.
    A step that comes too early is an error, one that is done already changes nothing.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.conversion
options:
  step:
    description:
      - V(status) says how far it is, and V(preview) what becomes what; it fails while something is to be decided. Both
        change nothing.
      - V(back_up) writes O(backup), with everything that the other steps change and the objects of v2.
      - V(hand_over) stops the v1 allocator, writes the objects of v2, lets v2 have the Services, and stops the v1 agents.
        v2 has to be installed, with Services without a class left to v1.
      - V(verify) waits until an audit finds no error, and fails if a Service has other addresses than before.
      - V(remove_v1) removes the programs and objects of v1 and has everything stored as v2. V(finish) ends the migration.
      - V(roll_back) removes the programs of v2 and brings back what the backup has. V(discard) compares everything
        with it and ends the migration.
    type: str
    required: true
    choices: [status, preview, back_up, hand_over, verify, remove_v1, finish, roll_back, discard]
  backup:
    description:
      - The file of the backup, on the machine that the module runs on; needed from O(step=back_up) on. Folders are
        made for it, and nobody else may read it.
    type: path
  accept:
    description:
      - With O(step=preview) and O(step=back_up), take what is proposed for groups without a decision.
    type: bool
    default: false
  one_by_one:
    description:
      - With O(step=hand_over), let the Services leave v1 one after the other. Each becomes one of the class
        C(purelb.io/purelbv2), for which it is of type C(NodePort) for a moment, as the class of a load balancer
        cannot change. It keeps this class.
      - Without it v2 takes all Services when the v1 agents are gone, and no Service changes its class, but for those
        of a class that v2 does not serve.
    type: bool
    default: false
  services:
    description:
      - With O(step=hand_over), hand over these Services (C(namespace/name)) only, as with O(one_by_one), and leave the
        v1 agents at work for the others. Run it again for the rest.
    type: list
    elements: str
    default: []
  delay:
    description:
      - Seconds from when a single Service has left v1 until v2 has it, for the v1 agents to take its addresses away.
    type: float
    default: 1
  wait_timeout:
    description:
      - Seconds to wait for each thing that is waited for.
    type: int
    default: 180
attributes:
  check_mode:
    support: partial
    description: By dry runs in the API server. Nothing is waited for, and no file is written.
    details:
      - What can only be written after something else was is left out, such as the new class of a Service.
  diff_mode:
    support: full
    description: Without the API server's bookkeeping.
seealso:
  - module: purelb.purelb.purelb_convert
  - module: purelb.purelb.purelb_lease_info
notes:
  - The user needs the verbs get, list, patch, create and delete on the definitions, ServiceGroups, LBNodeAgents, ConfigMaps,
    Deployments and DaemonSets, list on Pods, Leases, Nodes and EndpointSlices, and list and patch on Services with
    their status.
"""

EXAMPLES = r"""
- name: See how far a migration is
  purelb.purelb.purelb_migrate:
    step: status
  register: migration

- name: Let two Services go first
  purelb.purelb.purelb_migrate:
    step: hand_over
    backup: /root/purelb-v1/backup.json
    services: [shop/web, shop/api]
"""

RETURN = r"""
phase:
  description: How far it is. Empty before it has begun, then C(backedUp), C(handedOver), C(verified) and C(done), or
    C(rollingBack).
  returned: success
  type: str
  sample: backedUp
backup:
  description: The file that the migration began with, or an empty text.
  returned: success
  type: str
  sample: /root/purelb-v1/backup.json
v1_programs:
  description: Programs of v1 that are there.
  returned: with O(step=status)
  type: list
  elements: str
  sample: [Deployment purelb/allocator, DaemonSet purelb/lbnodeagent]
remaining:
  description: Services that v1 still serves, as C(namespace/name).
  returned: with O(step=hand_over)
  type: list
  elements: str
  sample: [shop/web]
objects:
  description: The objects of v2. Before the backup also what M(purelb.purelb.purelb_convert) returns.
  returned: with O(step=preview)
  type: list
  elements: dict
  sample:
    - apiVersion: purelb.io/v2
      kind: ServiceGroup
      metadata: {name: default, namespace: purelb-system}
      spec: {local: {v4pool: {pool: 192.168.1.240/29, subnet: 192.168.1.0/24, aggregation: default}}}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.migrate import phases
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import argspec, run


def main() -> None:
    spec = (
        argspec.connection()
        .merge(argspec.conversion())
        .merge(
            argspec.ArgumentSpec(
                {
                    "step": {
                        "type": "str",
                        "required": True,
                        "choices": [step.name for step in phases.STEPS],
                    },
                    "backup": {"type": "path"},
                    "accept": {"type": "bool", "default": False},
                    "one_by_one": {"type": "bool", "default": False},
                    "services": {"type": "list", "elements": "str", "default": []},
                    "delay": {"type": "float", "default": 1},
                    "wait_timeout": {"type": "int", "default": 180},
                }
            )
        )
    )
    run.run(AnsibleModule(**spec.arguments(), supports_check_mode=True), phases.manage)


if __name__ == "__main__":
    main()
