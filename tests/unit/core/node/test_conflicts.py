# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_address

import pytest

from purelb.core.names import MAX_DUPLICATES
from purelb.core.node.conflicts import (
    LISTED_FOR,
    MOST_ADDRESSES,
    MOST_HOSTS,
    ConflictDetector,
    DuplicateAddress,
    FoundDuplicates,
)
from purelb.core.node.packets import AddressClaim

LINK, OTHER_LINK = 2, 3
OWN, OWN_TOO = b"\x02\0\0\0\0\x01", b"\x02\0\0\0\0\x02"
STRANGER, ANOTHER = b"\x02\0\0\0\0\x0a", b"\x02\0\0\0\0\x0b"
BOTH = pytest.mark.parametrize(
    "vip", [ip_address("192.0.2.1"), ip_address("2001:db8::1")], ids=["v4", "v6"]
)


class Segment:
    """A node that got one address at 0, and what is said on its segment, in virtual time.

    `says` are (time, MAC, link); a host in `answering` (MAC -> from, until) claims the address
    10 ms after each probe.
    """

    def __init__(self, vip, *, says=(), answering=None, lost_at=None, nodes=None):
        self.vip = vip
        self.nodes = nodes or {}
        self.answering = answering or {}
        self.lost_at = lost_at
        self.probes, self.conflicts, self.settled, self.quiet = [], [], [], []
        self.claims = list(says)
        self.watch = ConflictDetector().holding(
            [(LINK, vip)], [OWN, OWN_TOO], nodes=self.nodes, now=0.0
        )

    def run(self, until):
        while (now := self._next()) is not None and now <= until:
            if now == self.lost_at:
                self.watch, self.lost_at = (
                    self.watch.holding([], [OWN, OWN_TOO], nodes={}, now=now),
                    None,
                )
            for claim in sorted(c for c in self.claims if c[0] == now):
                self.claims.remove(claim)
                self._hear(*claim)
            self.watch, settled = self.watch.settled(now=now)
            for was_claimed in settled.values():
                (self.settled if was_claimed else self.quiet).append(now)
            self.watch, due = self.watch.due(now=now)
            self.probes += [now] * len(due)
            self.claims += [
                (now + 0.01, mac, LINK)
                for mac, (begin, end) in self.answering.items()
                if due and begin <= now < end
            ]
        return self

    def _next(self):
        moments = [self.watch.next_at, self.lost_at, *(at for at, _mac, _link in self.claims)]
        return min((moment for moment in moments if moment is not None), default=None)

    def _hear(self, now, mac, link):
        self.watch, conflict = self.watch.heard(link, AddressClaim(mac, self.vip), now=now)
        if conflict is not None:
            assert conflict == DuplicateAddress(self.vip, LINK, mac, self.nodes.get(mac, ""))
            self.conflicts.append((now, mac))


ALWAYS = (0.0, float("inf"))


