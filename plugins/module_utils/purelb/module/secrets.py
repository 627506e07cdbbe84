# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which texts of a kubeconfig are secret.

An option with `no_log` makes Ansible hide each of its texts wherever it occurs in a result. Of a
kubeconfig that is a dictionary these are also `v1`, `default` and the names of clusters.
"""

from __future__ import annotations

from typing import Any, FrozenSet, Iterator

# Of a user: whom to act as. A login program is looked at by its parts, and the rest is secret.
PUBLIC_OF_A_USER = ("as", "as-groups", "as-uid", "as-user-extra", "exec")
# Of a user's `exec`.
PUBLIC_OF_A_LOGIN = ("apiVersion", "command", "installHint", "interactiveMode")
# Shorter arguments of a login program are words such as `get`.
SHORTEST_ARGUMENT = 8


def all_texts(value: Any) -> FrozenSet[str]:
    """Returns the texts in a value, at any depth; not the keys."""
    return frozenset(_texts(value))


def secrets(kubeconfig: Any) -> FrozenSet[str]:
    """Returns the texts of a kubeconfig that must stay secret, given as Ansible passes it.

    Of a path, none. What is no kubeconfig is secret as a whole: text of several lines, or another
    dictionary.
    """
    if isinstance(kubeconfig, str):
        return frozenset([kubeconfig] if "\n" in kubeconfig else [])
    try:
        return frozenset(_of_kubeconfig(kubeconfig))
    except (AttributeError, TypeError):
        return all_texts(kubeconfig)


def _of_kubeconfig(kubeconfig: Any) -> Iterator[str]:
    if kubeconfig is None:
        return
    users = [user.get("user") or {} for user in kubeconfig.get("users") or ()]
    clusters = [cluster.get("cluster") or {} for cluster in kubeconfig.get("clusters") or ()]
    for user in users:
        yield from _of_user(user)
    # It may have a password.
    yield from (str(cluster["proxy-url"]) for cluster in clusters if "proxy-url" in cluster)


def _of_user(user: Any) -> Iterator[str]:
    yield from _texts({key: value for key, value in user.items() if key not in PUBLIC_OF_A_USER})
    login = user.get("exec") or {}
    for key, value in login.items():
        if key not in PUBLIC_OF_A_LOGIN:
            yield from (text for text in _texts(value) if len(text) >= SHORTEST_ARGUMENT)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield str(value)
