# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The numbers in the memory that the programs read."""

from __future__ import annotations

import struct

import pytest

from purelb.core.node.left import Opened
from purelb_agent.fence.control import Control
from purelb_agent.runtime import clock


def test_each_number_has_its_place():
    memory = bytearray(4096)
    control = Control(memory)
    control.open_until(1.5)
    control.clean()
    control.stand_until(2.25)
    assert struct.unpack_from("=QQQ", memory) == (1_500_000_000, 2_250_000_000, 0)
    memory[16:24] = struct.pack("=Q", 7)
    assert control.drops == 7
    control.close()


def test_no_right_and_no_end():
    memory = bytearray(24)
    control = Control(memory)
    control.open_until(5.0)
    control.clean()
    control.open_until(None)
    control.stand_until(float("inf"))
    assert struct.unpack_from("=QQ", memory) == (0, (1 << 64) - 1)
    control.open_until(-1.0)
    control.clean()
    assert struct.unpack_from("=Q", memory) == (0,)


class TestOpened:
    """It opens only once nothing is left of a right that has ended."""

    @pytest.fixture
    def control(self):
        return Control(bytearray(24))

    def test_it_waits_until_all_is_clean(self, control, virtual_clock):
        now = clock.now()
        control.open_until(now + 10)
        assert control.opened is Opened.NOT_YET
        control.clean()
        assert control.opened is Opened.EVER_SINCE
        virtual_clock.advance(9)
        control.open_until(now + 20)
        virtual_clock.advance(10)
        assert control.opened is Opened.EVER_SINCE
        virtual_clock.advance(1)
        assert control.opened is Opened.SHUT

    def test_after_a_gap_it_waits_again(self, control, virtual_clock):
        control.open_until(clock.now() + 10)
        control.clean()
        virtual_clock.advance(10)
        control.open_until(clock.now() + 10)
        assert control.opened is Opened.SHUT
        control.clean()
        assert control.opened is Opened.EVER_SINCE

    def test_the_next_agent_knows_until_when_it_is_open(self, virtual_clock):
        moment = bytearray(8)
        control = Control(bytearray(24), moment)
        control.open_until(clock.now() + 5)
        assert Control(bytearray(24), moment).opened is Opened.NOT_YET
        control.clean()
        control.open_until(clock.now() + 10)
        virtual_clock.advance(9.9)
        following = Control(bytearray(24), moment)
        assert following.opened is Opened.BEFORE
        # It has no right yet, and says so; the one after it knows all the same.
        following.open_until(None)
        assert Control(bytearray(24), moment).opened is Opened.BEFORE
        virtual_clock.advance(0.1)
        assert following.opened is Opened.NOT_YET
        assert Control(bytearray(24), moment).opened is Opened.NOT_YET

    def test_who_gives_up_its_right_says_so(self):
        moment = bytearray(8)
        control = Control(bytearray(24), moment)
        control.open_until(clock.now() + 10)
        control.clean()
        control.open_until(None)
        assert Control(bytearray(24), moment).opened is Opened.NOT_YET

    def test_a_clean_node_without_a_right_stays_shut(self, control):
        control.clean()
        assert control.opened is Opened.NOT_YET
        control.open_until(clock.now() + 10)
        assert control.opened is Opened.NOT_YET
        control.clean()
        control.open_until(None)
        control.clean()
        assert control.opened is Opened.SHUT
