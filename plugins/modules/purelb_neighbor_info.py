#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_neighbor_info
short_description: Show which hosts answer for an address on a segment
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Runs on a host of the segment, sends ARP requests (IPv4) or neighbor solicitations (IPv6) for each address, and
    returns the MAC addresses of all hosts that reply. For a duplicate address these are two.
  - Use a host that is not a node of the cluster. A host does not reply to itself, so its own addresses are missed.
  - Register the result and pass RV(answers) to M(purelb.purelb.purelb_verify), which knows the expected host.
options:
  vips:
    description:
      - Addresses to resolve. They must be on a segment of the host; addresses of remote pools are routed, so they are
        not.
    type: list
    elements: str
    required: true
  skip_routed:
    description:
      - Whether to return addresses that are on no segment of this host in RV(skipped), instead of failing.
    type: bool
    default: false
  interface:
    description:
      - Interface to send requests on; by default the one to which the host routes the address.
    type: str
  timeout:
    description:
      - Seconds to wait for replies, in total. The module always waits that long, to detect duplicates.
    type: float
    default: 1.5
  count:
    description:
      - Number of requests for each address, evenly distributed over O(timeout).
    type: int
    default: 3
attributes:
  check_mode:
    support: full
    description: Changes nothing, but sends its requests in check mode, too.
  diff_mode:
    support: N/A
    description: Never changes anything.
requirements:
  - scapy >= 2.5.0 (where the module runs)
  - root, or the capability C(NET_RAW)
seealso:
  - module: purelb.purelb.purelb_vip_info
  - module: purelb.purelb.purelb_verify
notes:
  - The requests have the host's own source address, like those of any client. No host mistakes them for duplicate
    address detection.
"""

EXAMPLES = r"""
- name: Find the hosts of two addresses
  hosts: client
  become: true
  gather_facts: false
  tasks:
    - name: Resolve the addresses
      purelb.purelb.purelb_neighbor_info:
        vips: [192.168.1.240, "fd00:1::240"]
      register: segment

    - name: Fail unless exactly one host replies for each
      ansible.builtin.assert:
        that: item.macs | length == 1
      loop: "{{ segment.answers }}"
"""

RETURN = r"""
answers:
  description: Replies for each requested address.
  returned: success
  type: list
  elements: dict
  contains:
    address:
      description: The address.
      type: str
      returned: success
      sample: 192.168.1.240
    family:
      description: C(IPv4) or C(IPv6).
      type: str
      returned: success
      sample: IPv4
    interface:
      description: The interface on which the requests were sent.
      type: str
      returned: success
      sample: eth0
    macs:
      description: MAC addresses of all hosts that replied.
      type: list
      elements: str
      returned: success
      sample: ["02:00:00:00:00:01"]
    own:
      description: Whether this host has the address itself.
      type: bool
      returned: success
      sample: false
skipped:
  description: Addresses that are on no segment of this host, with O(skip_routed).
  returned: success
  type: list
  elements: str
  sample: [10.0.2.240]
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.audit import neighbors
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import finish


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "vips": {"type": "list", "elements": "str", "required": True},
            "skip_routed": {"type": "bool", "default": False},
            "interface": {"type": "str"},
            "timeout": {"type": "float", "default": 1.5},
            "count": {"type": "int", "default": 3},
        },
        supports_check_mode=True,
    )
    if neighbors.IMPORT_ERROR is not None:
        module.fail_json(msg=missing_required_lib("scapy"), exception=neighbors.IMPORT_ERROR)
    finish.finish(module, lambda: neighbors.neighbor_info(module.params))


if __name__ == "__main__":
    main()
