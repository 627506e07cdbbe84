# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The way from an installation of v1 to v2 and back, as a table of steps.

Every step can be repeated, also after it was interrupted: it starts from what it finds, and the
phase is recorded in the cluster (see `progress`).
"""

from __future__ import annotations

from typing import Any, Dict

from ..module.errors import ClusterError
from ..module.kube import Cluster
from . import completion, preparation, rollback, transfer
from .context import MigrationContext
from .progress import BACKED_UP, DONE, HANDED_OVER, NOT_STARTED, ROLLING_BACK, VERIFIED
from .step import Outcome, Step, nothing

_STARTED = (BACKED_UP, HANDED_OVER, VERIFIED, DONE, ROLLING_BACK)
_ALL = (NOT_STARTED, *_STARTED)

# Step, phases in which it runs, function, next phase (None: the same), whether it writes.
STEPS = (
    Step("status", _ALL, preparation.status, None, writes=False),
    Step(
        "preview", (NOT_STARTED,), preparation.preview, None, writes=False,
        done_in=_STARTED, when_done=preparation.saved_preview,
    ),
    Step(
        "back_up", (NOT_STARTED,), preparation.back_up, BACKED_UP, writes=True,
        done_in=_STARTED, when_done=preparation.check_backup,
    ),
    Step(
        "hand_over", (BACKED_UP,), transfer.hand_over, HANDED_OVER, writes=True,
        done_in=(HANDED_OVER, VERIFIED, DONE), when_done=transfer.nothing_remains,
    ),
    Step(
        "verify", (HANDED_OVER,), completion.verify, VERIFIED, writes=True,
        done_in=(VERIFIED, DONE),
    ),
    Step("remove_v1", (VERIFIED,), completion.remove_v1, None, writes=True, done_in=(DONE,)),
    Step("finish", (VERIFIED,), nothing, DONE, writes=True, done_in=(DONE,)),
    Step(
        "roll_back", (BACKED_UP, HANDED_OVER, VERIFIED, ROLLING_BACK), rollback.roll_back,
        ROLLING_BACK, writes=True, is_recorded_first=True,
        refusals={
            NOT_STARTED: "there is no migration to roll back",
            DONE: "there is nothing to roll back to: v1 is removed; its objects are in the backup",
        },
    ),
    Step(
        "discard", (ROLLING_BACK,), rollback.discard, NOT_STARTED, writes=True,
        done_in=(NOT_STARTED,),
        refusals={
            phase: f"the migration is at {phase}: discard ends a migration that was rolled back"
            for phase in (BACKED_UP, HANDED_OVER, VERIFIED, DONE)
        },
    ),
)  # fmt: skip
_BY_NAME = {step.name: step for step in STEPS}


def manage(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_migrate."""
    step = _BY_NAME[params["step"]]
    context = MigrationContext(cluster, params, check_mode=check_mode or not step.writes)
    outcome = _run(step, context)
    return {**context.result(), **outcome.values}


def _run(step: Step, context: MigrationContext) -> Outcome:
    phase = context.progress.phase
    if phase in step.done_in:
        return step.when_done(context)
    if phase not in step.runs_in:
        raise ClusterError(step.refusals.get(phase) or _refusal(step, phase))
    if step.next_phase is not None and step.is_recorded_first:
        # From here on only a rollback is possible, so the backup must be readable.
        context.backup()
        context.progress.reach(step.next_phase)
    outcome = step.run(context)
    if step.next_phase is not None and not step.is_recorded_first and outcome.is_complete:
        context.progress.reach(step.next_phase)
    return outcome


def _refusal(step: Step, phase: str) -> str:
    return (
        f"the migration is at {phase or 'its beginning'}, and {step.name} comes after "
        f"{' or '.join(step.runs_in)}: run the playbook purelb.purelb.migrate, which runs the "
        "steps in order"
    )
