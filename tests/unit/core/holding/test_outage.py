# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache, cached_property

import pytest

from purelb.core.holding.deadline import HoldDeadline
from purelb.core.holding.outage import (
    CanRenew,
    Heard,
    OutageAnswer,
    OutageAssessment,
    OutageQuestion,
    PeerAnswer,
    Round,
    assess_outage,
    can_renew_body,
    extended_deadline,
    next_round,
    outage_answer_body,
    outage_question_body,
    own_answer,
    promise_seconds,
    read_can_renew,
    read_outage_answer,
    read_outage_question,
)
from purelb.core.holding.right import Right
from purelb.core.settings import LeaseTiming

TIMING = LeaseTiming()
CAN, CANNOT, KNOWS, SILENT = PeerAnswer.CAN, PeerAnswer.CANNOT, PeerAnswer.KNOWS, PeerAnswer.SILENT
SPOKEN = [CAN, CANNOT, KNOWS]
CUT_OFF, HOLD, ISOLATED = (
    OutageAssessment.ALONE_CUT_OFF,
    OutageAssessment.HOLD,
    OutageAssessment.ISOLATED,
)


class TestAssessment:
    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            pytest.param([], HOLD, id="a cluster of one node"),
            pytest.param([CANNOT], HOLD, id="both of two"),
            pytest.param([SILENT], ISOLATED, id="one of two is not more than half"),
            pytest.param([CANNOT, SILENT], HOLD, id="two of three"),
            pytest.param([SILENT, SILENT], ISOLATED, id="one of three"),
            pytest.param([CANNOT, SILENT, SILENT], ISOLATED, id="two of four"),
            pytest.param([CANNOT, CANNOT, SILENT, SILENT], HOLD, id="three of five"),
            pytest.param([CAN], CUT_OFF, id="the other one can"),
            pytest.param([CAN, CANNOT, CANNOT, CANNOT], CUT_OFF, id="one that can is enough"),
            pytest.param([KNOWS, CANNOT, CANNOT, CANNOT], CUT_OFF, id="one that knows is enough"),
            pytest.param([CAN, SILENT, SILENT], CUT_OFF, id="one that can among silent ones"),
        ],
    )
    def test_what_the_peers_said_decides(self, said, expected):
        answers = {f"peer-{number}": answer for number, answer in enumerate(said)}
        assert assess_outage(["me", *answers], "me", answers) is expected

    def test_a_peer_without_an_answer_is_silent(self):
        assert assess_outage(["me", "a", "b"], "me", {"a": CANNOT}) is HOLD
        assert assess_outage(["me", "a", "b"], "me", {}) is ISOLATED

    def test_one_that_said_unasked_that_it_can_renew_is_believed(self):
        answers = {"a": CANNOT, "b": CANNOT}
        assert assess_outage(["me", *answers], "me", answers, told=True) is CUT_OFF

    def test_only_members_count(self):
        strangers = {"x": CANNOT, "y": CANNOT, "me": CANNOT}
        assert assess_outage(["me", "a", "b"], "me", strangers) is ISOLATED

    def test_a_node_counts_itself_where_the_snapshot_lacks_it(self):
        assert assess_outage(["a", "b"], "me", {"a": CANNOT}) is HOLD
        assert assess_outage(["a", "b", "c"], "me", {"a": CANNOT}) is ISOLATED


@dataclass(frozen=True)
class Cluster:
    """Who reaches the API, and who reaches whom: node -> its neighbours."""

    able: frozenset[int]
    neighbours: tuple[frozenset[int], ...]

    @property
    def nodes(self):
        return frozenset(range(len(self.neighbours)))

    @property
    def unable(self):
        return self.nodes - self.able

    @property
    def is_whole(self):
        return all(near == self.nodes - {node} for node, near in enumerate(self.neighbours))

    def answer(self, peer):
        """What a peer says to each of its neighbours: by itself, or what it heard directly."""
        if peer in self.able:
            return CAN
        return KNOWS if self.neighbours[peer] & self.able else CANNOT

    @cached_property
    def holders(self):
        said = [self.answer(peer) for peer in self.nodes]
        return [
            node
            for node in self.unable
            if assessment(
                node,
                tuple(
                    answer if peer in self.neighbours[node] else SILENT
                    for peer, answer in enumerate(said)
                ),
            )
            is HOLD
        ]

    def side(self, node):
        """All nodes that this one reaches over any number of links."""
        found, new = frozenset(), frozenset({node})
        while new:
            found |= new
            new = frozenset().union(*(self.neighbours[member] for member in new)) - found
        return found


@cache
def assessment(node, said):
    answers = {str(peer): answer for peer, answer in enumerate(said) if peer != node}
    return assess_outage(map(str, range(len(said))), str(node), answers)


def subsets(things):
    things = list(things)
    return itertools.chain.from_iterable(
        itertools.combinations(things, size) for size in range(len(things) + 1)
    )


