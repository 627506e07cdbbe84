#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_preflight_info
short_description: Look for what an installation of PureLB would harm, or what would prevent it
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Looks for other programs that give addresses to Services of type LoadBalancer (MetalLB, kube-vip, servicelb of k3s,
    Cilium, Calico, OpenELB, kube-router, the controllers of clouds, another PureLB), for Pods that have the host port of the
    agents, for another installation of this collection, for Pod security, quotas and webhooks that would refuse the agents'
    Pods, and for kube-proxy in IPVS mode without C(strictARP).
  - The role P(purelb.purelb.purelb_install#role) runs it before its first write.
  - Pods are refused or not in a dry run of one, if the namespace exists.
  - What the user may not read is an entry of RV(obstacles), not an error.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.reading
options:
  objects:
    description:
      - The objects of the installation that is to be made. The DaemonSet is required; a Namespace among them means that the
        installation sets its labels.
    type: list
    elements: dict
    required: true
  accept:
    description:
      - Names of obstacles that are known and do not stop the installation, such as V(metallb) or V(podSecurity).
    type: list
    elements: str
    default: []
seealso:
  - module: purelb.purelb.purelb_rollout_info
notes:
  - The user needs the verb get on the namespace and on C(daemonsets) in it, list on C(pods), C(nodes), C(services) and
    C(daemonsets) in the cluster, get on the C(configmap) kube-proxy in C(kube-system), and create on C(pods) in the namespace
    for the dry run.
"""

EXAMPLES = r"""
- name: Look what a folder of manifests would meet
  purelb.purelb.purelb_preflight_info:
    objects:
      - "{{ lookup('ansible.builtin.file', 'manifests/namespace.yaml') | from_yaml }}"
      - "{{ lookup('ansible.builtin.file', 'manifests/daemonset.yaml') | from_yaml }}"
  register: preflight

- name: Stop before anything is applied
  ansible.builtin.assert:
    that: preflight.obstacles | selectattr('stops') | length == 0
    fail_msg: "{{ preflight.obstacles | map(attribute='message') | join('; ') }}"
"""

RETURN = r"""
obstacles:
  description: What the installation would meet; first what stops it.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description:
        - The controller (C(metallb), C(kube-vip), C(servicelb), C(cilium), C(calico), C(openelb), C(kube-router),
          C(aws-load-balancer-controller), C(cloud-controller), C(purelb)), or one of C(port), C(otherInstallation),
          C(namespace), C(podSecurity), C(admission), C(addresses), C(strictARP) and C(unread).
      type: str
      returned: success
      sample: port
    message:
      description: What was found.
      type: str
      returned: success
      sample: port 7472 of worker-1 is taken by Pod metallb-system/speaker-x7k2p
    remediation:
      description: What to do about it.
      type: str
      returned: success
      sample: Set purelb_install_metrics_port to a free one, such as 7474
    stops:
      description: Whether the installation would do harm or could not work, and the name is not in O(accept).
      type: bool
      returned: success
      sample: true
labels_namespace:
  description:
    - Whether the installation may make the namespace or change its labels. It leaves one alone that others made.
  returned: success
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.apply import preflight
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import argspec, run


def main() -> None:
    spec = argspec.connection().merge(
        argspec.ArgumentSpec(
            {
                "objects": {"type": "list", "elements": "dict", "required": True},
                "accept": {"type": "list", "elements": "str", "default": []},
            }
        )
    )
    module = AnsibleModule(**spec.arguments(), supports_check_mode=True)
    run.run(module, preflight.preflight_info)


if __name__ == "__main__":
    main()
