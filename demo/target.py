# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Where the demo installs: a lab of its own, or, if asked for in so many words, another cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import kubernetes
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

from labkit.errors import Problem

CLUSTER, IMAGE = "DEMO_CLUSTER", "PURELB_IMAGE"
MINE = "mine"
_DEFAULT = "KUBECONFIG"


@dataclass(frozen=True)
class Target:
    """A cluster of the user's."""

    kubeconfig: str
    """The file, or several with colons between them."""
    image: str
    context: str
    server: str

    def __str__(self) -> str:
        return f"{self.server} (context {self.context} of {self.kubeconfig})"


def target(environ: Mapping[str, str]) -> Target | None:
    """Return the user's cluster if these variables ask for it; None is the lab.

    Raises Problem if the variables contradict each other or the kubeconfig cannot be used.
    """
    wanted = environ.get(CLUSTER, "")
    if not wanted:
        return None
    if wanted != MINE:
        raise Problem(f"{CLUSTER} is {wanted!r}: use {CLUSTER}={MINE}, or leave it out for a lab")
    if not environ.get(IMAGE):
        raise Problem(f"{CLUSTER}={MINE} needs an image: set {IMAGE} to one that your nodes pull")
    kubeconfig = environ.get(_DEFAULT) or KUBE_CONFIG_DEFAULT_LOCATION
    context, server = _current(kubeconfig)
    return Target(kubeconfig, environ[IMAGE], context, server)


def untouched(environ: Mapping[str, str]) -> str:
    """Return what a user whose shell has a cluster is told before the lab is used."""
    if not environ.get(_DEFAULT):
        return ""
    return (
        f"the demo uses a lab of its own; {_DEFAULT} ({environ[_DEFAULT]}) is left alone:"
        f" {CLUSTER}={MINE} installs there instead"
    )


def _current(kubeconfig: str) -> tuple[str, str]:
    """Return the current context and the server of a kubeconfig."""
    try:
        _contexts, current = kubernetes.config.list_kube_config_contexts(kubeconfig)
        client = kubernetes.config.new_client_from_config(kubeconfig)
    except kubernetes.config.ConfigException as error:
        reason = " ".join(str(error).split())
        raise Problem(f"{kubeconfig} names no cluster ({reason}): set {_DEFAULT}") from error
    with client:
        return current["name"], client.configuration.host