@cache
def clusters():
    """Each cluster of 1 to 5 nodes, with each set of links, with each set of nodes that can renew.

    2 + 2*4 + 8*8 + 64*16 + 1024*32 = 33866 of them; none is left out for symmetry.
    """
    return [
        Cluster(frozenset(able), neighbours)
        for size in range(1, 6)
        for links in subsets(itertools.combinations(range(size), 2))
        for neighbours in [
            tuple(
                frozenset(end for link in links if node in link for end in link) - {node}
                for node in range(size)
            )
        ]
        for able in subsets(range(size))
    ]


class TestAllClustersOfUpToFiveNodes:
    def test_all_of_them_are_there(self):
        assert len(set(clusters())) == 33866
        assert any(cluster.holders for cluster in clusters() if not cluster.is_whole)

    def test_all_hold_when_the_api_is_down_and_no_link_is_cut(self):
        for cluster in clusters():
            if cluster.is_whole and not cluster.able:
                assert cluster.holders == list(cluster.nodes)

    def test_no_node_holds_if_a_reachable_node_can_renew(self):
        for cluster in clusters():
            if cluster.is_whole and cluster.able:
                assert cluster.holders == []

    def test_none_holds_that_reaches_a_node_that_can_renew(self):
        for cluster in clusters():
            for node in cluster.holders:
                assert not cluster.neighbours[node] & cluster.able

    def test_none_holds_that_reaches_a_node_that_reaches_one_that_can_renew(self):
        for cluster in clusters():
            for node in cluster.holders:
                for peer in cluster.neighbours[node]:
                    assert not cluster.neighbours[peer] & cluster.able

    def test_a_node_that_holds_sees_more_than_half_of_all_agree(self):
        for cluster in clusters():
            for node in cluster.holders:
                agreeing = cluster.neighbours[node] & cluster.unable | {node}
                assert len(agreeing) * 2 > len(cluster.nodes)

    def test_two_nodes_that_hold_reach_each_other_over_one_node_at_most(self):
        for cluster in clusters():
            for one, other in itertools.combinations(cluster.holders, 2):
                near = cluster.neighbours[one]
                assert other in near or near & cluster.neighbours[other]

    def test_of_the_parts_of_a_cluster_that_has_come_apart_one_at_most_holds(self):
        for cluster in clusters():
            assert len({cluster.side(node) for node in cluster.holders}) <= 1

    def test_the_order_in_which_nodes_and_answers_come_does_not_matter(self):
        for said in itertools.product(PeerAnswer, repeat=3):
            answers = list(zip("abc", said, strict=True))
            outlooks = {
                assess_outage(members, "me", dict(ordered))
                for members in itertools.permutations(["a", "b", "c", "me"])
                for ordered in itertools.permutations(answers)
            }
            assert len(outlooks) == 1

    def test_a_majority_holds_though_a_node_that_none_of_it_reaches_can_renew(self):
        """The limit of what asking can tell: a crashed node is as silent as a cut cable."""
        together = frozenset({0, 1})
        cluster = Cluster(frozenset({2}), (together - {0}, together - {1}, frozenset()))
        assert cluster in clusters()
        assert cluster.holders == [0, 1]


class TestNextRound:
    """Renewals that fail since 98; the last one that succeeded gave a Lease of 10 s."""

    right = Right(LeaseTiming(), "n1-a", failing_since=98.0)

    @pytest.mark.parametrize(
        ("timing", "seconds"),
        [(LeaseTiming(12.0, 9.0, 2.0), 12.0), (LeaseTiming(3.0, 2.7, 0.6), 10.0)],
        ids=["longer", "shorter"],
    )
    def test_it_asks_for_the_longer_of_the_last_lease_and_the_next(self, timing, seconds):
        asked = next_round(self.right, timing, now=100.0)
        assert asked.question("n1") == OutageQuestion("n1", 2.0, seconds)

    def test_a_renewal_that_only_takes_long_fails_since_now(self):
        right = replace(self.right, failing_since=None)
        assert next_round(right, LeaseTiming(), now=100.0) == Round(100.0, 100.0, LeaseTiming())


class TestExtendedDeadline:
    @pytest.mark.parametrize(
        "timing",
        [LeaseTiming(), LeaseTiming(5.0, 3.5, 0.5), LeaseTiming(60.0, 59.0, 5.0)],
        ids=["default", "shortest", "long"],
    )
    def test_it_is_less_than_a_renewal_gives(self, timing):
        right = extended_deadline(Round(99.0, 100.0, timing), {})
        assert right.announce_until == 100.0 + timing.renew_deadline / 2
        assert right.hold_until == 100.0 + timing.renew_deadline
        assert 100.0 < right.announce_until < right.hold_until < 100.0 + timing.duration

    @pytest.mark.parametrize(
        ("promised", "seconds"), [(10.0, 7.0), (60.0, 7.0), (5.0, 3.5), (0.0, 0.0)]
    )
    def test_where_less_was_promised_it_is_shorter(self, promised, seconds):
        said = {
            "n2": OutageAnswer(CANNOT, promised=60.0),
            "n3": OutageAnswer(CANNOT, promised=promised),
            "n4": OutageAnswer(SILENT),
        }
        right = extended_deadline(Round(99.0, 100.0, LeaseTiming()), said)
        assert (right.announce_until, right.hold_until) == (100 + seconds / 2, 100 + seconds)


