# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Texts of the options in module_utils/purelb/argspec.py."""

from __future__ import annotations


class ModuleDocFragment:
    """What is converted from v1, and what is known and decided about it."""

    DOCUMENTATION = r"""
options:
  namespace:
    description:
      - Namespace of the v1 installation, and of its objects.
    type: str
    default: purelb
  target_namespace:
    description:
      - Namespace of the v2 installation, which its objects get. The Leases of node agents are
        looked for there, too.
    type: str
    default: purelb-system
  node_subnets:
    description:
      - Subnets in which nodes have addresses.
      - Without this they are taken from the Leases of node agents in O(target_namespace). Where
        there are none, they are taken from the Nodes, which know their addresses but not the
        masks; the subnet of each v1 range that holds the address of a node is taken for the subnet
        of that node. A subnet on an interface whose address the Node object does not show has to
        be given here, with all others.
    type: list
    elements: str
    default: []
  decisions:
    description:
      - What groups are to be, by the name of the v1 group. V(local) and V(remote) put all of its
        ranges into one group of that kind. V(proposed) takes what is proposed, for example to
        split a group in two.
      - A group with a decision asks no more. A group that cannot be read has to be corrected; no
        decision helps there.
    type: dict
    default: {}
"""
