# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The kube-proxy of a machine, as its agent asks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from purelb.core.model import Address
from purelb.core.node.service_proxy import Answer


class HasProxy(Protocol):
    """A machine; `service_proxy`: what its kube-proxy answers."""

    service_proxy: Answer


class ModelProxy:
    """Stands in for ProxyHttp of the programs."""

    def __init__(self, node: HasProxy, _port: int) -> None:
        self._node = node

    async def __aenter__(self) -> Self:
        """Open nothing."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close nothing."""

    async def ask(self, _addresses: Sequence[Address]) -> Answer:
        """Return what the machine's kube-proxy answers."""
        return self._node.service_proxy
