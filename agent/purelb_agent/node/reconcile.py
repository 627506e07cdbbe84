# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The loop that brings the node's interfaces to the planned state.

It wakes on every change of API objects, of the own hold deadline and of the interfaces, and at the
next deadline. Each cycle reads the interfaces, decides, plans, changes the kernel, sends
announcements, and only then passes the result to the reporter. All state kept between cycles
belongs to this loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from purelb.core.fence.gaps import EXACT
from purelb.core.fence.plan import plan_fence
from purelb.core.model import Network, NodeAddress, Reason
from purelb.core.node.configuration import (
    NOWHERE,
    NodeConfig,
    SelectedConfig,
    SelectorState,
    choose,
)
from purelb.core.node.decisions import Decisions, decide_vips
from purelb.core.node.interfaces import (
    lease_subnets,
    segment_macs,
    selected_by_part,
    selected_links,
)
from purelb.core.node.left import Opened
from purelb.core.node.lost_segments import LostSegments
from purelb.core.node.mistaken import RemovedVips, own_mistaken
from purelb.core.node.moves import Moves
from purelb.core.node.plan import Plan, plan
from purelb.core.node.readiness import Readiness
from purelb.core.node.snapshot import NodeSnapshot, membership_view_of, vips_on
from purelb_agent.fence.fence import AddressFence
from purelb_agent.holding.questions import Questions
from purelb_agent.holding.renewer import Renewer, Said
from purelb_agent.kube.store import NodeStore
from purelb_agent.node.announcer import Announcer
from purelb_agent.node.conflicts import ConflictListener
from purelb_agent.node.decisions import DecisionRecorder
from purelb_agent.node.interfaces import Interfaces
from purelb_agent.node.metrics import NodeMetrics
from purelb_agent.node.reporter import Reporter
from purelb_agent.runtime import clock, log
from purelb_agent.runtime.netlink import NetlinkError

# Watchdog: the interfaces are compared with the plan at least this often, even without news.
RESYNC = 30.0
# Pause before a refused change or a failed read is tried again.
_RETRY = 1.0
# For how long reads may fail. A restart helps where it is this process that cannot read, and who
# leaves before its addresses end hands them over in order: half of their lifetime is left.
_PATIENCE = 3.0


@dataclass(frozen=True)
class Effects:
    """What the loop acts on: kernel, network, log and metrics, API."""

    interfaces: Interfaces
    fence: AddressFence
    announcer: Announcer
    conflict_listener: ConflictListener
    recorder: DecisionRecorder
    reporter: Reporter


