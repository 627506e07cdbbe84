# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A rotation of the key in virtual time: agents read the Secret one after the other."""

from __future__ import annotations

import base64
import itertools
import json
from copy import deepcopy

import pytest

from purelb.apply import peer_key
from purelb.core.api import codec
from purelb.core.errors import SettingError
from purelb.core.holding.messages import build_message, read_message
from purelb.core.holding.peer_keys import parse_keys
from purelb.core.model import Lease
from purelb.module import polling
from purelb.module.errors import ApiError, ClusterError

NAMESPACE = "purelb-system"
OLD, NEW = b"old sixteen bytes", b"new sixteen bytes"
# Seconds after which each node's kubelet refreshes the Secret.
LAGS = {"n1": 5, "n2": 40, "n3": 80}
BEGIN = 1_000_000.0


class Nodes:
    """An API server with the Secret, and agents that read it late; the clock is the sum of pauses.

    After each write and each pause all live agents must understand each other.
    """

    def __init__(self, **data):
        self.now = 0.0
        self.secret = {
            "metadata": {"name": "purelb-peers", "resourceVersion": "1"},
            "data": {name: base64.b64encode(key).decode() for name, key in data.items()},
        }
        self.history = [(-1000.0, data)]
        self.lags = dict(LAGS)
        self.dead, self.without_keys = set(), set()
        self.interrupt_at = None

    @property
    def data(self):
        return {name: base64.b64decode(text) for name, text in self.secret["data"].items()}

    def keys(self, node):
        known = [data for at, data in self.history if at + self.lags[node] <= self.now]
        return parse_keys(known[-1])

    def assert_understanding(self):
        for asker, peer in itertools.permutations(self.lags.keys() - self.dead, 2):
            signing, accepted = self.keys(asker).signing, self.keys(peer).accepted
            asked = build_message(signing, peer=peer, kind="k", nonce="n", body={})
            assert read_message(accepted, asked, peer=peer) is not None

    def sleep(self, seconds):
        self.now += seconds
        self.assert_understanding()

    def get(self, kind, *, namespace, name):
        assert (kind.plural, namespace, name) == ("secrets", NAMESPACE, "purelb-peers")
        return deepcopy(self.secret)

    def patch(self, kind, *, namespace, name, patch):
        assert (kind.plural, namespace, name) == ("secrets", NAMESPACE, "purelb-peers")
        if patch["metadata"]["resourceVersion"] != self.secret["metadata"]["resourceVersion"]:
            raise ApiError("modified", status=409)
        self.secret["data"] = {name: text for name, text in patch["data"].items() if text}
        version = str(int(patch["metadata"]["resourceVersion"]) + 1)
        self.secret["metadata"]["resourceVersion"] = version
        self.history.append((self.now, self.data))
        self.assert_understanding()
        if len(self.history) - 1 == self.interrupt_at:
            raise KeyboardInterrupt
        return deepcopy(self.secret)

    def read_all(self, kind, *, namespace, convert, labelSelector):  # noqa: N803 - as the API calls it
        assert (kind.plural, namespace) == ("leases", NAMESPACE)
        return [convert(self._lease(node)) for node in self.lags]

    def _lease(self, node):
        age = 1000 if node in self.dead else 3
        ids = () if node in self.without_keys else self.keys(node).ids
        lease = Lease(node, holder=node, renew_time=BEGIN + self.now - age, peer_keys=ids)
        return codec.lease_body(lease, namespace=NAMESPACE)


@pytest.fixture
def start(monkeypatch):
    """Returns a function that starts the nodes with these keys in the Secret."""

    def begin(**data):
        nodes = Nodes(**data)
        monkeypatch.setattr(polling.time, "monotonic", lambda: nodes.now)
        monkeypatch.setattr(polling.time, "sleep", nodes.sleep)
        monkeypatch.setattr(peer_key.time, "time", lambda: BEGIN + nodes.now)
        return nodes

    return begin


def rotate(nodes, *, check_mode=False, seconds=300):
    params = {"namespace": NAMESPACE, "wait_timeout": seconds}
    return peer_key.rotate(nodes, params, check_mode)


def test_a_rotation_ends_when_all_agents_have_only_the_new_key(start):
    nodes = start(key=OLD)
    result = rotate(nodes)
    assert result["steps"] == ["add", "switch", "remove"]
    assert list(nodes.data) == ["key"]
    assert nodes.data["key"] != OLD
    assert len(nodes.data["key"]) == 64
    assert {nodes.keys(node).ids for node in LAGS} == {(result["key_id"],)}
    assert (result["changed"], result["nodes"], result["warnings"]) == (True, list(LAGS), [])
    # Each step waits for the slowest node, and no longer.
    assert 3 * 80 <= nodes.now <= 3 * 84


