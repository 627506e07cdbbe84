# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import pytest

from purelb.core.errors import SettingError
from purelb.core.holding.messages import build_message, read_message
from purelb.core.holding.peer_keys import (
    PeerKeys,
    RotationStep,
    after_step,
    key_id,
    next_step,
    not_ready,
    parse_keys,
)

OLD, NEW, OTHER = b"old sixteen bytes", b"new sixteen bytes", b"other sixteen bytes"
ADD, SWITCH, REMOVE = RotationStep.ADD, RotationStep.SWITCH, RotationStep.REMOVE
# The Secret before a rotation and after each of its steps.
STATES = (
    {"key": OLD},
    {"key": OLD, "next": NEW},
    {"key": NEW, "previous": OLD},
    {"key": NEW},
)


class TestKeys:
    @pytest.mark.parametrize(
        ("data", "keys"),
        [
            ({"key": OLD}, PeerKeys(OLD)),
            ({"key": OLD, "next": NEW}, PeerKeys(OLD, (NEW,))),
            ({"key": NEW, "previous": OLD}, PeerKeys(NEW, (OLD,))),
            ({"key": OLD, "next": NEW, "previous": OTHER}, PeerKeys(OLD, (NEW, OTHER))),
            ({"key": OLD, "next": b"", "previous": b""}, PeerKeys(OLD)),
            ({"next": NEW}, None),
            ({"key": b""}, None),
            ({}, None),
        ],
        ids=["one", "next", "previous", "all", "empty", "no key", "empty key", "nothing"],
    )
    def test_key_signs_and_all_are_accepted(self, data, keys):
        assert parse_keys(data) == keys

    @pytest.mark.parametrize("name", ["key", "next", "previous"])
    def test_a_short_key_is_an_error_with_the_remedy(self, name):
        text = f"'{name}' has 15 bytes.*'{name}' of the Secret purelb-peers 16 random bytes or more"
        with pytest.raises(SettingError, match=text):
            parse_keys({"key": OLD, name: b"x" * 15})

    def test_an_id_is_short_and_differs_by_key(self):
        assert len(key_id(OLD)) == len(key_id(NEW)) == 8
        assert key_id(OLD) != key_id(NEW)
        assert PeerKeys(OLD, (NEW,)).ids == (key_id(OLD), key_id(NEW))

    def test_keys_are_not_printed(self):
        assert "sixteen" not in str(PeerKeys(OLD, (NEW,)))


def asked(data, *, peer):
    """A message to a peer from an agent that has these keys."""
    return build_message(parse_keys(data).signing, peer=peer, kind="k", nonce="n", body={})


class TestRotation:
    def test_the_steps_lead_from_the_old_key_to_the_new_one(self):
        data, steps = STATES[0], []
        for state in STATES[1:]:
            steps.append(next_step(data))
            data = after_step(data, steps[-1], new=NEW)
            assert data == state
        assert steps == [ADD, SWITCH, REMOVE]
        assert next_step(data) is ADD

    @pytest.mark.parametrize(
        ("one", "other"),
        [pair for step in itertools.pairwise(STATES) for pair in itertools.product(step, repeat=2)],
    )
    def test_agents_before_and_after_a_step_understand_each_other(self, one, other):
        read = read_message(parse_keys(other).accepted, asked(one, peer="b"), peer="b")
        assert read.key == parse_keys(one).signing

    def test_two_steps_at_once_would_part_them(self):
        """This is what a step waits for."""
        for one, other in zip(STATES, STATES[2:], strict=False):
            read = read_message(parse_keys(one).accepted, asked(other, peer="b"), peer="b")
            back = read_message(parse_keys(other).accepted, asked(one, peer="a"), peer="a")
            assert None in (read, back)

    def test_a_node_is_ready_when_it_publishes_exactly_the_keys_of_the_secret(self):
        old, new = key_id(OLD), key_id(NEW)
        published = {"n4": (new, old), "n3": (), "n2": (old, new), "n1": (old,)}
        keys = PeerKeys(OLD, (NEW,))
        assert list(not_ready(keys, published).items()) == [
            ("n1", (old,)),
            ("n3", ()),
            ("n4", (new, old)),
        ]
        assert not_ready(keys, {"n2": keys.ids}) == {}
