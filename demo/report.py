# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Formats the result of purelb_lease_info as text tables."""

from __future__ import annotations

from typing import Any


def table(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a text table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in (header, tuple("-" * w for w in widths), *rows)
    ]
    return "\n".join([title, *lines])


def report(result: dict[str, Any]) -> str:
    """Return tables of Leases, leader locks, addresses and findings."""
    parts = (_leases, _locks, _vips, _findings)
    return "\n\n".join(part(result) for part in parts)


def _leases(result: dict[str, Any]) -> str:
    rows = [
        (
            lease["node"],
            lease["reason"],
            "never" if lease["age"] is None else f"{lease['age']:.1f} s",
            f"{lease['duration']:.0f} s",
            " ".join(lease["subnets"]),
        )
        for lease in result["leases"]
    ]
    outages = [
        f"  {lease['node']} kept its addresses during an API outage of "
        f"{lease['outage']['seconds']:.0f} s, until {lease['outage']['end']}"
        for lease in result["leases"]
        if lease["outage"]
    ]
    leases = table("LEASES", ("node", "state", "renewed", "duration", "subnets"), rows)
    return "\n".join([leases, *outages])


def _locks(result: dict[str, Any]) -> str:
    rows = [
        (
            f"{lock['namespace']}/{lock['name']}",
            lock["state"] + (", flapping" if lock["flapping"] else ""),
            lock["holder"].partition("_")[0] or "-",
            "never" if lock["age"] is None else f"{lock['age']:.1f} s",
            str(lock["transitions"]),
        )
        for lock in result["leader_locks"]
    ]
    header = ("lock", "state", "leader", "renewed", "transitions")
    return table("LEADERS", header, rows)


def _vips(result: dict[str, Any]) -> str:
    rows = [
        (
            vip["address"],
            " ".join(vip["services"]),
            vip["winner"] or f"none: {vip['reason']}",
            " ".join(f"{a['node']}/{a['interface']}" for a in vip["announcing"]) or "-",
            " > ".join(vip["candidates"]),
        )
        for vip in result["vips"]
    ]
    header = ("address", "service", "winner", "announced by", "candidates, in order")
    return table("ADDRESSES", header, rows)


def _findings(result: dict[str, Any]) -> str:
    findings = [
        f"  {f['severity']}: {f['object']}: {f['message']}\n    -> {f['remediation']}"
        for f in result["findings"]
    ]
    return "\n".join(["FINDINGS", *(findings or ["  none"])])
