# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_address

import pytest

from purelb.core.election.outside import OutsideAddress, outside_text, read_outside
from purelb.core.model import PoolType, ServiceKey
from purelb.core.names import MAX_OUTSIDE

WEB = ServiceKey("default", "web")
KNOWN = [
    OutsideAddress(ip_address("172.28.1.5"), PoolType.LOCAL, WEB),
    OutsideAddress(ip_address("fd28::5"), PoolType.REMOTE, WEB),
]
TEXT = "172.28.1.5,local,default/web fd28::5,remote,default/web"


def test_the_text_is_read_as_it_was_written():
    assert outside_text(reversed(KNOWN)) == TEXT
    assert list(read_outside(TEXT)) == KNOWN
    assert list(read_outside("")) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "x,local,a/b",
        "10.0.0.1,all,a/b",
        "10.0.0.1,local,a",
        "10.0.0.1,local,a/b/c",
        "10.0.0.1",
        ",",
    ],
)
def test_what_is_no_entry_is_left_out(wrong):
    assert list(read_outside(f"{wrong} {TEXT}")) == KNOWN


def test_no_more_is_written_or_read_than_a_lease_should_hold():
    first, service = KNOWN[0].address, str(WEB)
    many = [OutsideAddress(first + n, PoolType.LOCAL, WEB) for n in range(MAX_OUTSIDE + 1)]
    assert list(read_outside(outside_text(many))) == many[:-1]
    text = " ".join(f"{known.address},local,{service}" for known in many)
    assert list(read_outside(text)) == many[:-1]
