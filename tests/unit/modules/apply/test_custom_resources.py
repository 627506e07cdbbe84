# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""ServiceGroups and LBNodeAgents from a task's options."""

from __future__ import annotations

from typing import Any

import pytest

from purelb.apply import custom_resources
from purelb.core.errors import ObjectError
from purelb.module import specs
from purelb.module.errors import ClusterError

V4 = {"pool": "10.0.0.10-10.0.0.20", "subnet": "10.0.0.0/24"}
V6 = {"pool": "fd00::10-fd00::20", "subnet": "fd00::/64"}
FAMILIES = pytest.mark.parametrize(("family", "pool"), [("v4pool", V4), ("v6pool", V6)])


@pytest.fixture
def cluster(purelb_cluster: Any) -> Any:
    return purelb_cluster


def params(options: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    return {
        **dict.fromkeys(options),
        "name": "one",
        "namespace": "purelb-system",
        "state": "present",
        "labels": None,
        "annotations": None,
        "force_conflicts": False,
        "wait": False,
        "wait_timeout": 0,
        **given,
    }


def group(cluster: Any, *, check_mode: bool = False, **given: Any) -> Any:
    wanted = params(specs.service_group().options, given)
    return custom_resources.manage_service_group(cluster, wanted, check_mode)


def agent(cluster: Any, *, check_mode: bool = False, **given: Any) -> Any:
    wanted = params(specs.node_agent().options, given)
    return custom_resources.manage_node_agent(cluster, wanted, check_mode)


@FAMILIES
def test_a_group_is_created_once(cluster: Any, family: str, pool: Any):
    made = group(cluster, local={family: pool}, labels={"tier": "gold"})
    assert (made["action"], made["changed"], made["warnings"]) == ("created", True, [])
    assert made["object"]["spec"] == {"local": {family: pool}}
    assert made["object"]["metadata"]["labels"] == {"tier": "gold"}
    again = group(cluster, local={family: pool}, labels={"tier": "gold"})
    assert (again["action"], again["changed"], again["diff"]) == ("unchanged", False, [])


def test_a_change_is_shown(cluster: Any):
    group(cluster, local={"v4pool": V4})
    changed = group(cluster, local={"v4pool": V4, "skip_ipv6_dad": True})
    (difference,) = changed["diff"]
    assert "skipIPv6DAD" not in difference["before"]["spec"]["local"]
    assert difference["after"]["spec"]["local"]["skipIPv6DAD"]


def test_check_mode_writes_nothing(cluster: Any):
    assert group(cluster, local={"v4pool": V4}, check_mode=True)["action"] == "created"
    assert agent(cluster, check_mode=True)["action"] == "created"
    assert cluster.writes == []


def test_an_error_names_the_option_and_sends_no_request(cluster: Any):
    with pytest.raises(ObjectError) as error:
        group(cluster, remote={"v6pools": [V6, {**V6, "pool": "fd00:1::/120"}]})
    assert str(error.value).startswith("ServiceGroup purelb-system/one: remote.v6pools[1]: pool")
    with pytest.raises(ObjectError, match=r"one: local.garp_config.interval_ms: is 0.05 s"):
        agent(cluster, local={"garp_config": {"interval_ms": 50}})
    assert cluster.writes == []


@FAMILIES
def test_an_overlap_with_another_group_is_a_warning(cluster: Any, family: str, pool: Any):
    group(cluster, name="other", local={family: pool})
    # The group itself does not count, and invalid groups are skipped.
    group(cluster, remote={family: pool})
    cluster.stored["servicegroups", "purelb-system", "bad"] = {"metadata": {"name": "bad"}}
    (warning,) = group(cluster, local={family: pool})["warnings"]
    assert "ServiceGroup one" in warning
    assert "ServiceGroup other overlap" in warning


def test_an_external_group_overlaps_with_nothing(cluster: Any):
    result = group(cluster, external={"provider": "ours", "announce": "local", "socket": None})
    assert result["warnings"] == []
    assert result["object"]["spec"] == {"external": {"provider": "ours", "announce": "local"}}


def test_settings_for_the_same_nodes_are_a_warning(cluster: Any):
    agent(cluster, name="other", local={})
    (warning,) = agent(cluster, local={})["warnings"]
    assert "one and other select the same nodes" in warning


@pytest.fixture
def nodes(cluster: Any) -> None:
    for name, rack in (("n1", "a"), ("n2", "b"), ("n3", "b")):
        labels = {"rack": rack}
        cluster.stored["nodes", None, name] = {"metadata": {"name": name, "labels": labels}}


RACK_A = {"match_labels": {"rack": "a"}}
ALONE = "no LBNodeAgent selects n2, n3, so they announce nothing: create one without"


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("check_mode", [False, True])
def test_that_no_object_selects_some_nodes_is_a_warning(cluster: Any, *, check_mode: bool):
    (warning,) = agent(cluster, node_selector=RACK_A, check_mode=check_mode)["warnings"]
    assert warning.startswith(ALONE)
    assert agent(cluster, name="all", check_mode=check_mode)["warnings"] == []


@pytest.mark.usefixtures("nodes")
def test_so_it_is_where_the_object_for_the_others_is_removed(cluster: Any):
    agent(cluster, name="all")
    assert agent(cluster, node_selector=RACK_A)["warnings"] == []
    (warning,) = agent(cluster, name="all", state="absent")["warnings"]
    assert warning.startswith(ALONE)
    # Without any, all nodes have the defaults.
    assert agent(cluster, state="absent")["warnings"] == []


@pytest.mark.usefixtures("nodes")
def test_who_may_not_read_nodes_is_told_what_is_not_known(cluster: Any):
    cluster.forbidden.add("nodes")
    (warning,) = agent(cluster, node_selector=RACK_A)["warnings"]
    assert warning.startswith("whether each node has an LBNodeAgent is not known: ")


def test_an_object_without_settings_has_the_defaults(cluster: Any):
    assert agent(cluster)["object"]["spec"] == {"local": {}}


def test_an_expression_that_matches_anywhere_in_a_name_is_a_warning(cluster: Any):
    (warning,) = agent(cluster, local={"local_interface": "eth0"})["warnings"]
    assert "also one of the name eth0.100" in warning
    assert agent(cluster, local={"local_interface": "^eth0$"})["warnings"] == []


@pytest.mark.parametrize("manage", [group, agent])
def test_removal_needs_only_a_name(cluster: Any, manage: Any):
    given = {"local": {"v4pool": V4}} if manage is group else {}
    manage(cluster, **given)
    for action, changed in (("deleted", True), ("absent", False)):
        result = manage(cluster, state="absent")
        assert (result["action"], result["changed"]) == (action, changed)
        assert result["object"] is None


def condition(cluster: Any, *, generation: int = 1, status: str = "True") -> None:
    """Set the condition that the allocator writes when a group is applied."""
    apply = cluster.apply

    def with_condition(kind: Any, body: Any, **rest: Any) -> Any:
        ready = {"type": "Ready", "status": status, "observedGeneration": 1}
        ready |= {"reason": "Overlap", "message": "choose other addresses"}
        status_ = {"conditions": [{"type": "Other", "status": "True"}, ready]}
        metadata = {**body["metadata"], "generation": generation}
        return apply(kind, {**body, "metadata": metadata, "status": status_}, **rest)

    cluster.apply = with_condition


def test_waiting_ends_when_the_group_is_accepted(cluster: Any):
    condition(cluster)
    assert group(cluster, local={"v4pool": V4}, wait=True)["object"]["status"]["conditions"]


def test_a_refused_group_is_an_error_with_its_reason(cluster: Any):
    condition(cluster, status="False")
    with pytest.raises(ClusterError, match="is not accepted: Overlap: choose other addresses"):
        group(cluster, local={"v4pool": V4}, wait=True)


def test_the_condition_of_an_earlier_generation_does_not_count(cluster: Any):
    condition(cluster, generation=2)
    with pytest.raises(ClusterError, match="not accepted after 0 s: it has no condition Ready"):
        group(cluster, local={"v4pool": V4}, wait=True)


def test_check_mode_does_not_wait(cluster: Any):
    assert group(cluster, local={"v4pool": V4}, wait=True, check_mode=True)["changed"]
