# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The kinds of faults of which schedules are made, and how they are told.

To add one: write what it does into `effects`, and add a row to KINDS.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from purelb.core.node.rtnetlink import RTM_DELADDR, RTM_GETADDR, RTM_NEWADDR
from simulation.api.way import Reach
from simulation.explore import allocators, changes, effects, ways
from simulation.explore.fault import ALL_BUT_ONE, HALF, NEW, Fault, Kind
from simulation.explore.troubles import Down
from simulation.manifests import KINDS as OBJECTS
from simulation.node.fence import GUARDS, OPENS

# What gives an address back must not last as long as an address may be unheld.
_SHORT = (0.3, 1.5, 4.0, 8.0)
_LONG = (8.0, 30.0, 60.0)
_FREEZES = (0.3, 4.0, 8.0, 12.0, 20.0, 30.0)
_OUTAGES = (15.0, 30.0, 60.0)
_STOPS = (3.0, 8.0, 12.0, 30.0)
_SLOW = (0.4, 0.8, 1.3, 1.7, 2.5, 3.5, 5.0, 10.0)
_FLAPS = "the API refuses {nodes} for {value:g} s, every {value:g} s"
# Seconds for which a fault may leave an address on no node, alone and among others: an outage that
# all see, of one node, and of some (which withdraw up to a renewal period apart), a cable that is
# out, and an agent or a node that is gone (a Lease's duration, and a margin).
_OUTAGE, _API, _SOME = (1.0, 5.0), (2.0, 5.0), (5.0, 5.0)
# An agent that cannot read its kernel ends, and the next one writes no Lease before it can.
_CARRIER, _CRASH, _UNREAD = (2.5, 12.0), (12.0, 12.0), (2.5, 12.0)
# Only with others costs something what disturbs an agent or a link, and a new address: the Lease of
# its winner may have to end first.
_ODD, _NEW = (0.3, 12.0), (0.3, 10.0)
# Within so many seconds a client has to notice that a watch is silent.
_NOTICED = (120.0,)
KINDS: Mapping[str, Kind] = {
    "refused": Kind("the API refuses {nodes}", partial(ways.reach, Reach.REFUSED), away=_API),
    "dropped": Kind(
        "{nodes} does not reach the API", partial(ways.reach, Reach.DROPPED), away=_API
    ),
    "stopped": Kind(
        "the API server of {nodes} is stopped", partial(ways.reach, Reach.STOPPED), away=_API
    ),
    "outage": Kind(
        "the API is down for {nodes}", partial(ways.reach, Reach.REFUSED), hits=0, away=_OUTAGE
    ),
    "silence": Kind(
        "{nodes} do not reach the API", partial(ways.reach, Reach.DROPPED), hits=0, away=_OUTAGE
    ),
    "slow-return": Kind(
        "the API refuses {nodes}, and its lists are {value:g} s old for a while when it is back",
        ways.slow_return,
        1,
        (1.5, 1.9),
        (15.0, 30.0),
        away=_API,
    ),
    "two-dropped": Kind(
        "{nodes} do not reach the API", partial(ways.reach, Reach.DROPPED), hits=2, away=_SOME
    ),
    "all-but-one": Kind(
        "{nodes} do not reach the API, and the other one does",
        partial(ways.reach, Reach.DROPPED),
        ALL_BUT_ONE,
        away=_SOME,
    ),
    "staggered": Kind(
        "one after the other, {nodes} lose the API, and get it back within {value:g} s",
        ways.staggered,
        0,
        (3, 10, 20),
        _OUTAGES,
        away=_SOME,
    ),
    "first-back": Kind(
        "no node reaches the API, and {nodes} does again {value:g} s before the others",
        ways.first_back,
        1,
        (3, 10),
        _OUTAGES,
        away=_SOME,
    ),
    "forgetful": Kind(
        "the API refuses {nodes}, and the next server has forgotten all changes",
        ways.forgetful,
        seconds=_SHORT,
        away=_API,
    ),
    "replicas": Kind(
        "each connection of {nodes} goes to one of several servers, up to {value:g} s behind",
        ways.replicas,
        0,
        (1, 3, 5),
        _LONG,
    ),
    "control-plane": Kind(
        "{nodes} has no power, and with it goes the API",
        ways.control_plane,
        seconds=_OUTAGES,
        away=_CRASH,
        halts=True,
    ),
    "flapping": Kind(_FLAPS, ways.flapping, 0, (2, 5), _LONG, away=_OUTAGE),
    "one-flapping": Kind(_FLAPS, ways.flapping, 1, (1, 2, 5), _LONG, away=_API),
    "slow-writes": Kind(
        "writes of {nodes} take {value:g} s",
        partial(ways.slow, ways.writes_act_late),
        0,
        _SLOW,
        _LONG,
        away=_OUTAGE,
        is_slow=True,
    ),
    "one-slow-writes": Kind(
        "writes of {nodes} take {value:g} s",
        partial(ways.slow, ways.writes_act_late),
        1,
        _SLOW,
        _LONG,
        away=_API,
        is_slow=True,
    ),
    "slow-answers": Kind(
        "the answers to writes of {nodes} take {value:g} s",
        partial(ways.slow, ways.writes_answer_late),
        0,
        _SLOW,
        _LONG,
        away=_OUTAGE,
        is_slow=True,
    ),
    "slow-lists": Kind(
        "lists of Leases for {nodes} take {value:g} s",
        partial(ways.slow, ways.lists_act_late),
        1,
        (1.5, 2.5, 4.0, 8.0),
        _LONG,
    ),
    "old-lists": Kind(
        "lists of Leases are {value:g} s old when {nodes} gets them",
        partial(ways.slow, ways.lists_answer_late),
        1,
        (0.5, 1.5, 1.9),
        _LONG,
    ),
    "stall-all": Kind(
        "the watches of {nodes} stand still", partial(ways.stall, tuple(OBJECTS.values()))
    ),
    "stall-leases": Kind(
        "the watch of Leases of {nodes} stands still",
        partial(ways.stall, (OBJECTS["leases"],)),
        seconds=(4.0, *_LONG),
    ),
    "stall-nodes": Kind(
        "the watch of Nodes of {nodes} stands still", partial(ways.stall, (OBJECTS["nodes"],))
    ),
    "stall-services": Kind(
        "the watch of Services of {nodes} stands still",
        partial(ways.stall, (OBJECTS["services"],)),
    ),
    "silent-services": Kind(
        "{nodes} need not notice yet that the watch of Services is silent for good",
        partial(ways.silence, (OBJECTS["services"],)),
        seconds=_NOTICED,
    ),
    "frozen": Kind(
        "the agent of {nodes} is frozen", effects.freeze, seconds=_FREEZES, away=_CRASH, halts=True
    ),
    "killed": Kind(
        "the agent of {nodes} is killed",
        partial(effects.down, Down.KILLED),
        away=_CRASH,
        halts=True,
    ),
    "all-killed": Kind(
        "the agents of {nodes} are killed",
        partial(effects.down, Down.KILLED),
        0,
        seconds=_SHORT,
        away=_CRASH,
        halts=True,
    ),
    "all-crashed": Kind(
        "the containers of {nodes} are killed",
        effects.crash,
        0,
        seconds=(),
        away=_CRASH,
        halts=True,
    ),
    "leaves": Kind("the agent of {nodes} leaves", partial(effects.down, Down.STOPPED), away=_ODD),
    "off": Kind("{nodes} has no power", partial(effects.down, Down.OFF), away=_CRASH),
    "lost": Kind("{nodes} is lost", effects.lost, seconds=(), away=_CRASH),
    "joins": Kind("{nodes} joins", effects.join, NEW, seconds=()),
    "scale-up": Kind(
        "{value:g} nodes, {nodes}-1 and so on, begin to join", effects.scale_up, NEW, (3, 5), ()
    ),
    "joins-astray": Kind(
        "{nodes} joins, its wall clock {value:+g} s off", effects.join, NEW, (310, -310), seconds=()
    ),
    "pair": Kind(
        "{nodes} do not hear each other's questions",
        effects.cut_pair,
        hits=2,
        away=_ODD,
    ),
    "one-way": Kind(
        "nothing gets from the first to the other of {nodes}",
        partial(effects.lose, effects.one_way),
        2,
        away=_ODD,
    ),
    "cut": Kind(
        "nothing gets through between {nodes}",
        partial(effects.lose, effects.both_ways),
        2,
        away=_ODD,
    ),
    "isolated": Kind(
        "{nodes} hears no node and no host",
        partial(effects.lose, effects.from_all),
        away=_ODD,
    ),
    "split": Kind(
        "the segment is split, and {nodes} are on the side without the first host",
        effects.split,
        HALF,
        away=_ODD,
    ),
    "lossy": Kind(
        "{value:.0%} of all frames and questions get lost",
        partial(effects.lose, effects.everywhere),
        0,
        (0.05, 0.3),
        away=_ODD,
    ),
    "unplugged": Kind("the cable of {nodes} is out", effects.unplug, away=_CARRIER),
    "crowd": Kind(
        "{value:g} others ask {nodes} at once", effects.crowd, 1, (100, 249), seconds=(0.3,)
    ),
    "taint": Kind("{nodes} has a draining taint", changes.taint),
    "readdressed": Kind(
        "{nodes} gets other addresses after {value:g} s without any",
        effects.readdress,
        1,
        (0.0, 0.1, 2.5),
        (),
    ),
    "mistaken": Kind(
        "the status of {nodes} lists the addresses that its kernel has first",
        effects.mistake,
        0,
        seconds=(),
    ),
    "late-answer": Kind(
        "an answer of the kernel of {nodes} is 2 s late", effects.late_answer, seconds=()
    ),
    "unreadable": Kind(
        "the kernel of {nodes} cannot be read", effects.unreadable, away=_UNREAD, halts=True
    ),
    "wall": Kind(
        "the wall clock of {nodes} steps by {value:+g} s",
        effects.wall,
        1,
        (-3600, 310, 3600),
        seconds=(),
    ),
    "paused": Kind("{nodes} is paused with all its clocks", effects.pause, away=_CRASH),
    "suspended": Kind("{nodes} is suspended", effects.suspend, away=_CRASH),
    "rate": Kind(
        "the clocks of {nodes} go {value:+g} ppm too fast", effects.rate, 1, (-500, 200, 500), ()
    ),
    "starved": Kind(
        "each step of {nodes} takes {value:g} s",
        effects.starve,
        1,
        (0.05, 0.2),
        away=_ODD,
    ),
    "stopped-adding": Kind(
        "{nodes} is stopped while it adds addresses",
        partial(effects.stop_inside, RTM_NEWADDR),
        seconds=_STOPS,
        away=_CRASH,
        halts=True,
    ),
    "stopped-removing": Kind(
        "{nodes} is stopped while it removes addresses",
        partial(effects.stop_inside, RTM_DELADDR),
        seconds=_STOPS,
        away=_CRASH,
        halts=True,
    ),
    "busy-kernel": Kind(
        "each request to the kernel of {nodes} takes {value:g} s",
        effects.busy,
        1,
        (0.01, 0.1),
        away=_ODD,
        halts=True,
    ),
    "stopped-reading": Kind(
        "{nodes} is stopped after it has read its addresses",
        partial(effects.stop_inside, RTM_GETADDR),
        seconds=_STOPS,
        away=_CRASH,
        halts=True,
    ),
    "torn-dump": Kind("the next dump of {nodes} lacks an address", effects.torn_dump, seconds=()),
    "lost-news": Kind("{nodes} loses news of its kernel", effects.lost_news, 1, (1, 10), ()),
    "errors": Kind(
        "half of all requests of {nodes} fail", partial(ways.refuse, 500, 0.5), 0, away=_OUTAGE
    ),
    "unauthorized": Kind(
        "the token of {nodes} has expired", partial(ways.refuse, 401, 1.0), away=_API
    ),
    "too-many": Kind(
        "the API has no time for {nodes}", partial(ways.refuse, 429, 1.0), 0, away=_OUTAGE
    ),
    "lagging": Kind("the watches of {nodes} lag by {value:g} s", ways.lag, 1, (1, 3, 5)),
    "restored": Kind("then the API server has its backup of this moment again", ways.restore, 0),
    # Its agent renews as soon as it tries again, as when it had no API.
    "node-deleted": Kind("there is no Node {nodes}", effects.delete_node, away=_API),
    "crashed": Kind(
        "the container of {nodes} is killed", effects.crash, seconds=(), away=_ODD, halts=True
    ),
    "leader-killed": Kind("the allocator that leads is killed", allocators.kill, 0, seconds=()),
    "leader-cut": Kind("the allocator that leads does not reach the API", allocators.cut, 0),
    "leader-slow": Kind(
        "writes of the allocator that leads take {value:g} s",
        allocators.slow,
        0,
        (1.3, 3.5, 10.0),
        _LONG,
    ),
    "leader-frozen": Kind("the allocator that leads is frozen", allocators.freeze, 0),
    "leader-paused": Kind(
        "the allocator that leads is paused with all its clocks", allocators.pause, 0
    ),
    "lock-deleted": Kind(
        "the Lease by which an allocator leads is deleted", allocators.delete_lock, 0, seconds=()
    ),
    "type": Kind(
        "a Service is of the type ClusterIP", changes.change_type, 0, seconds=_SHORT, away=_NEW
    ),
    "pool": Kind("the default group has another range", changes.move_pool, 0),
    "service": Kind("there is one Service more", changes.new_service, hits=0, away=_NEW),
    "endpoints": Kind(
        "the endpoints of the Local Services move to {nodes}", changes.move_endpoints, seconds=()
    ),
    "unselected": Kind("no LBNodeAgent selects {nodes}", changes.unselect, away=_ODD),
    "timings": Kind(
        "a roll-out of timings of half the seconds begins",
        changes.roll_out,
        hits=0,
        seconds=(),
        away=_ODD,
    ),
    "keys": Kind("the keys of the peers are rotated", changes.rotate_keys, 0, seconds=_LONG),
    "service-stays": Kind(
        "there is one Service more, for good", changes.new_service, hits=0, seconds=(), away=_NEW
    ),
    "label": Kind("{nodes} is labelled as no target", changes.exclude, is_later=True),
    "labels": Kind("{nodes} are labelled as no targets", changes.exclude, HALF, is_later=True),
    "proxy": Kind(
        "the kube-proxy of {nodes} is dead", changes.end_proxy, seconds=_LONG, is_later=True
    ),
    "proxies": Kind(
        "the kube-proxies of {nodes} are dead", changes.end_proxy, 0, seconds=_LONG, is_later=True
    ),
    "stopped-guarding": Kind(
        "{nodes} is stopped while it changes its fence",
        partial(effects.stop_inside, GUARDS),
        seconds=_STOPS,
        away=_CRASH,
        halts=True,
        is_later=True,
    ),
    "stopped-opening": Kind(
        "{nodes} is stopped before it says how long its right lasts",
        partial(effects.stop_inside, OPENS),
        seconds=_STOPS,
        away=_CRASH,
        halts=True,
        is_later=True,
    ),
    "filters-gone": Kind("{nodes} loses its filters", effects.unfence, seconds=(), is_later=True),
}


def told(fault: Fault) -> str:
    """Return a fault as a sentence."""
    lasts = f" for {fault.seconds:.2f} s" if fault.seconds else ""
    kind = KINDS[fault.kind]
    text = kind.story.format(nodes=" and ".join(fault.nodes), value=fault.value)
    return f"at {fault.at:6.2f} s{lasts}: {text}"