def test_no_key_is_in_the_result(start):
    nodes = start(key=OLD)
    text = json.dumps(rotate(nodes))
    for _at, data in nodes.history:
        for key in data.values():
            assert key.decode() not in text
            assert base64.b64encode(key).decode() not in text


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_run_after_an_interruption_finishes_the_rotation(start, writes):
    nodes = start(key=OLD)
    nodes.interrupt_at = writes
    with pytest.raises(KeyboardInterrupt):
        rotate(nodes)
    nodes.interrupt_at = None
    begun = nodes.data
    result = rotate(nodes)
    if writes < 3:
        assert result["steps"] == ["add", "switch", "remove"][writes:]
        assert nodes.data == {"key": begun.get("next", begun["key"])}
    assert OLD not in nodes.data.values()


@pytest.mark.parametrize(
    ("data", "steps"),
    [
        ({"key": OLD}, ["add", "switch", "remove"]),
        ({"key": OLD, "next": NEW}, ["switch", "remove"]),
        ({"key": NEW, "previous": OLD}, ["remove"]),
    ],
    ids=["before", "added", "switched"],
)
def test_check_mode_returns_the_steps_and_writes_nothing(start, data, steps):
    nodes = start(**data)
    result = rotate(nodes, check_mode=True)
    assert (result["steps"], result["changed"], nodes.data, nodes.now) == (steps, True, data, 0)
    assert result["key_id"] == parse_keys(data).ids[0]


def test_an_agent_that_does_not_follow_stops_the_rotation_before_it_is_parted(start):
    nodes = start(key=OLD)
    nodes.lags["n2"] = 100_000
    nodes.history[0] = (-200_000.0, nodes.data)
    with pytest.raises(ClusterError, match=r"within 100 s: n2 has [0-9a-f]{8}\. Every key"):
        rotate(nodes, seconds=100)
    assert sorted(nodes.data) == ["key", "next"]


def test_an_agent_of_an_older_version_keeps_a_rotation_from_beginning(start):
    nodes = start(key=OLD)
    nodes.without_keys.add("n3")
    with pytest.raises(ClusterError, match="n3 names no keys: its agent is of an older version"):
        rotate(nodes)
    assert nodes.data == {"key": OLD}


def test_a_node_without_a_live_agent_is_named_and_not_waited_for(start):
    nodes = start(key=OLD)
    nodes.dead.add("n3")
    nodes.without_keys.add("n3")
    result = rotate(nodes)
    assert result["nodes"] == ["n1", "n2"]
    assert result["warnings"][0].startswith("without a live agent, and not waited for: n3.")


def test_without_any_live_agent_nothing_is_written(start):
    nodes = start(key=OLD)
    nodes.dead |= set(LAGS)
    with pytest.raises(ClusterError, match="no agent renews its Lease in namespace purelb-system"):
        rotate(nodes)
    assert nodes.data == {"key": OLD}


class TestSecret:
    def test_one_that_is_missing_is_an_error_with_the_remedy(self, start):
        nodes = start(key=OLD)
        nodes.secret = None
        with pytest.raises(ClusterError, match="no Secret purelb-system/purelb-peers: set namesp"):
            rotate(nodes)

    @pytest.mark.parametrize("data", [{}, None], ids=["empty", "no data"])
    def test_one_without_a_key_is_an_error_with_the_remedy(self, start, data):
        nodes = start(key=OLD)
        nodes.secret["data"] = data
        with pytest.raises(ClusterError, match="has no 'key': delete it, install PureLB again"):
            rotate(nodes)

    def test_one_with_a_short_key_is_an_error_with_the_remedy(self, start):
        nodes = start(key=OLD)
        nodes.secret["data"]["next"] = base64.b64encode(b"short").decode()
        with pytest.raises(SettingError, match="'next' has 5 bytes"):
            rotate(nodes)

    def test_one_that_others_changed_is_left_to_the_next_run(self, start, monkeypatch):
        nodes = start(key=OLD)
        nodes.lags = dict.fromkeys(LAGS, 10)
        sleep = nodes.sleep

        def changed(seconds):
            nodes.secret["metadata"]["resourceVersion"] = "77"
            sleep(seconds)

        monkeypatch.setattr(polling.time, "sleep", changed)
        with pytest.raises(ClusterError, match="run this again to continue the rotation"):
            rotate(nodes)

    def test_another_error_of_a_write_is_passed_on(self, start, monkeypatch):
        nodes = start(key=OLD)

        def refuse(*_args, **_more):
            raise ApiError("not allowed to patch secrets", status=403)

        monkeypatch.setattr(nodes, "patch", refuse)
        with pytest.raises(ApiError, match="not allowed"):
            rotate(nodes)
