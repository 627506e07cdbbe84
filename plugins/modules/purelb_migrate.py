#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_migrate
short_description: Run one step of a migration from purelb.io/v1 to v2, or back
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - The role P(purelb.purelb.purelb_migrate#role) runs the steps one after the other and installs v2 between them. Each
    step can be repeated, also after an interruption.
  - The ConfigMap C(purelb-migration) in O(namespace) records the phase of the migration and the checksum of the backup.
    A step in the wrong phase is an error; a completed step changes nothing.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.conversion
options:
  step:
    description:
      - V(status) returns the phase, V(preview) the v2 objects. V(preview) fails while there are open questions. Neither
        changes anything.
      - V(back_up) writes everything that the other steps change, and the v2 objects, to O(backup).
      - V(hand_over) stops the v1 allocator, creates the v2 objects, hands the Services to v2, and stops the v1 agents.
        v2 must be installed and must not claim Services without a class.
      - V(verify) waits until an audit finds no error, and fails if the addresses of a Service have changed.
      - V(remove_v1) removes the programs and objects of v1, and rewrites all stored objects as v2. V(finish) ends the
        migration.
      - V(roll_back) removes the programs of v2 and restores the backup. V(discard) compares the cluster with the backup
        and ends the migration.
    type: str
    required: true
    choices: [status, preview, back_up, hand_over, verify, remove_v1, finish, roll_back, discard]
  backup:
    description:
      - The backup file, on the machine that runs the module; required from O(step=back_up) on. Missing folders are
        created; only the owner may read the file.
    type: path
  accept:
    description:
      - With O(step=preview) and O(step=back_up), accept the proposals for groups without a decision.
    type: bool
    default: false
  one_by_one:
    description:
      - With O(step=hand_over), move the Services one by one. Each permanently gets the class C(purelb.io/purelbv2). For a
        moment it has the type C(NodePort), as the class of a LoadBalancer cannot change.
      - Otherwise v2 takes over all Services after the v1 agents have stopped, and Services keep their class, unless v2
        does not serve it.
    type: bool
    default: false
  services:
    description:
      - With O(step=hand_over), hand over only these Services (C(namespace/name)), as with O(one_by_one), and keep the v1
        agents running for the others. Run the step again for the rest.
    type: list
    elements: str
    default: []
  delay:
    description:
      - Seconds between the release of a single Service by v1 and its takeover by v2, in which the v1 agents remove its
        addresses.
    type: float
    default: 1
  wait_timeout:
    description:
      - Seconds to wait for each effect, such as ended Pods, announced addresses, or an audit without errors.
    type: int
    default: 180
attributes:
  check_mode:
    support: partial
    description: Dry runs in the API server, without waiting and without a backup file.
    details:
      - Writes that depend on an earlier one, such as the new class of a Service, are not predicted.
  diff_mode:
    support: full
    description: Without the fields that the API server maintains.
seealso:
  - module: purelb.purelb.purelb_convert
  - module: purelb.purelb.purelb_lease_info
notes:
  - The user needs the verbs get, list, patch, create and delete on the definitions, ServiceGroups, LBNodeAgents, ConfigMaps,
    Deployments and DaemonSets, list on Pods, Leases, Nodes and EndpointSlices, and list and patch on Services with
    their status.
"""

EXAMPLES = r"""
- name: Show the phase of a migration
  purelb.purelb.purelb_migrate:
    step: status
  register: migration

- name: Hand over two Services first
  purelb.purelb.purelb_migrate:
    step: hand_over
    backup: /root/purelb-v1/backup.json
    services: [shop/web, shop/api]
"""

RETURN = r"""
phase:
  description: Phase of the migration. Empty before it starts, then C(backedUp), C(handedOver), C(verified) and C(done), or
    C(rollingBack).
  returned: success
  type: str
  sample: backedUp
backup:
  description: Path of the backup file, or an empty string.
  returned: success
  type: str
  sample: /root/purelb-v1/backup.json
v1_programs:
  description: Existing programs of v1.
  returned: with O(step=status)
  type: list
  elements: str
  sample: [Deployment purelb/allocator, DaemonSet purelb/lbnodeagent]
annotation_writers:
  description: Users that write the annotations of the programs during the migration, for the admission policies of v2. The
    user of the migration and the ServiceAccounts of v1.
  returned: with O(step=back_up)
  type: list
  elements: str
  sample: [admin, "system:serviceaccount:purelb:allocator", "system:serviceaccount:purelb:lbnodeagent"]
remaining:
  description: Services that v1 still serves, as C(namespace/name).
  returned: with O(step=hand_over)
  type: list
  elements: str
  sample: [shop/web]
objects:
  description: The v2 objects. Before the backup, M(purelb.purelb.purelb_convert) defines further return values.
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