@BOTH
@pytest.mark.parametrize(
    ("segment", "probes", "conflicts"),
    [
        pytest.param({}, [2, 32, 62], [], id="no other host has it: probed now and then"),
        pytest.param(
            {"answering": {STRANGER: ALWAYS}},
            [2, 3.01, 33.01, 63.01],
            [(3.02, STRANGER)],
            id="a host that has it: confirmed, then reported once",
        ),
        pytest.param(
            {"answering": {STRANGER: ALWAYS, ANOTHER: ALWAYS}},
            [2, 3.01, 33.01, 63.01],
            [(3.02, STRANGER), (3.02, ANOTHER)],
            id="two hosts that have it: each is reported",
        ),
        pytest.param(
            {"says": [(10.0, STRANGER, LINK)], "answering": {STRANGER: (5, 99)}},
            [2, 11, 41],
            [(11.01, STRANGER)],
            id="a host that announces it is asked a second later",
        ),
        pytest.param(
            {"says": [(10.0, STRANGER, LINK)]},
            [2, 11, 41],
            [],
            id="a claim that no host stands by is no conflict",
        ),
        pytest.param(
            {"says": [(10.0, STRANGER, LINK), (10.5, STRANGER, LINK), (10.9, STRANGER, LINK)]},
            [2, 11, 41],
            [],
            id="claims that continue do not put off the probe",
        ),
        pytest.param(
            {"says": [(31.9, STRANGER, LINK)]},
            [2, 32.9, 62.9],
            [],
            id="a suspicion puts off the periodic probe, not to judge too early",
        ),
        pytest.param(
            {"says": [(32.5, STRANGER, LINK)]},
            [2, 32, 33.5, 63.5],
            [],
            id="a claim soon after a periodic probe is a suspicion only",
        ),
        pytest.param(
            {"says": [(10.0, STRANGER, LINK), (12.0, STRANGER, LINK)]},
            [2, 11, 41],
            [(12.0, STRANGER)],
            id="an answer a second after the probe still counts",
        ),
        pytest.param(
            {"says": [(10.0, STRANGER, LINK), (12.001, STRANGER, LINK)]},
            [2, 11, 13.001, 43.001],
            [],
            id="a later one is a new suspicion",
        ),
        pytest.param(
            {"says": [(10.0, STRANGER, LINK)], "answering": {STRANGER: ALWAYS}, "lost_at": 10.4},
            [2, 3.01],
            [(3.02, STRANGER)],
            id="an address that was given up is no longer probed",
        ),
        pytest.param(
            {"says": [(10.0, STRANGER, LINK), (11.5, STRANGER, LINK)], "lost_at": 10.4},
            [2],
            [],
            id="the rightful next holder is no conflict",
        ),
        pytest.param(
            {"says": [(10.0, STRANGER, LINK), (11.5, STRANGER, LINK)], "lost_at": 11.2},
            [2, 11],
            [],
            id="an address given up between probe and answer is no conflict",
        ),
        pytest.param(
            {"answering": {OWN: ALWAYS, OWN_TOO: ALWAYS}, "says": [(10.0, OWN_TOO, LINK)]},
            [2, 32, 62],
            [],
            id="an own MAC of any link is not foreign",
        ),
        pytest.param(
            {"says": [(10.0, STRANGER, OTHER_LINK), (11.1, STRANGER, OTHER_LINK)]},
            [2, 32, 62],
            [],
            id="a claim on another link is about another segment",
        ),
    ],
)
def test_what_is_probed_and_reported(vip, segment, probes, conflicts):
    seen = Segment(vip, **segment).run(until=70.0)
    assert seen.probes == pytest.approx(probes)
    assert [mac for _at, mac in seen.conflicts] == [mac for _at, mac in conflicts]
    assert [at for at, _mac in seen.conflicts] == pytest.approx([at for at, _mac in conflicts])


@BOTH
@pytest.mark.parametrize(
    ("back_after", "reported"),
    [
        pytest.param(0, 1, id="a conflict that lasts is reported once"),
        pytest.param(240, 1, id="a host that was away for four minutes is no news"),
        pytest.param(360, 2, id="a host that was away for six minutes is"),
    ],
)
def test_a_conflict_is_reported_again_only_after_five_minutes_of_absence(vip, back_after, reported):
    segment = Segment(vip, answering={STRANGER: ALWAYS}).run(until=1000.0)
    segment.answering = {}
    segment.run(until=1000.0 + back_after)
    segment.answering = {STRANGER: ALWAYS}
    segment.run(until=2000.0)
    assert [mac for _at, mac in segment.conflicts] == [STRANGER] * reported


@BOTH
def test_a_host_that_invents_macs_does_not_fill_the_log(vip):
    crowd = {bytes([2, 0, 0, 0, 1, n]): ALWAYS for n in range(3 * MOST_HOSTS)}
    assert len(Segment(vip, answering=crowd).run(until=100.0).conflicts) == MOST_HOSTS


@BOTH
def test_each_probe_that_no_host_answers_settles_quietly(vip):
    assert Segment(vip).run(until=70.0).quiet == [3, 33, 63]
    assert Segment(vip, answering={STRANGER: ALWAYS}).run(until=70.0).quiet == []


@BOTH
def test_an_address_gained_again_restarts(vip):
    place = (LINK, vip)
    watch = ConflictDetector().holding([place], [OWN], nodes={}, now=0.0)
    watch, _conflict = watch.heard(LINK, AddressClaim(STRANGER, vip), now=0.5)
    watch = watch.holding([], [OWN], nodes={}, now=1.0)
    assert watch.next_at is None
    assert watch.holding([place], [OWN], nodes={}, now=1.2).next_at == pytest.approx(3.2)


