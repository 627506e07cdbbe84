# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import datetime as dt
import ssl
import stat
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from labkit.cluster import certificates
from labkit.cluster.certificates import identities, make_authority, signed
from labkit.topology import plan

LAB = plan(nodes=2, placements=["n2=lan1,lan2"])
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
AUTHORITY = make_authority(NOW)
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


def certificate(file: str, topology=LAB) -> x509.Certificate:
    identity = next(i for i in identities(topology) if i.file == file)
    key = ec.generate_private_key(ec.SECP256R1())
    return signed(identity, authority=AUTHORITY, key=key.public_key(), now=NOW)


def names(found: x509.Certificate) -> x509.SubjectAlternativeName:
    return found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def usages(found: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_api_server_certificate_has_every_address_of_the_api_server():
    of_server = names(certificate("kube-apiserver"))
    addresses = set(map(str, of_server.get_values_for_type(x509.IPAddress)))
    assert addresses >= {"172.28.255.2", "172.28.1.2", "10.96.0.1", "fd00:96::1", "127.0.0.1"}
    dns = of_server.get_values_for_type(x509.DNSName)
    assert "kubernetes.default.svc.cluster.local" in dns


def test_api_server_certificate_of_lab_1_has_the_address_of_its_link():
    of_server = names(certificate("kube-apiserver", plan(number=1, nodes=1)))
    addresses = of_server.get_values_for_type(x509.IPAddress)
    assert {ip_address("172.28.255.6"), ip_address("fd28:0:0:ff::6")} <= set(addresses)
    assert ip_address("172.28.255.2") not in addresses


def test_kubelet_certificate_is_a_system_nodes_and_allows_serving():
    kubelet = certificate("n2")
    assert kubelet.subject.rfc4514_string() == "CN=system:node:n2,O=system:nodes"
    assert usages(kubelet) == [CLIENT, SERVER]
    assert ip_address("172.28.2.12") in names(kubelet).get_values_for_type(x509.IPAddress)


def test_component_certificate_allows_only_clients():
    assert usages(certificate("kube-proxy")) == [CLIENT]
    admin = certificate("admin")
    assert admin.subject.rfc4514_string() == "CN=kubernetes-admin,O=system:masters"


@pytest.mark.parametrize("found", [AUTHORITY.certificate, certificate("admin")])
def test_certificates_are_valid_since_an_hour_ago_and_for_a_month(found: x509.Certificate):
    assert found.not_valid_before_utc == NOW - dt.timedelta(hours=1)
    assert found.not_valid_after_utc == NOW + dt.timedelta(days=30)
    found.verify_directly_issued_by(AUTHORITY.certificate)


def test_written_files_are_what_tls_reads_and_keys_are_the_owners_alone(tmp_path: Path):
    folder = tmp_path / "pki"
    certificates.make(LAB, folder)
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    for identity in identities(LAB):
        context.load_cert_chain(folder / f"{identity.file}.crt", folder / f"{identity.file}.key")
    keys = sorted(folder.glob("*.key"))
    assert [key.name for key in keys] == sorted(
        ["ca.key", "sa.key", *(f"{i.file}.key" for i in identities(LAB))]
    )
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
