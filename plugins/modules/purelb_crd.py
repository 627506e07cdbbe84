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
  - PureLB for Ansible authors (@purelb)
description:
  - Applies the definitions of ServiceGroup and LBNodeAgent that this collection has, and waits until objects of
    them can be made.
  - Where the cluster may still store objects in a version other than the present one, writes each of them anew,
    unchanged, and then takes the old versions out of the definition's C(status.storedVersions). A later release
    may then leave the old versions out.
  - Does not apply definitions by which stored objects of another version would lose their fields, because nothing
    converts them.
  - Does not remove definitions as long as there are objects of them, unless it is told to.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.presence
  - purelb.purelb.writing
options:
  definitions:
    description:
      - The definitions; those of the collection by default, which are read on the controller. They serve only the
        present version. For a cluster whose programs speak an older one, too, the role
        P(purelb.purelb.purelb_install#role) makes definitions with a conversion.
    type: list
    elements: dict
  migrate:
    description:
      - Whether stored objects are brought to the present version. Switch this off as long as the webhook that
        converts them is not up, and run the module again when it is.
    type: bool
    default: true
  remove_objects:
    description:
      - With O(state=absent), remove the definitions even if there are objects of them, B(in any namespace), and
        these objects with them. Without it that is an error which says how many and which.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds to wait for each definition until it is established and served, or gone. Nothing is waited for in
        check mode.
    type: int
    default: 120
attributes:
  action:
    support: full
    description: An action plugin reads the definitions on the controller.
seealso:
  - module: purelb.purelb.purelb_service_group
  - module: purelb.purelb.purelb_lb_node_agent
notes:
  - The user needs the verbs get, patch and create (get and delete to remove) on customresourcedefinitions, patch on
    customresourcedefinitions/status, and list and patch on what is made of them.
  - Definitions in the cluster that lack a label of the given ones were made by another installation. They are taken
    over by O(state=present), with O(force_conflicts) if need be, and left alone by O(state=absent).
"""

EXAMPLES = r"""
- name: Install or upgrade the definitions
  purelb.purelb.purelb_crd:

- name: See what an upgrade would change
  purelb.purelb.purelb_crd:
  check_mode: true
  diff: true

- name: Remove them if nobody uses them
  purelb.purelb.purelb_crd:
    state: absent

- name: Remove them with every ServiceGroup and LBNodeAgent
  purelb.purelb.purelb_crd:
    state: absent
    remove_objects: true
"""

RETURN = r"""
results:
  description: What became of each definition, in the order in which they were dealt with.
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
      description: One of C(created), C(changed), C(unchanged), C(deleted) and C(absent); in check mode what it
        would be.
      type: str
      returned: success
      sample: created
migrated:
  description: Definitions of which objects may have been stored in another version, and no longer are.
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
      description: How many objects were written anew.
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
