# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the answers of a service proxy mean."""

from __future__ import annotations

from itertools import accumulate, groupby

import pytest

from purelb.core.election.members import ServiceProxy
from purelb.core.node.service_proxy import Answer, ProxyHealth

ANSWERS = {"+": Answer.GOOD, "-": Answer.BAD, ".": Answer.NONE}
SHOWN = {
    ServiceProxy.UNKNOWN: "?",
    ServiceProxy.ABSENT: "a",
    ServiceProxy.WELL: "w",
    ServiceProxy.UNSURE: "u",
    ServiceProxy.ILL: "i",
}


def states(answers):
    """The state after each answer."""
    made = accumulate(
        (ANSWERS[answer] for answer in answers), ProxyHealth.answered, initial=ProxyHealth()
    )
    return "".join(SHOWN[health.state] for health in made)[1:]


def pauses(answers):
    """The seconds after each answer, as (how many in a row, seconds)."""
    made = accumulate(
        (ANSWERS[answer] for answer in answers), ProxyHealth.answered, initial=ProxyHealth()
    )
    asked = [health.asked_every for health in made][1:]
    return [(len(list(same)), seconds) for seconds, same in groupby(asked)]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param("+" * 50, [(50, 5.0)], id="there is one"),
        pytest.param("." * 50, [(23, 5.0), (27, 30.0)], id="there never was one in two minutes"),
        pytest.param("." * 30 + "+...", [(23, 5.0), (7, 30.0), (4, 5.0)], id="it starts late"),
        pytest.param("+" + "." * 50, [(51, 5.0)], id="it has ended"),
    ],
)
def test_it_is_asked_seldom_only_where_there_never_was_one(answers, expected):
    assert pauses(answers) == expected


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param("+++", "www", id="it works"),
        pytest.param("....", "aaaa", id="there never was one"),
        pytest.param("..+", "aaw", id="it starts later than the agent"),
        pytest.param("+.+.+", "wwwww", id="a single failure does not count"),
        pytest.param("+..+", "wwuw", id="two failures are doubtful"),
        pytest.param("+.....", "wwuuii", id="it ends"),
        pytest.param("+.-.-.", "wwuuii", id="it hangs and refuses"),
        pytest.param("+....+.+", "wwuuiiii", id="it comes and goes"),
        pytest.param("+....++", "wwuuiiw", id="it is back"),
        pytest.param("+....+++..", "wwuuiiwwwu", id="and ends again"),
        pytest.param("----", "uuui", id="it refuses from the beginning"),
        pytest.param(".---.", "auuii", id="it begins by refusing, and ends"),
        pytest.param("-+", "uw", id="it begins by refusing, and works"),
    ],
)
def test_states(answers, expected):
    assert states(answers) == expected
