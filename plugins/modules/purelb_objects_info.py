#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_objects_info
short_description: Read the Kubernetes objects of one kind
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Reads all objects of a kind, or those in a namespace or with certain labels.
  - For a kind that the cluster does not serve, returns an empty list.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.reading
options:
  api_version:
    description:
      - Group and version of the kind.
    type: str
    default: purelb.io/v2
  kind:
    description:
      - Kind of the objects.
    type: str
    required: true
  namespace:
    description:
      - Namespace of the objects; all namespaces by default.
    type: str
  names:
    description:
      - Names of the objects to read; by default all. Names without an object are ignored.
    type: list
    elements: str
    default: []
  labels:
    description:
      - Labels of which the objects must have all.
    type: dict
    default: {}
seealso:
  - module: purelb.purelb.purelb_objects
notes:
  - The user needs the verb list on the kind, in the namespace or in the whole cluster.
  - Secrets are returned with their data; set C(no_log) on tasks that read them.
"""

EXAMPLES = r"""
- name: Read the pools
  purelb.purelb.purelb_objects_info:
    kind: ServiceGroup
    namespace: purelb-system
  register: pools

- name: Show the number of available addresses of each pool
  ansible.builtin.debug:
    msg: "{{ item.metadata.name }}: {{ item.status.availableIPv4 | default('unknown') }}"
  loop: "{{ pools.objects }}"

- name: Check whether the Prometheus Operator is installed
  purelb.purelb.purelb_objects_info:
    api_version: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    names: [podmonitors.monitoring.coreos.com, prometheusrules.monitoring.coreos.com]
  register: definitions
"""

RETURN = r"""
served:
  description: Whether the API server serves the kind. If not, RV(objects) is empty.
  returned: success
  type: bool
  version_added: 0.1.0
objects:
  description: The objects, without managed fields.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.apply import objects
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import argspec, run


def main() -> None:
    spec = argspec.connection().merge(
        argspec.ArgumentSpec(
            {
                "api_version": {"type": "str", "default": "purelb.io/v2"},
                "kind": {"type": "str", "required": True},
                "namespace": {"type": "str"},
                "names": {"type": "list", "elements": "str", "default": []},
                "labels": {"type": "dict", "default": {}},
            }
        )
    )
    run.run(AnsibleModule(**spec.arguments(), supports_check_mode=True), objects.info)


if __name__ == "__main__":
    main()
