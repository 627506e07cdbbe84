#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_crd
short_description: Install, upgrade or remove PureLB's CustomResourceDefinitions
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Applies the definitions of ServiceGroup and LBNodeAgent in this collection, and waits until the API server serves
    them.
  - If the cluster may still store objects in an old version, rewrites each of them without a change in the present
    one, and then removes the old versions from the definition's C(status.storedVersions). A later release may then
    omit the old versions.
  - Refuses definitions without conversion if stored objects of another version would lose their fields.
  - Refuses to remove definitions of which objects exist, unless O(remove_objects) is set.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.presence
  - purelb.purelb.writing
options:
  definitions:
    description:
      - The definitions; by default those of the collection, read on the controller. They serve only the present
        version. For clusters with programs that use an older one, the role P(purelb.purelb.purelb_install#role)
        applies definitions with a conversion webhook.
    type: list
    elements: dict
  migrate:
    description:
      - Whether to rewrite stored objects in the present version. Disable this until the conversion webhook is up, then
        run the module again.
    type: bool
    default: true
  remove_objects:
    description:
      - With O(state=absent), remove the definitions together with all their objects, B(in all namespaces). Otherwise
        existing objects are an error that counts and names them.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds to wait for each definition until it is established and served, or gone. Check mode does not wait.
    type: int
    default: 120
attributes:
  action:
    support: full
    description: The action plugin reads the definitions on the controller.
seealso:
  - module: purelb.purelb.purelb_service_group
  - module: purelb.purelb.purelb_lb_node_agent
notes:
  - The user needs the verbs get, patch and create (get and delete to remove) on customresourcedefinitions, patch on
    customresourcedefinitions/status, and list and patch on their objects.
  - A definition in the cluster without all labels of the given one belongs to another installation. O(state=present)
    takes it over (with O(force_conflicts) if fields conflict), O(state=absent) does not remove it.
"""

EXAMPLES = r"""
- name: Install or upgrade the definitions
  purelb.purelb.purelb_crd:

- name: Show what an upgrade would change
  purelb.purelb.purelb_crd:
  check_mode: true
  diff: true

- name: Remove the definitions if no objects exist
  purelb.purelb.purelb_crd:
    state: absent

- name: Remove the definitions with every ServiceGroup and LBNodeAgent
  purelb.purelb.purelb_crd:
    state: absent
    remove_objects: true
"""

RETURN = r"""
results:
  description: Result for each definition, in the order of processing.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: Always CustomResourceDefinition.
      type: str
      returned: success
      sample: CustomResourceDefinition
    name:
      description: Name of the definition.
      type: str
      returned: success
      sample: servicegroups.purelb.io
    namespace:
      description: Always null.
      type: str
      returned: success
      sample: null
    action:
      description: One of C(created), C(changed), C(unchanged), C(deleted) and C(absent); in check mode the expected
        one.
      type: str
      returned: success
      sample: created
migrated:
  description: Definitions whose objects were rewritten in the storage version.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the definition.
      type: str
      returned: success
      sample: servicegroups.purelb.io
    objects:
      description: Number of rewritten objects.
      type: int
      returned: success
      sample: 3
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.apply import definitions
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import argspec, run


def main() -> None:
    spec = (
        argspec.connection()
        .merge(argspec.presence())
        .merge(
            argspec.ArgumentSpec(
                {
                    "definitions": {"type": "list", "elements": "dict"},
                    "migrate": {"type": "bool", "default": True},
                    "remove_objects": {"type": "bool", "default": False},
                    "wait_timeout": {"type": "int", "default": 120},
                }
            )
        )
    )
    run.run(AnsibleModule(**spec.arguments(), supports_check_mode=True), definitions.manage)


if __name__ == "__main__":
    main()
