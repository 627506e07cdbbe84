#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_objects
short_description: Apply or delete a list of Kubernetes objects, and wait for the effect
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Applies objects by server-side apply, so that fields of other managers stay unchanged.
  - Can wait until CustomResourceDefinitions are served, rollouts are complete, and deleted objects are gone
    with all dependents.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.presence
options:
  objects:
    description:
      - The objects, each with C(apiVersion), C(kind) and C(metadata.name).
      - They are applied in this order and deleted in the reverse order.
    type: list
    elements: dict
    required: true
  initial:
    description:
      - Objects to create if they do not exist; existing ones stay unchanged. For example a key that is generated once.
        Only with O(state=present).
      - They are created after the Namespaces of O(objects) and before the other objects. The module does not wait for
        them.
    type: list
    elements: dict
    default: []
  only_labelled:
    description:
      - With O(state=absent), labels that an object must have to be deleted. Others stay, with the reason in
        RV(results[].kept).
    type: dict
    default: {}
  only_empty:
    description:
      - With O(state=absent), delete a Namespace only if it contains nothing but what Kubernetes puts into each. To know that,
        the module lists every kind in it.
    type: bool
    default: false
  namespace:
    description:
      - Namespace of the namespaced objects without C(metadata.namespace).
    type: str
  wait:
    description:
      - With O(state=present), wait until CustomResourceDefinitions are served, Namespaces are active, and
        DaemonSets and Deployments run the new version everywhere. The module waits for
        CustomResourceDefinitions and Namespaces before it applies the next object.
      - With O(state=absent), wait until the objects are gone, with their Pods and other dependents.
      - Check mode does not wait.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds to wait for each object, restarted with each progress. A timeout is an error that names the object, its
        conditions, and the problems of its Pods.
    type: int
    default: 120
attributes:
  check_mode:
    support: full
    description: A dry run with the API server's validation. Objects whose namespace or kind does not exist yet
      count as created.
  diff_mode:
    support: full
    description: Without the fields that the API server maintains. Of Secrets it shows which entries change, not
      their values.
seealso:
  - module: purelb.purelb.purelb_lease_info
notes:
  - The user needs the verbs get, patch and create on applied objects, get and delete on deleted ones, and list on
    Pods for the error text of a timeout.
"""

EXAMPLES = r"""
- name: Create a pool of addresses
  purelb.purelb.purelb_objects:
    objects:
      - apiVersion: purelb.io/v2
        kind: ServiceGroup
        metadata:
          name: default
          namespace: purelb-system
        spec:
          local:
            v4pool:
              subnet: 192.168.1.0/24
              pool: 192.168.1.240-192.168.1.250

- name: Apply a file of manifests and wait for the rollout
  purelb.purelb.purelb_objects:
    objects: "{{ lookup('ansible.builtin.file', 'manifests.yaml') | from_yaml_all | select | list }}"
    wait: true
    wait_timeout: 300

- name: Create a key once, and a program that reads it
  purelb.purelb.purelb_objects:
    initial:
      - apiVersion: v1
        kind: Secret
        metadata:
          name: key
          namespace: default
        stringData:
          key: "{{ lookup('ansible.builtin.password', '/dev/null', length=64) }}"
    objects: "{{ lookup('ansible.builtin.file', 'deployment.yaml') | from_yaml_all | list }}"

- name: Remove the pool
  purelb.purelb.purelb_objects:
    state: absent
    namespace: purelb-system
    objects:
      - apiVersion: purelb.io/v2
        kind: ServiceGroup
        metadata:
          name: default
    wait: true
"""

RETURN = r"""
results:
  description: Result for each object, in the order of processing.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the object.
      type: str
      returned: success
      sample: ServiceGroup
    name:
      description: Name of the object.
      type: str
      returned: success
      sample: default
    namespace:
      description: Namespace of the object, or null if it has none.
      type: str
      returned: success
      sample: purelb-system
    action:
      description: One of C(created), C(changed), C(unchanged), C(deleted) and C(absent); in check mode the expected
        one.
      type: str
      returned: success
      sample: created
    kept:
      description: Why it was not deleted, or an empty string.
      type: str
      returned: success
      sample: it contains ConfigMap notes
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.apply import objects
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import (
    argspec,
    manifests,
    run,
)


def main() -> None:
    spec = (
        argspec.connection()
        .merge(argspec.presence())
        .merge(
            argspec.ArgumentSpec(
                {
                    "objects": {"type": "list", "elements": "dict", "required": True},
                    "initial": {"type": "list", "elements": "dict", "default": []},
                    "only_labelled": {"type": "dict", "default": {}},
                    "only_empty": {"type": "bool", "default": False},
                    "namespace": {"type": "str"},
                    "wait": {"type": "bool", "default": False},
                    "wait_timeout": {"type": "int", "default": 120},
                }
            )
        )
    )
    # no_log keeps the objects, which may be Secrets, out of the managed machine's system log.
    module = AnsibleModule(**spec.arguments(), supports_check_mode=True, no_log=True)
    for option in ("objects", "initial"):
        module.no_log_values.update(manifests.secrets(module.params[option]))
    run.run(module, objects.manage)


if __name__ == "__main__":
    main()
