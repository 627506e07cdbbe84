# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache, cached_property

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.election.peers import (
    OutageAssessment,
    PeerAnswer,
    Question,
    assess_outage,
    build_question,
    build_reply,
    check_question,
    extended_deadline,
    own_answer,
    read_reply,
)
from purelb.core.settings import LeaseTiming

TIMING = LeaseTiming()
CAN, CANNOT, KNOWS, SILENT = PeerAnswer.CAN, PeerAnswer.CANNOT, PeerAnswer.KNOWS, PeerAnswer.SILENT
SPOKEN = [CAN, CANNOT, KNOWS]
CUT_OFF, HOLD, ISOLATED = (
    OutageAssessment.ALONE_CUT_OFF,
    OutageAssessment.HOLD,
    OutageAssessment.ISOLATED,
)
KEY = b"sixteen bytes or more"


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


class TestExtendedDeadline:
    @pytest.mark.parametrize(
        "timing",
        [LeaseTiming(), LeaseTiming(5.0, 3.5, 0.5), LeaseTiming(60.0, 59.0, 5.0)],
        ids=["default", "shortest", "long"],
    )
    def test_it_is_less_than_a_renewal_gives(self, timing):
        right = extended_deadline(100.0, timing)
        assert right.announce_until == 100.0 + timing.renew_deadline / 2
        assert right.hold_until == 100.0 + timing.renew_deadline
        assert 100.0 < right.announce_until < right.hold_until < 100.0 + timing.duration


class TestOwnAnswer:
    @pytest.mark.parametrize(
        ("could_renew", "heard", "expected"),
        [
            pytest.param(True, [], CAN, id="it could"),
            pytest.param(True, [100.0], CAN, id="it could, and heard of others"),
            pytest.param(False, [], CANNOT, id="it could not"),
            pytest.param(False, [100.0], KNOWS, id="it could not, but just heard of one"),
            pytest.param(False, [96.5], KNOWS, id="it heard of one a while ago"),
            pytest.param(False, [96.4, 12.0], CANNOT, id="what it heard is too old"),
            pytest.param(False, [12.0, 96.5], KNOWS, id="one of those it heard of is enough"),
        ],
    )
    def test_answer_depends_on_own_attempt_and_heard_answers(self, could_renew, heard, expected):
        answer = own_answer(could_renew=could_renew, heard=heard, now=100.0)
        assert answer is expected


def question(**changed):
    fields = {"asker": "a", "peer": "b", "nonce": "n", **changed}
    return build_question(KEY, **fields)


class TestQuestion:
    def test_a_question_is_read_by_the_peer_that_it_is_for(self):
        assert check_question([KEY], question(), peer="b") == Question("a", "n", KEY)

    def test_a_question_for_another_peer_is_none(self):
        assert check_question([KEY], question(), peer="c") is None

    def test_a_question_signed_with_another_key_is_none(self):
        assert check_question([KEY + b"!"], question(), peer="b") is None

    @pytest.mark.parametrize("keys", list(itertools.permutations([KEY, b"1" * 16, b"2" * 16])))
    def test_a_question_signed_with_any_of_the_keys_is_read_and_names_its_key(self, keys):
        assert check_question(keys, question(), peer="b") == Question("a", "n", KEY)

    def test_a_question_is_printed_without_its_key(self):
        assert "sixteen" not in str(check_question([KEY], question(), peer="b"))

    @pytest.mark.parametrize("name", ["PureLB-Asker", "PureLB-Nonce", "PureLB-Mac"])
    def test_a_question_that_lacks_a_header_is_none(self, name):
        headers = {header: text for header, text in question().items() if header != name}
        assert check_question([KEY], headers, peer="b") is None

    @given(
        st.sampled_from(["PureLB-Asker", "PureLB-Nonce", "PureLB-Mac"]),
        st.text(st.characters(exclude_categories=())),
    )
    def test_a_question_with_another_text_in_a_header_is_none(self, name, text):
        headers = question()
        if headers[name] != text:
            assert check_question([KEY], {**headers, name: text}, peer="b") is None

    def test_the_border_between_two_fields_is_signed_too(self):
        assert (
            question(asker="a", nonce="bn")["PureLB-Mac"]
            != question(asker="ab", nonce="n")["PureLB-Mac"]
        )


@pytest.mark.parametrize("answer", SPOKEN)
class TestReply:
    def reply(self, answer):
        return build_reply(KEY, peer="b", nonce="n", answer=answer)

    def test_a_reply_is_read_by_who_asked(self, answer):
        assert read_reply(KEY, peer="b", nonce="n", text=self.reply(answer)) is answer

    def test_a_reply_of_another_peer_is_silence(self, answer):
        assert read_reply(KEY, peer="c", nonce="n", text=self.reply(answer)) is SILENT

    def test_a_reply_signed_with_another_key_is_silence(self, answer):
        assert read_reply(KEY + b"!", peer="b", nonce="n", text=self.reply(answer)) is SILENT

    @given(st.text())
    def test_a_reply_to_another_question_is_silence(self, answer, nonce):
        if nonce != "n":
            assert read_reply(KEY, peer="b", nonce=nonce, text=self.reply(answer)) is SILENT

    def test_a_reply_with_any_bit_flipped_is_silence(self, answer):
        reply = self.reply(answer)
        for bit in range(len(reply) * 8):
            flipped = bytearray(reply)
            flipped[bit // 8] ^= 1 << bit % 8
            assert read_reply(KEY, peer="b", nonce="n", text=bytes(flipped)) is SILENT

    @given(st.data())
    def test_a_reply_cut_short_or_drawn_out_is_silence(self, answer, data):
        reply = self.reply(answer)
        cut = reply[: data.draw(st.integers(0, len(reply) - 1))]
        longer = reply + data.draw(st.binary(min_size=1, max_size=9))
        for text in (cut, longer):
            assert read_reply(KEY, peer="b", nonce="n", text=text) is SILENT

    def test_a_question_sent_back_is_silence(self, answer):
        mac = question()["PureLB-Mac"]
        text = f'{{"answer": "{answer.value}", "mac": "{mac}"}}'.encode()
        assert read_reply(KEY, peer="b", nonce="n", text=text) is SILENT


@given(st.binary())
def test_garbage_is_silence(text):
    assert read_reply(KEY, peer="b", nonce="n", text=text) is SILENT


def test_silent_is_never_a_valid_reply():
    text = build_reply(KEY, peer="b", nonce="n", answer=SILENT)
    assert read_reply(KEY, peer="b", nonce="n", text=text) is SILENT
