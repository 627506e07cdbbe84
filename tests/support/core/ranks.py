# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses by who ranks first for them."""

from __future__ import annotations

from purelb.core.election.election import rank


def won_by(node, first, *, nodes=("n1", "n2")):
    """The first address from `first` on that this one of the nodes wins."""
    return next(a for a in (first + n for n in range(10)) if rank(nodes, a)[0] == node)