@BOTH
def test_an_address_that_stays_keeps_its_times_when_another_comes(vip):
    place, other = (LINK, vip), (OTHER_LINK, vip)
    watch = (
        ConflictDetector()
        .holding([place], [OWN], nodes={}, now=0.0)
        .holding([place, other], [OWN], nodes={}, now=1.0)
    )
    watch, due = watch.due(now=2.0)
    assert (due, watch.next_at) == ([place], 3.0)


@BOTH
@pytest.mark.parametrize(
    ("segment", "settled"),
    [
        pytest.param({}, [], id="no other host has it"),
        pytest.param({"says": [(10.0, STRANGER, LINK)]}, [12], id="it goes before it is probed"),
        pytest.param({"answering": {STRANGER: ALWAYS}}, [], id="a host that stays"),
        pytest.param({"answering": {STRANGER: (0, 40)}}, [64.01], id="it goes later"),
        pytest.param(
            {"answering": {STRANGER: (0, 40)}, "says": [(63.5, STRANGER, LINK)]},
            [94.01],
            id="it speaks while it is probed",
        ),
        pytest.param({"says": [(10.0, OWN_TOO, LINK)]}, [], id="a claim of the node itself"),
        pytest.param(
            {"says": [(10.0, STRANGER, LINK)], "lost_at": 11.5}, [], id="the address is lost"
        ),
    ],
)
def test_it_is_settled_when_a_probe_finds_no_host_that_had_claimed_it(vip, segment, settled):
    assert Segment(vip, **segment).run(100).settled == pytest.approx(settled)


