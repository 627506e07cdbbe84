# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The fence in the real kernel: it loads, stands first, and silences an address."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
import textwrap
from ipaddress import ip_address
from pathlib import Path

import pytest

from labkit.net.namespaces import ip_batch, netns
from purelb.core.fence.filters import HANDLES
from purelb.core.fence.hooks import Hook
from purelb.core.fence.programs import ANYWHERE, ELSEWHERE, FenceProgram
from purelb_agent.fence.kernel import FenceKernel
from purelb_agent.fence.syscalls import Bpf
from purelb_agent.runtime import clock
from purelb_agent.runtime.netlink import NetlinkError
from tests.support.agent.namespaces import cable, can_make_namespaces

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not can_make_namespaces(), reason="needs network namespaces"),
]
VIP4, VIP6 = ip_address("192.0.2.1"), ip_address("2001:db8::1")
BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
FIRST = HANDLES[0]
PROGRAMS = {False: FenceProgram.INGRESS, True: FenceProgram.EGRESS}


class Fenced:
    """The addresses on eth0 of a namespace, and a neighbour of it in another one."""

    def __init__(self, namespace, kernel, index):
        self.namespace, self.kernel, self.index = namespace, kernel, index
        self.hooks = [Hook(index, is_egress=False), Hook(index, is_egress=True)]

    def attach(self):
        assert self.kernel.prepare([self.index]) == {self.index}
        for hook in self.hooks:
            self.kernel.attach(hook, PROGRAMS[hook.is_egress], FIRST)

    def open_for(self, seconds):
        self.kernel.control.stand_until(clock.monotonic() + 60)
        self.kernel.control.open_until(clock.now() + seconds)
        self.kernel.control.clean()

    def run(self, *command):
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace, *command], check=False, capture_output=True
        )

    def answers(self, vip):
        """Whether the neighbour, who forgets it first, gets an answer from an address."""
        ip_batch(["neigh flush all"], namespace=f"{self.namespace}n")
        ping = ["ping", "-c", "1", "-W", "1", str(vip)]
        neighbor = ["ip", "netns", "exec", f"{self.namespace}n", *ping]
        return subprocess.run(neighbor, check=False, capture_output=True).returncode == 0


@pytest.fixture
async def fenced():
    with cable() as namespace:
        neighbor = f"{namespace}n"
        ip_batch([f"netns add {neighbor}"])
        try:
            ip_batch([f"link set eth1 netns {neighbor}"], namespace=namespace)
            own = ["addr add 192.0.2.2/24 dev eth1", "addr add 2001:db8::2/64 dev eth1 nodad"]
            ip_batch([*own, "link set eth1 up"], namespace=neighbor)
            vips = ["addr add 192.0.2.1/24 dev eth0", "addr add 2001:db8::1/64 dev eth0 nodad"]
            ip_batch(vips, namespace=namespace)
            with netns(namespace):
                kernel = FenceKernel()
                index = socket.if_nametoindex("eth0")
            made = Fenced(namespace, kernel, index)
            yield made
            made.kernel.close()
        finally:
            ip_batch([f"netns del {neighbor}"], force=True)


@BOTH
def test_a_shut_fence_silences_an_address_and_no_other(fenced, vip):
    other = VIP6 if vip is VIP4 else VIP4
    fenced.kernel.guard(vip, fenced.index)
    fenced.open_for(0)
    assert fenced.answers(vip)
    fenced.attach()
    assert not fenced.answers(vip)
    assert fenced.kernel.control.drops > 0
    assert fenced.answers(other)
    fenced.open_for(30)
    assert fenced.answers(vip)
    fenced.kernel.control.open_until(None)
    assert not fenced.answers(vip)
    fenced.kernel.control.stand_until(clock.monotonic())
    assert fenced.answers(vip)


@BOTH
def test_an_address_that_is_not_guarded_answers(fenced, vip):
    fenced.kernel.guard(vip, fenced.index)
    fenced.kernel.discard(vip)
    fenced.kernel.discard(vip)
    fenced.attach()
    fenced.open_for(0)
    assert fenced.answers(vip)


