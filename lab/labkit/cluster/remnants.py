# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What other labs of our number, living or dead, have in the machine's namespace.

A lab of another checkout whose processes were killed cannot take itself down. The next lab of that
number removes its namespaces and links, but never its files. Namespaces and links without a lab's
mark are never removed.
"""

from dataclasses import dataclass
from pathlib import Path

from labkit.cluster import state
from labkit.host.places import NETNS_DIR, Places, cgroup_of, lock_of
from labkit.host.processes import inode, members
from labkit.net import network
from labkit.net.namespaces import ip_batch, path_of
from labkit.topology import prefix_of


@dataclass(frozen=True)
class Remnant:
    """The namespaces and links with the mark of one lab; the mark is its run folder."""

    owner: Path
    namespaces: tuple[str, ...]
    links: tuple[str, ...]

    @property
    def names(self) -> str:
        """The names of all of them, as a text."""
        return ", ".join([*self.namespaces, *(f"link {name}" for name in self.links)])

    @property
    def is_dead(self) -> bool:
        """Whether no process of that lab and no command on it runs."""
        inodes = frozenset(inode(path_of(name)) for name in self.namespaces) - {0}
        cgroup = cgroup_of(self.owner)
        if state.is_locked(lock_of(self.owner)):
            return False
        return not members(mark=str(self.owner), netns=inodes, cgroup=cgroup)


def remnants(at: Places) -> list[Remnant]:
    """Return what other labs of our number have in the machine's namespace."""
    prefix = prefix_of(at.number)
    spaces = {path.name: network.owner_of(path.name) for path in NETNS_DIR.glob(f"{prefix}*")}
    links = {f"{prefix}host": network.owner_of_link(f"{prefix}host")}
    owners = {*spaces.values(), *links.values()} - {"", str(at.run)}
    return [
        Remnant(Path(owner), _with(spaces, owner), _with(links, owner)) for owner in sorted(owners)
    ]


def _with(owned: dict[str, str], owner: str) -> tuple[str, ...]:
    return tuple(sorted(name for name, mark in owned.items() if mark == owner))


def remove_dead(at: Places) -> None:
    """Remove what killed labs of our number left, and print it."""
    for remnant in remnants(at):
        if remnant.is_dead:
            _remove(remnant)
            print(f"removed what a killed lab left ({remnant.owner}): {remnant.names}", flush=True)


def _remove(remnant: Remnant) -> None:
    # Deleting the namespace of a link's other end would delete the link too, but only later.
    if remnant.links:
        ip_batch([f"link del {name}" for name in remnant.links])
    if remnant.namespaces:
        ip_batch([f"netns del {name}" for name in remnant.namespaces])