def many(count):
    addresses = [ip_address(int(base) + n) for base in FIRST for n in range(count // 2)]
    return ConflictDetector().holding([(LINK, a) for a in addresses], [OWN], nodes={}, now=0.0)


NODES = {STRANGER: "n2", ANOTHER: "n3"}


@BOTH
class TestOtherNodes:
    """kube-proxy in IPVS mode: every node answers for every address."""

    def test_each_is_reported_once_for_an_address(self, vip):
        segment = Segment(vip, nodes=NODES, answering=dict.fromkeys(NODES, ALWAYS))
        assert [mac for _now, mac in segment.run(400).conflicts] == [STRANGER, ANOTHER]
        assert segment.watch.answering_nodes(400.0) == ("n2", "n3")

    def test_it_is_reported_for_a_few_addresses_only(self, vip):
        places = [(LINK, vip + n) for n in range(MOST_ADDRESSES + 2)]
        watch, found = ConflictDetector().holding(places, [OWN], nodes=NODES, now=0.0), []
        for second in range(2, 100):
            watch, due = watch.due(now=float(second))
            for link, address in due:
                claim = AddressClaim(STRANGER, address)
                watch, conflict = watch.heard(link, claim, now=second + 0.01)
                found += [conflict] if conflict else []
        assert len({conflict.address for conflict in found}) == len(found) == MOST_ADDRESSES
        assert watch.answering_nodes(100.0) == ("n2",)

    def test_it_is_reported_again_when_it_was_silent_for_long(self, vip):
        answering = {STRANGER: (0, 40), ANOTHER: (100, 200)}
        segment = Segment(vip, nodes=NODES, answering=answering).run(90)
        assert segment.watch.answering_nodes(76.0) == ("n2",)
        forgets_at = segment.watch.forgets_at(76.0)
        assert segment.watch.answering_nodes(forgets_at - 0.01) == ("n2",)
        assert segment.watch.answering_nodes(forgets_at) == ()
        assert segment.watch.forgets_at(forgets_at) is None
        assert segment.watch.answering_nodes(80.0) == ()
        assert segment.run(200).watch.answering_nodes(200.0) == ("n3",)
        assert [mac for _now, mac in segment.conflicts] == [STRANGER, ANOTHER]

    def test_a_host_outside_is_found_among_them(self, vip):
        nodes = {bytes([2, 0, 0, 0, 1, n]): f"m{n}" for n in range(MOST_HOSTS + 2)}
        answering = dict.fromkeys([*nodes, STRANGER], ALWAYS)
        segment = Segment(vip, nodes=nodes, answering=answering).run(100)
        assert {mac for _now, mac in segment.conflicts} == {*nodes, STRANGER}

    def test_it_is_announced_again_after_each_probe_while_they_answer(self, vip):
        segment = Segment(vip, nodes=NODES, answering={STRANGER: ALWAYS}).run(100)
        # First as urgent: hosts may look for it at the other node.
        assert segment.settled == pytest.approx([34.01])
        assert segment.quiet == pytest.approx([64.01, 94.01])

    def test_a_node_that_is_unknown_by_now_is_not_named(self, vip):
        segment = Segment(vip, nodes=NODES, answering={STRANGER: ALWAYS}).run(10)
        watch = segment.watch.holding([(LINK, vip)], [OWN], nodes={}, now=10.0)
        assert watch.answering_nodes(10.0) == ()


FIRST = (ip_address("198.18.0.0"), ip_address("2001:db8::"))

# When addresses that came within twelve seconds are probed in the end, and how many each time.
ROUNDS = ((32.0, 10), (42.0, 2))


class TestManyAddresses:
    def test_each_is_probed_in_each_period_and_never_more_than_a_hundred_in_a_second(self):
        watch, sent = many(1000), []
        while watch.next_at < 62.0:
            now = watch.next_at
            watch, settled = watch.settled(now=now)
            watch, due = watch.due(now=now)
            assert due or settled
            sent += [(now, place) for place in due]
        assert len(sent) == 2000
        assert len({place for now, place in sent if now < 32.0}) == 1000
        times = [now for now, _place in sent]
        assert max(sum(begin <= t < begin + 1.0 for t in times) for begin in set(times)) <= 100

    def test_addresses_that_came_one_after_the_other_are_soon_probed_together(self):
        watch, rounds = ConflictDetector(), []
        for number in range(12):  # one each second
            held = [(LINK, FIRST[0] + each) for each in range(number + 1)]
            watch = watch.holding(held, OWN, nodes={}, now=float(number))
            watch, _due = watch.due(now=float(number))
        while watch.next_at < 140.0:
            now = watch.next_at
            watch, _settled = watch.settled(now=now)
            watch, due = watch.due(now=now)
            rounds += [(now, len(due))] if due else []
        assert rounds == [
            (12.0, 1),
            (13.0, 1),
            *((begin + 30.0 * number, count) for number in range(4) for begin, count in ROUNDS),
        ]

    def test_nothing_is_sent_before_the_next_batch(self):
        watch, _due = many(1000).due(now=2.0)
        assert watch.due(now=2.1) == (watch, [])

    def test_suspect_is_probed_first(self):
        suspect = ip_address(int(FIRST[1]) + 499)
        watch, _conflict = many(1000).heard(LINK, AddressClaim(STRANGER, suspect), now=1.5)
        watch, _due = watch.due(now=2.4)
        assert (LINK, suspect) in watch.due(now=2.65)[1]

    def test_times_that_passed_unnoticed_make_one_probe(self):
        watch, due = many(2).due(now=600.0)
        watch, settled = watch.settled(now=watch.next_at)
        assert (len(due), len(settled), watch.next_at) == (2, 2, 630.0)

    def test_nothing_is_due_when_nothing_is_held(self):
        assert ConflictDetector().due(now=0.0) == (ConflictDetector(), [])
        assert ConflictDetector().next_at is None


@BOTH
class TestFoundDuplicates:
    def test_an_address_is_listed_for_an_hour_after_it_was_last_found(self, vip):
        found = FoundDuplicates().with_found(vip, now=0.0).with_found(vip, now=10.0)
        assert found.at(LISTED_FOR + 9.0) == (vip,)
        assert found.at(LISTED_FOR + 10.0) == ()

    def test_a_full_list_takes_no_more_until_one_has_ended(self, vip):
        found = FoundDuplicates()
        for number in range(MAX_DUPLICATES + 1):
            found = found.with_found(vip + number, now=float(number))
        assert found.at(0.0) == tuple(vip + number for number in range(MAX_DUPLICATES))
        found = found.with_found(vip, now=100.0).with_found(vip + 99, now=LISTED_FOR + 1.0)
        assert (vip in found.until, vip + 1 in found.until) == (True, False)
        assert found.at(LISTED_FOR + 1.0)[-1] == vip + 99
