# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The kubeconfigs of the cluster's clients, each with its certificate in it."""

import base64
import json
from pathlib import Path


def kubeconfig(folder: Path, identity: str, server: str) -> str:
    """Return a kubeconfig with embedded certificates."""

    def embedded(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    user = {
        "client-certificate-data": embedded(f"{identity}.crt"),
        "client-key-data": embedded(f"{identity}.key"),
    }
    cluster = {"server": server, "certificate-authority-data": embedded("ca.crt")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": identity, "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": identity}}],
        "current-context": "lab",
    }
    return f"{json.dumps(config, indent=1)}\n"
