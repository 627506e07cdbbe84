# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: a stolen token of n3 writes its Lease as it likes, and its agent runs, too."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest

from purelb.core.election.election import rank
from purelb.core.holding.messages import answer_body, question_body
from purelb.core.holding.permissions import Pair, PermissionAnswer, PermissionQuestion
from purelb.core.settings import LONGEST_DURATION
from purelb.core.times import format_time
from tests.unit.simulation.schedules.story import ASKED, TAKEOVER, THREE, at_work, must

NAMESPACE, MAIL = "purelb-system", "purelb.io/mail"
FOR_EVER = 2_147_483_647


def lease_of(cluster, node):
    return cluster.find("leases", NAMESPACE, f"purelb-node-{node}")


def write(cluster, **annotations):
    """Write the Lease of n3 for ever, with these annotations, as a renewal of its agent."""
    body = deepcopy(lease_of(cluster, "n3"))
    body["metadata"]["annotations"] |= {f"purelb.io/{k}": text for k, text in annotations.items()}
    body["spec"] |= {
        "leaseDurationSeconds": FOR_EVER,
        "renewTime": format_time(cluster.timeline.now / 1e6),
    }
    cluster.put("leases", NAMESPACE, "purelb-node-n3", body)


def epoch_of(cluster, node):
    return lease_of(cluster, node)["metadata"]["annotations"]["purelb.io/epoch"]


def lying_mail(cluster, number, epoch):
    """Say to both others that n3 has all addresses, and that the other one's Lease has ended."""
    every = frozenset(cluster.addresses())
    epochs = {peer: epoch_of(cluster, peer) for peer in ("n1", "n2")}
    questions, answers = [], []
    for peer, there in epochs.items():
        # One that has not met the others, and one that has.
        has = Pair(there, borrowed=every) if number % 2 else None
        question = PermissionQuestion(
            asker="n3", epoch=epoch, peer=peer, peer_epoch=there, nonce=f"lie {number}",
            wants=every, moves=every, holds=every, has=has,
            promised=tuple((node, 1e308) for node in epochs),
        )  # fmt: skip
        questions.append(question_body(question))
        said = PermissionAnswer("", has=Pair(there, borrowed=every), ended=tuple(epochs.items()))
        mail = json.loads((lease_of(cluster, peer)["metadata"]["annotations"]).get(MAIL, "{}"))
        nonces = (asked["nonce"] for asked in mail.get("questions", ()))
        answers += [{"asker": peer, **answer_body(said), "nonce": nonce} for nonce in nonces]
    return json.dumps({"questions": questions, "answers": answers})


def unheld_of_others(cluster, history):
    """For how long an address was on no node and does not rank n3 first."""
    return max(
        sum(seconds for seconds, holders in history.spans(address) if not holders)
        for address in cluster.addresses()
        if rank(THREE, address)[0] != "n3"
    )


def lie_for(cluster, seconds, say):
    for number in range(seconds):
        say(number)
        cluster.run(1)


@pytest.mark.parametrize("is_cut", [False, True], ids=["reached", "out of reach"])
def test_what_it_says_it_has_takes_nothing_from_others(is_cut):
    with at_work() as (cluster, history):
        if is_cut:
            cluster.network.cut |= {frozenset({"n3", peer}) for peer in ("n1", "n2")}
            cluster.run(30)
        before = {address: cluster.holders(address) for address in cluster.addresses()}
        assert {"n3"} < {node for holders in before.values() for node in holders}

        def say(number):
            epoch = f"lie.{number // 4}"
            write(cluster, epoch=epoch, mail=lying_mail(cluster, number, epoch))

        lie_for(cluster, 60, say)
        must(unheld_of_others(cluster, history) < ASKED, "an address was taken")
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        cluster.network.cut.clear()
        cluster.run(LONGEST_DURATION + TAKEOVER)
        assert {address: cluster.holders(address) for address in before} == before


def test_an_epoch_that_its_agent_has_not_reached_takes_nothing_for_longer_than_it_is_written():
    with at_work() as (cluster, history):
        token = epoch_of(cluster, "n3").rpartition(".")[0]
        write(cluster, epoch=f"{token}.999999999")
        cluster.run(10)
        assert epoch_of(cluster, "n3").startswith(f"{token}-1.")
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        cluster.power_off(cluster.nodes["n3"])
        cluster.run(LONGEST_DURATION + TAKEOVER)
        must(all(cluster.holders(a) in (["n1"], ["n2"]) for a in cluster.addresses()), "unheld")
        must(unheld_of_others(cluster, history) < ASKED, "an address was taken")