def test_a_copy_of_an_address_that_another_node_has_is_not_answered(fenced):
    """As kube-proxy makes it in IPVS mode; its traffic passes."""
    ip_batch(["addr add 192.0.2.9/32 dev lo"], namespace=fenced.namespace)
    copy = ip_address("192.0.2.9")
    fenced.attach()
    fenced.open_for(30)
    assert fenced.answers(copy)
    fenced.kernel.guard(copy, ELSEWHERE)
    assert not fenced.answers(copy)
    assert fenced.answers(VIP4)
    neighbor = f"{fenced.namespace}n"
    mac = fenced.run("cat", "/sys/class/net/eth0/address").stdout.decode().strip()
    ping = ["ip", "netns", "exec", neighbor, "ping", "-c", "1", "-W", "1", str(copy)]
    ip_batch([f"neigh replace {copy} lladdr {mac} dev eth1"], namespace=neighbor)
    assert subprocess.run(ping, check=False, capture_output=True).returncode == 0
    fenced.kernel.guard(copy, ANYWHERE)
    assert fenced.answers(copy)


async def test_what_is_attached_stays_when_the_process_ends(fenced):
    fenced.kernel.guard(VIP4, fenced.index)
    fenced.attach()
    fenced.open_for(0)
    with netns(fenced.namespace):
        other = FenceKernel()
    try:
        fenced.kernel.close()
        assert not fenced.answers(VIP4)
    finally:
        fenced.kernel = other
    # Another process takes its place.
    fenced.attach()
    assert fenced.answers(VIP4)
    for hook in fenced.hooks:
        fenced.kernel.detach(hook, FIRST)
        fenced.kernel.detach(hook, FIRST)
        assert fenced.kernel.filters(hook) == ()


def test_the_newest_filter_is_the_first(fenced):
    egress = fenced.hooks[1]
    fenced.attach()
    first = fenced.kernel.filters(egress)
    assert [found.is_ours for found in first] == [True]
    fenced.kernel.attach(egress, FenceProgram.EGRESS, HANDLES[1])
    assert [found.handle for found in fenced.kernel.filters(egress)] == [HANDLES[1], FIRST]
    fenced.kernel.attach(egress, FenceProgram.EGRESS, FIRST)
    assert [found.handle for found in fenced.kernel.filters(egress)] == [HANDLES[1], FIRST]
    assert fenced.kernel.count_tcx(egress) == 0


def test_an_ingress_qdisc_of_others_has_no_room(fenced):
    assert fenced.run("tc", "qdisc", "add", "dev", "eth0", "ingress").returncode == 0
    assert fenced.kernel.prepare([fenced.index]) == frozenset()


def test_a_link_that_has_gone(fenced):
    assert fenced.kernel.prepare([999]) == frozenset()
    gone = Hook(999, is_egress=True)
    assert fenced.kernel.filters(gone) == ()
    fenced.kernel.detach(gone, FIRST)
    with pytest.raises(NetlinkError) as raised:
        fenced.kernel.attach(gone, FenceProgram.ARP, FIRST)
    assert raised.value.errno == errno.ENODEV


async def test_news_when_others_take_it_away(fenced):
    fenced.attach()
    heard = asyncio.Event()
    fenced.kernel.subscribe(heard.set)
    await asyncio.sleep(0.1)
    heard.clear()
    assert fenced.run("tc", "qdisc", "del", "dev", "eth0", "clsact").returncode == 0
    await asyncio.wait_for(heard.wait(), 5)
    assert fenced.kernel.filters(fenced.hooks[0]) == ()


def test_a_refused_program_says_why():
    """The verifier's last words."""
    with pytest.raises(OSError, match=r"; R0 !read_ok$") as raised:
        Bpf().load(FenceProgram.ARP, bytes.fromhex("9500000000000000"))
    assert raised.value.errno == errno.EACCES


def test_the_capabilities_of_the_agent_are_enough(tmp_path):
    """NET_ADMIN, NET_RAW and BPF: the verifier is stricter without PERFMON."""
    script = tmp_path / "load.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        sys.path[:0] = {[p for p in sys.path if p]!r}
        from purelb_agent.fence.kernel import FenceKernel
        FenceKernel()
        print("loaded")
        """)
    )

    def with_capabilities(text):
        sets = [f"--bounding-set=-all,{text}", f"--inh-caps=-all,{text}"]
        command = ["setpriv", *sets, sys.executable, str(script)]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    done = with_capabilities("+net_admin,+net_raw,+bpf")
    assert done.stdout == "loaded\n", done.stderr
    refused = with_capabilities("+net_admin,+net_raw")
    assert "Operation not permitted" in refused.stderr


def test_nothing_stays_open_of_a_fence_that_could_not_be_made(monkeypatch):
    def refuse(_self, _program, _code):
        raise OSError(errno.EPERM, "not permitted")

    def opened():
        return set(map(str, Path("/proc/self/fd").iterdir()))

    monkeypatch.setattr(Bpf, "load", refuse)
    before = len(opened())
    with pytest.raises(OSError, match="not permitted"):
        FenceKernel()
    assert len(opened()) == before
