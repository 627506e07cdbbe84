# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The steps from an installation of v1 to this one; each can be repeated, also half-way.

How far it has got is in a ConfigMap beside v1, with the checksum of the backup. At no time may two
programs hold one address: what v1 serves is left alone by v2 until v1 has let go of it.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from ..audit import cluster_reader
from ..core import names
from ..core.audit.findings import Severity
from ..module.errors import ClusterError
from ..module.kube import Cluster, Object
from ..module.manifests import reference
from . import backup, conversion, handover
from .context import AGENT, ALLOCATOR, BACKED_UP, DONE, HANDED_OVER, VERIFIED, MigrationContext
from .rollback import discard, roll_back


def manage(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_migrate."""
    passage = MigrationContext(cluster, params, check_mode=check_mode)
    step = _STEPS[params["step"]]
    result = step(passage, params)
    return {**passage.result(), **result}


def _status(passage: MigrationContext, _params: Dict[str, Any]) -> Dict[str, Any]:
    """How far it is; changes nothing."""
    return {"v1_programs": [reference(obj) for obj in passage.programs_of_v1()]}


def _preview(passage: MigrationContext, params: Dict[str, Any]) -> Dict[str, Any]:
    """What becomes what; fails while a human has to decide."""
    if passage.phase:
        return {"objects": list(passage.backup().becomes)}
    found = _convert(passage, passage.read("ServiceGroup", "LBNodeAgent"), params)
    open_groups = _open(found, accepts=params["accept"])
    if not open_groups:
        return found
    texts = [f"{one['group']}: {one['question']}" for one in open_groups]
    return {
        **found,
        "failed": True,
        "msg": "Nothing is changed. Decide with decisions (local, remote or proposed, by the name "
        "of the group), or take what is proposed with accept; correct a group that cannot be read. "
        + "; ".join(texts),
    }


def _convert(
    passage: MigrationContext, old: List[Object], params: Dict[str, Any]
) -> Dict[str, Any]:
    found = conversion.info(passage.cluster, {**params, "definitions": old}, check_mode=True)
    found.pop("changed")
    return found


def _open(found: Dict[str, Any], *, accepts: bool) -> List[Dict[str, Any]]:
    """The questions that nobody has answered; to what cannot be read there is no answer."""
    invalid = {one["group"] for one in found["groups"] if one["reason"] == "invalid"}
    questions: List[Dict[str, Any]] = found["questions"]
    return [one for one in questions if not accepts or one["group"] in invalid]


def _back_up(passage: MigrationContext, params: Dict[str, Any]) -> Dict[str, Any]:
    """Keep everything in a file, and what becomes of it."""
    if passage.phase:
        passage.backup()
        return {}
    passage.check_start()
    found = passage.read_all()
    old = [obj for obj in found if obj["kind"] in ("ServiceGroup", "LBNodeAgent")]
    review = _convert(passage, old, params)
    if _open(review, accepts=params["accept"]):
        raise ClusterError("step: back_up comes after preview, which says what is to be decided")
    passage.keep(backup.take(found, review["objects"]))
    return {}


def _hand_over(passage: MigrationContext, params: Dict[str, Any]) -> Dict[str, Any]:
    """Let v2 have the Services: those chosen one after the other, or all at once."""
    if not passage.is_at(BACKED_UP, before=(HANDED_OVER, VERIFIED, DONE)):
        return {"remaining": []}
    becomes = passage.backup().becomes
    passage.stop(passage.old(ALLOCATOR))
    for obj in becomes:
        passage.apply(obj)
    _move_one_by_one(passage, params)
    remaining = [obj for obj in passage.services() if handover.is_of_v1(obj)]
    if params["services"] and remaining:
        return {"remaining": [_name(obj) for obj in remaining]}
    passage.stop(passage.old(AGENT))
    _take_the_rest(passage, remaining, becomes)
    _await_health(passage)
    passage.reach(HANDED_OVER)
    return {"remaining": []}


def _move_one_by_one(passage: MigrationContext, params: Dict[str, Any]) -> None:
    chosen = set(params["services"])
    found = {_name(obj): obj for obj in passage.services()}
    unknown = chosen - found.keys()
    if unknown:
        raise ClusterError(
            f"services: there is no Service {', '.join(sorted(unknown))}: write namespace/name of "
            "Services of type LoadBalancer"
        )
    for name, obj in sorted(found.items()):
        # A class that v2 does not claim has to be another one in any case.
        is_foreign = handover.class_of(obj) is not None
        is_asked = params["one_by_one"] or name in chosen or is_foreign
        if handover.is_moving(obj) or (handover.is_of_v1(obj) and is_asked):
            _move(passage, obj, delay=params["delay"])


def _move(passage: MigrationContext, service: Object, *, delay: float) -> None:
    """Let one Service leave v1 and arrive at v2, with its addresses."""
    now = service
    if not handover.is_moving(now):
        now = passage.patch(now, handover.leaving(now))
    if passage.check_mode:
        return  # the Service has not left, so it cannot arrive
    if not handover.is_balancer(now):
        # v1 sees it as soon as we do, and says nothing when it has let go.
        passage.sleep(delay)
        now = passage.patch(now, handover.arriving(now, handover.CLASS))
    now = passage.await_object(now, _is_announced, "v2 gives it its addresses and announces them")
    passage.patch(now, handover.settling(now))


def _is_announced(service: Object) -> bool:
    """Whether v2 has given a Service all that it asks for, and somebody announces each address."""
    shown = handover.addresses_of(service)
    annotations = service["metadata"].get("annotations") or {}
    asked = annotations.get(names.ADDRESSES_ANNOTATION, "")
    told = " ".join(annotations.get(key, "") for key in names.ANNOUNCING_ANNOTATIONS.values())
    named = {part for entry in told.split() for part in entry.split(",")[2:]}
    return set(asked.split(",")) <= set(shown) and set(shown) <= named


def _take_the_rest(
    passage: MigrationContext, services: List[Object], becomes: Tuple[Object, ...]
) -> None:
    groups = handover.readable(becomes)
    # v1 has gone: until this is written nobody announces them.
    passage.patch_all(services, lambda one: handover.typed(one, groups))


def _verify(passage: MigrationContext, _params: Dict[str, Any]) -> Dict[str, Any]:
    """Whether everything works and every Service has the addresses of before."""
    if not passage.is_at(HANDED_OVER, before=(VERIFIED, DONE)):
        return {}
    _await_health(passage)
    others = backup.readdressed(passage.services(), passage.backup())
    if others:
        raise ClusterError(f"other addresses than before: {', '.join(others)}")
    passage.reach(VERIFIED)
    return {}


def _await_health(passage: MigrationContext) -> None:
    """Wait until an audit finds no error."""

    def look() -> List[str]:
        params = {"namespace": passage.target, "leader_locks": None}
        found = cluster_reader.lease_info(passage.cluster, params, check_mode=True)["findings"]
        bad = [one for one in found if one["severity"] == Severity.ERROR.value]
        return [f"{one['object']}: {one['message']}: {one['remediation']}" for one in bad]

    passage.await_nothing(look, "the audit finds errors")


def _remove_v1(passage: MigrationContext, _params: Dict[str, Any]) -> Dict[str, Any]:
    """Remove the programs and objects of v1; nothing is stored as v1 after that."""
    if not passage.is_at(VERIFIED, before=(DONE,)):
        return {}
    for name in (ALLOCATOR, AGENT):
        passage.remove(passage.old(name))
    for obj in passage.backup().of("ServiceGroup", "LBNodeAgent"):
        if passage.there(obj) is not None:
            passage.drop(obj)
    passage.store_anew()
    return {}


def _finish(passage: MigrationContext, _params: Dict[str, Any]) -> Dict[str, Any]:
    """Remember that all of it is done."""
    if passage.is_at(VERIFIED, before=(DONE,)):
        passage.reach(DONE)
    return {}


def _name(obj: Object) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


_STEPS: Dict[str, Callable[[MigrationContext, Dict[str, Any]], Dict[str, Any]]] = {
    "status": _status,
    "preview": _preview,
    "back_up": _back_up,
    "hand_over": _hand_over,
    "verify": _verify,
    "remove_v1": _remove_v1,
    "finish": _finish,
    "roll_back": roll_back,
    "discard": discard,
}
STEPS = tuple(_STEPS)