# A renewal that was sent at 98 or at 90.
LATELY, EARLIER = Heard(100.0, 98.0), Heard(100.0, 90.0)


class TestOwnAnswer:
    @pytest.mark.parametrize(
        ("can_renew", "heard", "expected"),
        [
            pytest.param(True, [], CAN, id="it can"),
            pytest.param(True, [LATELY], CAN, id="it can, and heard of others"),
            pytest.param(False, [], CANNOT, id="it cannot"),
            pytest.param(False, [LATELY], KNOWS, id="it cannot, but just heard of one"),
            pytest.param(False, [Heard(96.5, 95.0)], KNOWS, id="it heard of one a while ago"),
            pytest.param(
                False, [Heard(96.4, 96.0), Heard(12.0, 11.0)], CANNOT, id="that is too old"
            ),
            pytest.param(False, [EARLIER], CANNOT, id="one that renewed before the asker failed"),
            pytest.param(False, [EARLIER, LATELY], KNOWS, id="one of those is enough"),
        ],
    )
    def test_answer_depends_on_own_renewal_and_heard_answers(self, can_renew, heard, expected):
        question = OutageQuestion("n1", 5.0, 10.0)
        said = {f"n{number}": each for number, each in enumerate(heard, start=2)}
        answer = own_answer(question, said, TIMING, can_renew=can_renew, now=100.0)
        assert answer is expected

    def test_what_the_asker_said_is_not_passed_on_to_it(self):
        question = OutageQuestion("n2", 5.0, 10.0)
        answer = own_answer(question, {"n2": LATELY}, TIMING, can_renew=False, now=100.0)
        assert answer is CANNOT

    @pytest.mark.parametrize(
        ("asked", "own", "seconds"),
        [(3.0, 3.0, 1.05), (10.0, 3.0, 3.5), (3.0, 10.0, 3.5), (0.0, 3.0, 3.5), (60.0, 60.0, 3.5)],
    )
    def test_who_can_is_passed_on_until_both_have_asked_again(self, asked, own, seconds):
        """An asker of 0.1.0 does not say for how long its Lease lasts."""
        question, timing = OutageQuestion("n1", 5.0, asked), LeaseTiming(own, 0.9 * own, own / 5)
        answers = {
            own_answer(question, {"n2": Heard(100.0 - ago, 99.0)}, timing, can_renew=False, now=100)
            for ago in (0.0, seconds - 0.01)
        }
        assert answers == {KNOWS}
        late = {"n2": Heard(100.0 - seconds - 0.01, 99.0)}
        assert own_answer(question, late, timing, can_renew=False, now=100.0) is CANNOT


NO_SECONDS = [None, "1", True, -0.1, float("inf"), float("nan"), 10**400, [], {}]


class TestBodies:
    @pytest.mark.parametrize("seconds", [0, 0.25, 7])
    def test_a_question_is_read_as_it_was_written(self, seconds):
        question = OutageQuestion("n1", seconds, 10.0)
        assert read_outage_question(outage_question_body(question)) == question

    @pytest.mark.parametrize("answer", SPOKEN)
    def test_an_answer_is_read_as_it_was_written(self, answer):
        said = OutageAnswer(answer, 1.5, 10.0)
        assert read_outage_answer(outage_answer_body(said)) == said

    @pytest.mark.parametrize("answer", ["silent", "may", None, 1, []])
    def test_another_answer_is_none(self, answer):
        assert read_outage_answer({"answer": answer, "age": 0, "promised": 0}) is None

    def test_that_a_node_can_renew_is_read_as_it_was_written(self):
        can = CanRenew("n1", 2.5)
        assert read_can_renew({"epoch": "e.1", **can_renew_body(can)}) == can

    def test_a_node_that_cannot_renew_says_nothing_of_it(self):
        assert can_renew_body(None) == {}
        assert read_can_renew({"age": 1.0}) is None

    def test_what_agents_of_an_earlier_version_say_is_read(self):
        question = read_outage_question({"asker": "n1", "failingFor": 1})
        assert question == OutageQuestion("n1", 1.0, 0.0)
        assert promise_seconds(question, LeaseTiming()) == 10.0
        said = {"n2": read_outage_answer({"answer": "cannot", "age": 0})}
        assert extended_deadline(Round(-1.0, 0.0, LeaseTiming()), said) == HoldDeadline(3.5, 7.0)

    @pytest.mark.parametrize("seconds", NO_SECONDS, ids=str)
    def test_what_has_no_number_of_seconds_is_none(self, seconds):
        question = {"asker": "n1", "failingFor": 1, "duration": 10}
        assert read_outage_question({**question, "failingFor": seconds}) is None
        assert read_outage_question({**question, "duration": seconds}) is None
        answer = {"answer": "can", "age": 1, "promised": 0}
        assert read_outage_answer({**answer, "age": seconds}) is None
        assert read_outage_answer({**answer, "promised": seconds}) is None
        assert read_can_renew({"can": "n1", "age": seconds}) is None
