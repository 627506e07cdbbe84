# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_address

import pytest

from purelb.core.node.announcing import Announcements
from purelb.core.settings import AnnounceConfig

PLACES = [(2, ip_address("192.0.2.1")), (2, ip_address("2001:db8::1"))]
CONFIG = AnnounceConfig(count=3, interval=0.5, delay=0.2)


@pytest.mark.parametrize("place", PLACES, ids=["v4", "v6"])
class TestSequence:
    def test_one_at_once_then_the_configured_ones(self, place):
        left, sent = Announcements().gained([place], CONFIG, now=0.0), []
        while left.next_at is not None:
            now = left.next_at
            left, due = left.due([place], CONFIG, now=now)
            sent += [(now, place) for place in due]
        assert sent == [(0.0, place), (0.2, place), (0.7, place), (1.2, place)]

    def test_nothing_is_sent_before_its_time(self, place):
        left, _due = Announcements().gained([place], CONFIG, now=0.0).due([place], CONFIG, now=0.0)
        assert left.due([place], CONFIG, now=0.1) == (left, [])

    def test_a_lost_address_is_announced_no_more(self, place):
        left, due = Announcements().gained([place], CONFIG, now=0.0).due([], CONFIG, now=0.0)
        assert (left.pending, due) == ({}, [])

    def test_a_lost_address_is_announced_no_more_though_others_are_held(self, place):
        other = next(known for known in PLACES if known != place)
        gained = Announcements().gained(PLACES, CONFIG, now=0.0)
        left, due = gained.due([other], CONFIG, now=0.0)
        assert (left.pending.keys(), due) == ({other}, [other])

    def test_times_that_passed_unnoticed_make_one_frame(self, place):
        left, due = Announcements().gained([place], CONFIG, now=0.0).due([place], CONFIG, now=60.0)
        assert (left.pending, due) == ({}, [place])

    def test_gained_again_starts_again(self, place):
        first = Announcements().gained([place], CONFIG, now=0.0)
        left, _due = first.due([place], CONFIG, now=0.9)
        assert left.gained([place], CONFIG, now=5.0).next_at == 5.0

    def test_nothing_is_sent_when_switched_off(self, place):
        off = AnnounceConfig(enabled=False)
        assert Announcements().gained([place], off, now=0.0).next_at is None

    def test_unverified_sequence_runs_to_its_end(self, place):
        blind = AnnounceConfig(count=1, interval=0.5, delay=0.2, verify=False)
        left, due = Announcements().gained([place], blind, now=0.0).due([], blind, now=0.0)
        assert due == [place]
        left, due = left.due([], blind, now=0.2)
        assert (left.pending, due) == ({}, [place])
