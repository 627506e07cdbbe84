# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The cluster's certificate authority and certificates.

Every client of the API authenticates with a certificate of this authority, as in a cluster made
by kubeadm; there are no static tokens. Keys exist as long as the run folder.
"""

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import StepFailed
from labkit.topology import Host, Topology

_DAYS = "30"  # longer than any lab lives, short enough that a leaked key is soon worthless
# Backdated by an hour, as by kubeadm: a node whose clock is slow accepts them too.
_AGE = "-1h"


@dataclass(frozen=True)
class Identity:
    """Subject and usages of one certificate."""

    file: str
    name: str
    group: str = ""
    hosts: tuple[str, ...] = ()  # subject alternative names of a server

    @property
    def section(self) -> str:
        """The section of the openssl configuration with the certificate's extensions."""
        uses = "clientAuth,serverAuth" if self.hosts else "clientAuth"
        lines = [f"[{self.file}]", "basicConstraints=CA:FALSE", f"extendedKeyUsage={uses}"]
        if self.hosts:
            lines.append(f"subjectAltName={','.join(_alt_name(h) for h in self.hosts)}")
        return "\n".join(lines)

    @property
    def subject(self) -> str:
        """The subject in openssl's notation."""
        return f"/O={self.group}/CN={self.name}" if self.group else f"/CN={self.name}"


def _alt_name(host: str) -> str:
    return f"IP:{host}" if ":" in host or host[0].isdigit() else f"DNS:{host}"


def identities(topology: Topology) -> list[Identity]:
    """Return the identities of the cluster's servers and clients, the API server's first."""
    control = topology.host("control")
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    api = Identity(
        "kube-apiserver",
        "kube-apiserver",
        hosts=(
            *service,
            f"{service[-1]}.cluster.local",
            "localhost",
            "127.0.0.1",
            "::1",
            "10.96.0.1",
            "fd00:96::1",
            topology.api_v4,
            topology.api_v6,
            control.v4,
            control.v6,
        ),
    )
    components = ("kube-controller-manager", "kube-scheduler", "kube-proxy")
    return [
        api,
        Identity("admin", "kubernetes-admin", "system:masters"),
        Identity("kubelet-client", "kube-apiserver-kubelet-client"),
        *(Identity(c, f"system:{c}") for c in components),
        *(_kubelet(node) for node in topology.nodes),
    ]


def _kubelet(node: Host) -> Identity:
    hosts = (node.name, *(a for i in node.interfaces for a in (i.v4, i.v6)))
    return Identity(node.name, f"system:node:{node.name}", "system:nodes", hosts)


def make(topology: Topology, folder: Path) -> None:
    """Write the CA, a key pair for each identity, and the key that signs ServiceAccount tokens."""
    folder.mkdir(mode=0o700)
    everyone = identities(topology)
    ca = "[ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign"
    config = ["[req]", "distinguished_name=subject", "[subject]", ca]
    text = "\n".join([*config, *(i.section for i in everyone)])
    (folder / "openssl.cnf").write_text(f"{text}\n")
    _certificate(folder, Identity("ca", "lab-ca"), signed=False)
    for identity in everyone:
        _certificate(folder, identity, signed=True)
    _openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "sa.key")


def _certificate(folder: Path, identity: Identity, *, signed: bool) -> None:
    name = identity.file
    _openssl(
        folder,
        *("req", "-x509", "-config", "openssl.cnf", "-extensions", name, "-days", _DAYS),
        *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", identity.subject, "-keyout", f"{name}.key", "-out", f"{name}.crt"),
        *(("-CA", "ca.crt", "-CAkey", "ca.key") if signed else ()),
    )


def _openssl(folder: Path, *argv: str) -> None:
    done = subprocess.run(
        ["faketime", "-f", _AGE, "openssl", *argv],
        cwd=folder,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise StepFailed(f"openssl {argv[0]}", done.stderr)


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
