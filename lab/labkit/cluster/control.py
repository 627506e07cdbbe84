# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The command lines of the control host's components. Pure: no I/O.

All other flags keep their defaults, so that the cluster behaves like a user's.
"""

from pathlib import Path

from labkit import topology as plan
from labkit.topology import Topology

ETCD = "http://127.0.0.1:2379"

# A crashed node is detected after about 20 s instead of 50 s, which shortens tests. The period has
# room for four renewals of a kubelet's Lease (nodes.py): a busy machine does not look crashed.
NODE_GRACE = "20s"
TOLERATION = "20"  # seconds that a pod stays on a dead node; the default is 300

# For tests that count requests; those of the cluster's own controllers are left out.
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: None, userGroups: ["system:serviceaccounts:kube-system"]}
  - {level: Metadata, userGroups: ["system:serviceaccounts"]}
  - {level: None}
"""


def etcd(run: Path) -> list[str]:
    """Return the command line of etcd; it never syncs, as its data ends with the lab."""
    peers = "http://127.0.0.1:2380"
    return [
        "etcd",
        f"--data-dir={run}/etcd",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(topology: Topology, run: Path) -> list[str]:
    """Return the command line of the API server."""
    pki = run / "pki"
    return [
        "kube-apiserver",
        f"--etcd-servers={ETCD}",
        f"--secure-port={plan.API_PORT}",
        f"--advertise-address={topology.host('control').v4}",
        f"--service-cluster-ip-range={plan.SERVICE_V4},{plan.SERVICE_V6}",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/kube-apiserver.crt",
        f"--tls-private-key-file={pki}/kube-apiserver.key",
        f"--service-account-key-file={pki}/sa.key",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/kubelet-client.crt",
        f"--kubelet-client-key={pki}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        # Calls webhooks at Pod addresses: this host has routes to Pods, but no kube-proxy.
        "--enable-aggregator-routing=true",
        f"--default-not-ready-toleration-seconds={TOLERATION}",
        f"--default-unreachable-toleration-seconds={TOLERATION}",
        f"--audit-policy-file={run}/audit-policy.yaml",
        f"--audit-log-path={run}/logs/audit.jsonl",
        "--audit-log-maxsize=500",
    ]


def controller_manager(run: Path) -> list[str]:
    """Return the command line of the controller manager."""
    return [
        "kube-controller-manager",
        f"--kubeconfig={run}/kube-controller-manager.kubeconfig",
        f"--root-ca-file={run}/pki/ca.crt",
        f"--service-account-private-key-file={run}/pki/sa.key",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        f"--node-monitor-grace-period={NODE_GRACE}",
        # At its start it requests a token per controller: 3 s at the default rate of 20/s.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def scheduler(run: Path) -> list[str]:
    """Return the command line of the scheduler."""
    return [
        "kube-scheduler",
        f"--kubeconfig={run}/kube-scheduler.kubeconfig",
        "--leader-elect=false",
    ]
