# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the options in module_utils/purelb/module/argspec.py."""

from __future__ import annotations


class ModuleDocFragment:
    """Input of a conversion from v1."""

    DOCUMENTATION = r"""
options:
  namespace:
    description:
      - Namespace of the v1 installation, and of its objects.
    type: str
    default: purelb
  target_namespace:
    description:
      - Namespace of the v2 installation and of the converted objects. The Leases of node agents are
        read there, too.
    type: str
    default: purelb-system
  node_subnets:
    description:
      - Subnets in which nodes have addresses.
      - By default they are read from the Leases of node agents in O(target_namespace). Without
        Leases they are derived from the Nodes, which contain addresses but no prefix lengths. The
        subnet of a v1 range that contains the address of a node is then taken as the subnet of
        that node. If a node has a subnet on an interface whose address is not in the Node object,
        list all subnets here.
    type: list
    elements: str
    default: []
  decisions:
    description:
      - Decisions, by name of the v1 group. V(local) and V(remote) put all its ranges into one group
        of that type. V(proposed) accepts the proposal, for example to split a group in two.
      - A decision answers the open question of a group. An invalid group must be corrected
        instead.
    type: dict
    default: {}
"""
