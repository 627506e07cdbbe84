# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The mutants, by what they break."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant
from tests.support.mutants.tables import (
    agent,
    allocation,
    counting,
    election,
    holder,
    leadership,
    outage,
    permissions,
    placing,
    right,
    wiring,
)

MUTANTS: tuple[Mutant, ...] = (
    *election.MUTANTS,
    *right.MUTANTS,
    *counting.MUTANTS,
    *permissions.MUTANTS,
    *outage.MUTANTS,
    *holder.MUTANTS,
    *leadership.MUTANTS,
    *placing.MUTANTS,
    *agent.MUTANTS,
    *allocation.MUTANTS,
    *wiring.MUTANTS,
)
