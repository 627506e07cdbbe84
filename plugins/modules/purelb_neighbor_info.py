#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_neighbor_info
short_description: Show who answers for an address on a segment
version_added: 0.1.0
author:
  - PureLB for Ansible authors (@purelb)
description:
  - Runs on a host of the segment, asks for each address by ARP requests (IPv4) or neighbour solicitations (IPv6), and
    returns the MAC addresses of all that answer. An address that two hosts have shows two.
  - Choose a host that is no node of the cluster. A host does not answer itself, so what it has itself is not seen.
  - Register its result and give RV(answers) to M(purelb.purelb.purelb_verify), which knows who should answer.
options:
  vips:
    description:
      - Addresses to ask for. They must be on a segment of the host; remote addresses, which a router finds, are not.
    type: list
    elements: str
    required: true
  interface:
    description:
      - Interface to ask on; by default the one that the host's routes say, for each address.
    type: str
  timeout:
    description:
      - Seconds to wait for answers, in all. All are waited for, as a second one may come later.
    type: float
    default: 1.5
  count:
    description:
      - How often to ask for each address, evenly spread over O(timeout).
    type: int
    default: 3
attributes:
  check_mode:
    support: full
    description: Changes nothing, but sends its questions in check mode, too.
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
  - It asks as any client asks, with its own address, and no host takes it for another one that wants the address.
"""

EXAMPLES = r"""
- name: Ask who has two addresses
  hosts: client
  become: true
  gather_facts: false
  tasks:
    - name: Ask the segment
      purelb.purelb.purelb_neighbor_info:
        vips: [192.168.1.240, "fd00:1::240"]
      register: segment

    - name: Fail unless exactly one host answers for each
      ansible.builtin.assert:
        that: item.macs | length == 1
      loop: "{{ segment.answers }}"
"""

RETURN = r"""
answers:
  description: Who answered, for each address asked for.
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
      description: The interface that was asked on.
      type: str
      returned: success
      sample: eth0
    macs:
      description: MAC addresses of all that answered.
      type: list
      elements: str
      returned: success
      sample: ["02:00:00:00:00:01"]
    own:
      description: Whether this host has the address itself.
      type: bool
      returned: success
      sample: false
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.audit import neighbors
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import finish


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "vips": {"type": "list", "elements": "str", "required": True},
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
