# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The numbers in the memory that the programs read."""

from __future__ import annotations

import struct

from purelb_agent.fence.control import Control


def test_each_number_has_its_place():
    memory = bytearray(4096)
    control = Control(memory)
    control.open_until(1.5)
    control.stand_until(2.25)
    assert struct.unpack_from("=QQQ", memory) == (1_500_000_000, 2_250_000_000, 0)
    memory[16:24] = struct.pack("=Q", 7)
    assert control.drops == 7
    control.close()


def test_no_right_and_no_end():
    memory = bytearray(24)
    control = Control(memory)
    control.open_until(5.0)
    control.open_until(None)
    control.stand_until(float("inf"))
    assert struct.unpack_from("=QQ", memory) == (0, (1 << 64) - 1)
    control.open_until(-1.0)
    assert struct.unpack_from("=Q", memory) == (0,)
