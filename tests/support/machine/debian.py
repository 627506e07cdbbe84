# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which files of this machine come with some Debian packages and what they depend on (pure)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

# For `dpkg-query --showformat`: a line per package.
FORMAT = r"${Package}\t${db:Status-Status}\t${Priority}\t${Provides}\t${Pre-Depends}, ${Depends}\n"


@dataclass(frozen=True)
class Package:
    """An installed package."""

    name: str
    is_required: bool
    """Whether every Debian has it."""
    provides: tuple[str, ...]
    depends: tuple[tuple[str, ...], ...]
    """Alternatives of each dependency, the preferred one first."""


def parse(listing: str) -> dict[str, Package]:
    """Return the installed packages by name, from what dpkg-query prints with `FORMAT`."""
    found = {}
    for line in listing.splitlines():
        name, status, priority, provides, depends = line.split("\t")
        if status == "installed":
            names = [tuple(map(_name, part.split("|"))) for part in _parts(depends)]
            virtual = tuple(map(_name, _parts(provides)))
            found[name] = Package(name, priority == "required", virtual, tuple(names))
    return found


def _parts(text: str) -> list[str]:
    return [part for part in text.split(",") if part.strip()]


def _name(text: str) -> str:
    """Return the name in such as ` libc6:any (>= 2.36)`."""
    return re.split(r"[ :(]", text.strip(), maxsplit=1)[0]


def closure(installed: Mapping[str, Package], wanted: Iterable[str]) -> set[str]:
    """Return the base of every Debian, these packages and all that they depend on.

    Of alternatives, only the first that is installed, as apt chooses; recommendations are left out.
    Raises KeyError if a package is not installed.
    """
    providers: dict[str, str] = {}
    for package in installed.values():
        for virtual in package.provides:
            providers.setdefault(virtual, package.name)
    left = [installed[name].name for name in wanted]
    left += [package.name for package in installed.values() if package.is_required]
    found: set[str] = set()
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _chosen(installed[name].depends, installed, providers)
    return found


def _chosen(
    depends: Iterable[Iterable[str]], installed: Mapping[str, Package], providers: Mapping[str, str]
) -> Iterator[str]:
    for alternatives in depends:
        names = (n if n in installed else providers.get(n) for n in alternatives)
        yield from [name for name in names if name][:1]


def foreign(
    files: Mapping[str, Collection[str]], kept: Collection[str], present: Collection[str]
) -> set[str]:
    """Return the present paths that other packages than the kept ones have, and none of those.

    `files` has the paths of each package, folders included. What no package has (caches, links of
    alternatives) is not this function's matter.
    """
    visible = {path for name in kept for path in files[name]}
    others = {path for name, paths in files.items() if name not in kept for path in paths}
    return (others - visible) & set(present)


def topmost(paths: Collection[str]) -> set[str]:
    """Return the paths that are not below another one of them."""
    return {path for path in paths if not any(parent in paths for parent in _parents(path))}


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
