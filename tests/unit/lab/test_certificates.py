# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from labkit.cluster.certificates import identities
from labkit.topology import plan

LAB = plan(nodes=2, placements=["n2=lan1,lan2"])


def identity(file: str):
    return next(i for i in identities(LAB) if i.file == file)


def test_api_server_certificate_has_every_address_of_the_api_server():
    section = identity("kube-apiserver").section
    for name in ("172.28.255.2", "172.28.1.2", "10.96.0.1", "fd00:96::1", "127.0.0.1"):
        assert f"IP:{name}" in section
    assert "DNS:kubernetes.default.svc.cluster.local" in section


def test_api_server_certificate_of_lab_1_has_the_address_of_its_link():
    [api, *_clients] = identities(plan(number=1, nodes=1))
    assert "IP:172.28.255.6,IP:fd28:0:0:ff::6" in api.section
    assert "172.28.255.2" not in api.section


def test_kubelet_certificate_is_a_system_nodes_and_allows_serving():
    kubelet = identity("n2")
    assert kubelet.subject == "/O=system:nodes/CN=system:node:n2"
    assert "clientAuth,serverAuth" in kubelet.section
    assert "IP:172.28.2.12" in kubelet.section


def test_component_certificate_allows_only_clients():
    assert "serverAuth" not in identity("kube-proxy").section
    assert identity("admin").subject == "/O=system:masters/CN=kubernetes-admin"