class Reconciler:
    """The owner of the node's VIPs."""

    def __init__(
        self,
        store: NodeStore,
        renewer: Renewer,
        effects: Effects,
        *,
        metrics: NodeMetrics,
        questions: Questions | None,
    ) -> None:
        """Without `questions`, no peer is asked."""
        self._readiness = Readiness()
        self._interfaces = effects.interfaces
        self._fence = effects.fence
        self._announcer = effects.announcer
        self._conflict_listener = effects.conflict_listener
        self._recorder = effects.recorder
        self._reporter = effects.reporter
        self._renewer = renewer
        self._metrics = metrics
        self._store = store
        self._node = renewer.node
        # The node's configuration and how it was selected.
        self._choice = SelectedConfig(SelectorState.DEFAULT, NodeConfig())
        self._questions = questions
        self._elected: Decisions | None = None
        self._lost = LostSegments()
        self._removed = RemovedVips()
        self._moves = Moves()
        self._deprecated: frozenset[Network] = frozenset()
        # Whether the last cycle left nothing to do that the next renewal changes.
        self._is_steady = False
        self._leaving = False
        # When nothing is left of what an earlier agent put; the kernel may be a second late.
        self._left_until = clock.now() + renewer.right.timing.duration + 1.0
        # Since when reads have failed; None: the last one did not.
        self._unread_since: float | None = None

    @property
    def is_ready(self) -> bool:
        """Whether this node serves its addresses, so that a rollout may restart the next one.

        False while it may hold no address because its Lease could not be renewed.
        """
        return self._store.hold_deadline is not None and self._readiness.is_ready(clock.now())

    @property
    def has_acted(self) -> bool:
        """Whether a plan has been carried out."""
        return self._readiness.has_acted

    async def run(self) -> None:
        """Reconcile until cancelled."""
        self._interfaces.subscribe(self._store.changed.notify, self._renewer.look_at_clock)
        self._conflict_listener.subscribe(self._store.changed.notify)
        self._fence.subscribe(self._store.changed.notify)
        changed, due = self._store.changed, self._try_cycle()
        while True:
            is_news = await changed.wait(until=self._before_deadline(due))
            if not (is_news and changed.was_minor and self._is_prolonged):
                due = self._try_cycle()

    def _before_deadline(self, due: float) -> float:
        """Return when to wake at the latest; a past deadline stays until the renewer has run."""
        deadline = self._store.hold_deadline
        if deadline is None or deadline.announce_until <= clock.now():
            return due
        return min(due, deadline.announce_until)

    @property
    def _is_prolonged(self) -> bool:
        """Whether a renewal is no reason for a cycle: the fence ends the right, not lifetimes."""
        return self._is_steady and self._fence.opened is Opened.EVER_SINCE

    def _try_cycle(self) -> float:
        """Run one cycle; one that cannot read the interfaces is tried again.

        It changes nothing unless the hold deadline has passed: after a suspend, the kernel still
        has what others may have taken over. NetlinkError if that lasts for _PATIENCE.
        """
        now = clock.now()
        try:
            due = self._cycle()
        except NetlinkError as error:
            if self._unread_since is None:
                self._unread_since = now
                log.warning("interfacesNotRead", error=str(error))
            deadline = self._store.hold_deadline
            if deadline is None or deadline.announce_until <= clock.now():
                self._interfaces.withdraw_put(Reason.LEASE_UNHEALTHY, only_expiring=True)
            if now - self._unread_since >= _PATIENCE:
                raise
            return clock.now() + _RETRY
        if self._unread_since is not None:
            self._unread_since = None
            log.info("interfacesRead")
        return due

    def _cycle(self) -> float:
        """Run one cycle; return when the next one is due, even without news."""
        now = clock.now()
        if not self._store.listed:
            return now + RESYNC
        self._metrics.mark_loaded()
        self._interfaces.read_links(now, max_age=RESYNC)
        is_new_config = self._update_config()
        if self._questions is not None:
            self._questions.read_mail(now)
        chosen = selected_by_part(self._interfaces.links, self._config)
        self._reporter.report_selected(self._choice, chosen)
        snapshot, mistaken = self._with_known(self._snapshot(now))
        snapshot = self._with_lost(snapshot, now, is_new_config=is_new_config)
        self._say(snapshot, mistaken, now)
        subnets = lease_subnets(snapshot.segments)
        self._metrics.election.show_local_subnets(len(subnets))
        self._renewer.set_subnets(subnets, at_once=is_new_config or self._interfaces.is_cut_off)
        self._renewer.saw(self._store.leases.own)
        self._renewer.ensure_current()
        has_begun = snapshot.hold_deadline is not None or self._readiness.has_acted
        if not has_begun and now < self._left_until:
            # Before its first Lease, a node cannot tell which addresses are its own. Those left by
            # an earlier agent stay for the first plan, or until their lifetime ends. After that it
            # can say that it holds nothing, in case its Lease was written and it does not know it.
            return min(self._left_until, now + RESYNC)
        decisions = self._decide(snapshot, now)
        planned = plan(decisions, snapshot, moved=self._moves.elsewhere, now=now)
        if self._fence.is_loaded:
            self._open(snapshot)
            fenced = plan_fence(snapshot, planned, now=now)
            self._fence.guard(fenced, self._interfaces.links, now=now)
        done = self._interfaces.apply(planned)
        if self._fence.is_loaded:
            self._open(snapshot)
        removed = (remove.held.address for remove in planned.removes)
        self._removed = self._removed.after(removed, now=now)
        self._announce(snapshot, planned, now)
        self._tell(snapshot, now)
        self._recorder.record(decisions)
        self._reporter.report(decisions, self._interfaces.held, done=done)
        if decisions.needs_dummy and self._config.dummy_interface:
            if self._interfaces.make_dummy(self._config.dummy_interface):
                return now
            done = False
        held = self._interfaces.held
        if has_begun:
            self._readiness = self._readiness.after(planned, held, snapshot.addresses, now=now)
        self._is_steady = done and snapshot.is_fenced
        if snapshot.is_fenced != self._is_fenced:
            # A gap has been found or closed, so the lifetimes are to be others.
            return now
        return self._wake_at(planned, now, done=done)

    @property
    def _is_fenced(self) -> bool:
        """Whether the fence ends the right of all addresses, and marks tell them apart."""
        return self._fence.said == EXACT and self._interfaces.keeps_marks

    def _open(self, snapshot: NodeSnapshot) -> None:
        """Let the fence open, unless something is left of a right that has ended."""
        present = {(held.link, held.address) for held in self._interfaces.present}
        if not snapshot.left & present:
            self._fence.control.clean()

    def _with_known(self, snapshot: NodeSnapshot) -> tuple[NodeSnapshot, tuple[NodeAddress, ...]]:
        """Add the Nodes' own addresses, without VIPs that another program took for such.

        Returns what to say of these, too.
        """
        store = self._store
        listed = store.listed_addresses.get(self._node, frozenset())
        had = self._removed.until.keys() | {a for node, a in store.mistaken if node == self._node}
        own = own_mistaken(listed, snapshot, had)
        self._reporter.report_mistaken(own)
        said = store.say_mistaken(own)
        return replace(snapshot, known=store.known_addresses), said

    def _with_lost(
        self, snapshot: NodeSnapshot, now: float, *, is_new_config: bool
    ) -> NodeSnapshot:
        """Add the segments that were lost only now; what the user changes is in force at once."""
        before = LostSegments() if is_new_config else self._lost
        self._lost = before.seen(snapshot.segments, snapshot.all_links, now=now)
        return replace(snapshot, lost=self._lost.kept(snapshot.all_links))

    def _say(self, snapshot: NodeSnapshot, mistaken: tuple[NodeAddress, ...], now: float) -> None:
        """Say in the Lease what this node knows of itself and of others."""
        # A subnet that is lost stays what it was.
        self._deprecated = snapshot.deprecated | self._deprecated.intersection(
            network for _link, network in snapshot.lost
        )
        self._renewer.say(
            Said(
                segment_macs(snapshot.links, snapshot.all_links, snapshot.addresses),
                self._conflict_listener.answering_nodes(now),
                mistaken,
                tuple(n for n in lease_subnets(snapshot.segments) if n in self._deprecated),
                self._store.service_proxy,
                self._fence.said,
            )
        )
        self._reporter.report_fence(self._fence.said)

    def _decide(self, snapshot: NodeSnapshot, now: float) -> Decisions:
        self._elected = decide_vips(snapshot, self._elected)
        duplicates = self._store.duplicates
        self._moves = self._moves.after(self._elected, snapshot.addresses, duplicates)
        if self._questions is None:
            return self._elected
        held = vips_on(snapshot.addresses, snapshot) - {a for _link, a in snapshot.left}
        return self._questions.decide(self._elected, held, now=now)

    def _tell(self, snapshot: NodeSnapshot, now: float) -> None:
        """Tell the peers what has been done on the interfaces."""
        held = vips_on(self._interfaces.present, snapshot)
        held |= {a for link, a in self._interfaces.held if link not in snapshot.dummies}
        if self._questions is not None:
            self._questions.send(held, now=now)

    def _update_config(self) -> bool:
        """Select the LBNodeAgent for this node; return whether the configuration changed."""
        choice = choose(self._store.configs.records.values(), self._store.labels)
        self._metrics.show_selector(choice.state)
        is_new, self._choice = choice != self._choice, choice
        if is_new:
            config = choice.config or NodeConfig()
            log.info(
                "configuration",
                state=choice.state.value,
                object=config.name,
                problem=config.problem,
            )
            self._reporter.report_choice(choice)
        return is_new

    @property
    def _config(self) -> NodeConfig:
        """The configuration in use; one without interfaces if the selected one is not usable."""
        usable = self._choice.state in (SelectorState.DEFAULT, SelectorState.CONFIGURED)
        config = self._choice.config
        return config if usable and config else NOWHERE

    def _snapshot(self, now: float) -> NodeSnapshot:
        store, config, deadline = self._store, self._config, self._store.hold_deadline
        members, standing = store.members()
        addresses = self._interfaces.read_addresses()
        self._metrics.election.show_members(len(members))
        self._metrics.show_standing(standing, is_draining=bool(store.taint))
        links = self._interfaces.links
        return NodeSnapshot(
            node=self._node,
            vips=store.vips,
            groups=tuple(store.groups.records.values()),
            endpoints=store.endpoints,
            membership=membership_view_of(members, deadline, listed=store.leases.listed, now=now),
            hold_deadline=deadline,
            taint=store.taint,
            standing=standing,
            leaving=self._leaving,
            links=selected_links(links, config),
            dummy=next((k for k in links if k.name == config.dummy_interface), None),
            dummies=self._interfaces.dummies(config.dummy_interface),
            all_links=links,
            addresses=addresses,
            put=self._interfaces.put,
            keeps_marks=self._interfaces.keeps_marks,
            is_fenced=self._is_fenced,
            opened=self._fence.opened,
            config=config.addresses,
            dummy_config=config.dummy_addresses,
        )

    def _announce(self, snapshot: NodeSnapshot, planned: Plan, now: float) -> None:
        """Announce on real interfaces; the dummy interface has no neighbors."""
        fresh = {(p.link, p.address) for p in planned.puts if p.is_new and p.usable_at_once}
        usable = self._interfaces.usable(fresh)
        announced = frozenset(place for place in usable if place[0] not in snapshot.dummies)
        links = self._interfaces.links
        settled = self._conflict_listener.take_settled()
        fresh |= {place for place, was_claimed in settled.items() if was_claimed}
        # A switch, or hosts, may have forgotten or missed where these addresses are.
        restored = self._interfaces.take_restored()
        fresh |= {place for place in announced if place[0] in restored}
        self._announcer.announce(
            announced, fresh, links, self._config.announce, again=settled, now=now
        )
        # With addresses that failed duplicate address detection, to find the host that has them.
        held = self._interfaces.held
        checked = frozenset(place for place in held if place[0] not in snapshot.dummies)
        self._conflict_listener.update(checked, links, nodes=self._store.macs, now=now)

    def _wake_at(self, planned: Plan, now: float, *, done: bool) -> float:
        deadlines = [
            now + (RESYNC if done else _RETRY),
            planned.refresh_at,
            self._announcer.next_at,
            self._conflict_listener.forgets_at(now),
            self._questions.next_at(now) if self._questions else None,
            self._interfaces.changes_at(now),
            self._lost.next_at(),
            self._fence.next_at(),
        ]
        return min(moment for moment in deadlines if moment is not None and moment > now)

    def withdraw_all(self) -> None:
        """Withdraw all addresses and remove the dummy interface; later cycles add none.

        Where the interfaces cannot be read, what this process added goes, as far as it knows.
        """
        self._leaving = True
        try:
            self._cycle()
            self._interfaces.remove_dummies()
            self._fence.remove()
        except NetlinkError as error:
            log.error("interfacesNotRead", error=str(error))
            self._interfaces.withdraw_put(Reason.LEAVING)
