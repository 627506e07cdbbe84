# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Why a Service gets no address: the words of metric and event, and the error that carries them."""

from __future__ import annotations

from enum import Enum


class RefusalReason(str, Enum):
    """The label of the metric and, in the event, the word before the sentence."""

    EXHAUSTED = "exhausted"
    PORT_CONFLICT = "port_conflict"
    SHARING_KEY_CONFLICT = "sharing_key_conflict"
    UNKNOWN_POOL = "unknown_pool"
    INVALID_ADDRESS = "invalid_address"
    NAMESPACE_DENIED = "namespace_denied"
    AMBIGUOUS_NAMESPACE_DEFAULT = "ambiguous_namespace_default"
    MULTIPOOL_REFUSED = "multipool_refused"
    MULTIPOOL_POOL_MISMATCH = "multipool_pool_mismatch"


class RefusedError(Exception):
    """No address: why, of which group, and what the Service's owner can do."""

    def __init__(self, reason: RefusalReason, group: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.group = group
        self.message = message
