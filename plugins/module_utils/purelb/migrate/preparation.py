# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The steps before anything is changed: status, preview, back_up."""

from __future__ import annotations

from typing import Any, Dict, List

from ..module.errors import ClusterError
from ..module.kube import Object
from ..module.manifests import reference
from . import backup, conversion
from .context import MigrationContext
from .reader import CONFIGURATION_KINDS, PROGRAMS
from .sharing import with_sharing
from .step import Outcome


def status(context: MigrationContext) -> Outcome:
    """Returns the programs of v1 that exist; the phase is part of every result."""
    return Outcome({"v1_programs": [reference(obj) for obj in context.reader.v1_programs()]})


def preview(context: MigrationContext) -> Outcome:
    """Returns the v2 objects; failed, with the open questions, while a decision is missing."""
    converted = _convert(context, context.reader.v1_configuration())
    questions = _open_questions(converted, accept=context.params["accept"])
    if not questions:
        return Outcome(converted)
    texts = "; ".join(f"{question['group']}: {question['question']}" for question in questions)
    message = (
        "Nothing is changed. Decide with decisions (local, remote or proposed, by name of the "
        f"group), accept all proposals with accept, or correct a group that is invalid. {texts}"
    )
    return Outcome({**converted, "failed": True, "msg": message})


def saved_preview(context: MigrationContext) -> Outcome:
    """Returns the v2 objects that the backup contains."""
    return Outcome({"objects": list(context.backup().becomes)})


def back_up(context: MigrationContext) -> Outcome:
    """Write all objects that a migration changes, and the v2 objects, to the backup file."""
    _check_start(context)
    found = context.reader.everything()
    converted = _convert(context, [obj for obj in found if obj["kind"] in CONFIGURATION_KINDS])
    if _open_questions(converted, accept=context.params["accept"]):
        raise ClusterError("step: back_up needs the decisions that preview lists: run preview")
    context.save_backup(backup.take(found, converted["objects"]))
    return _writers(context)


def check_backup(context: MigrationContext) -> Outcome:
    """Read the backup, and so raise ClusterError if it is missing or another one."""
    context.backup()
    return _writers(context)


def _writers(context: MigrationContext) -> Outcome:
    return Outcome({"annotation_writers": context.reader.annotation_writers()})


def _check_start(context: MigrationContext) -> None:
    """Raise ClusterError unless v1 runs and a file for the backup is given."""
    found = [reference(obj) for obj in context.reader.v1_programs()]
    expected = [reference(context.v1_program(program)) for program in PROGRAMS]
    missing = [text for text in expected if text not in found]
    if missing:
        raise ClusterError(
            f"there is no {' and no '.join(missing)}: set namespace to the namespace of v1"
        )
    if not context.params["backup"]:
        raise ClusterError("backup: give the file to write, on the machine that runs the module")


def _convert(context: MigrationContext, v1_objects: List[Object]) -> Dict[str, Any]:
    params = {**context.params, "definitions": v1_objects}
    converted = conversion.info(context.cluster, params, check_mode=True)
    converted.pop("changed")
    converted["objects"] = with_sharing(converted["objects"], context.reader.services())
    return converted


def _open_questions(converted: Dict[str, Any], *, accept: bool) -> List[Dict[str, Any]]:
    """Returns the questions without an answer; `accept` answers all but those of invalid groups."""
    invalid = {group["group"] for group in converted["groups"] if group["reason"] == "invalid"}
    questions: List[Dict[str, Any]] = converted["questions"]
    return [question for question in questions if not accept or question["group"] in invalid]
