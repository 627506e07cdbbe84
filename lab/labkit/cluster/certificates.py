# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The cluster's certificate authority and certificates.

Every client of the API authenticates with a certificate of this authority, as in a cluster made
by kubeadm; there are no static tokens. Keys exist as long as the run folder.
"""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from labkit.topology import Host, Topology

Key = ec.EllipticCurvePrivateKey

# Longer than any lab lives, short enough that a leaked key is soon worthless.
_LIFE = dt.timedelta(days=30)
# Backdated by an hour, as by kubeadm: a node whose clock is slow accepts them too.
_AGE = dt.timedelta(hours=1)
_CA = "lab-ca"
_KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True)
class Identity:
    """Subject and usages of one certificate."""

    file: str
    name: str
    group: str = ""
    hosts: tuple[str, ...] = ()  # subject alternative names of a server


@dataclass(frozen=True)
class Authority:
    """The certificate authority: the key that signs, and its certificate."""

    key: Key
    certificate: x509.Certificate


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
    now = dt.datetime.now(dt.UTC)
    authority = make_authority(now)
    _write(folder, "ca", authority.key, authority.certificate)
    for identity in identities(topology):
        key = _new_key()
        certificate = signed(identity, authority=authority, key=key.public_key(), now=now)
        _write(folder, identity.file, key, certificate)
    _write(folder, "sa", _new_key())


def make_authority(now: dt.datetime) -> Authority:
    """Return a new authority with a certificate signed by its own key."""
    key = _new_key()
    name = _subject(_CA)
    usage = dict.fromkeys(_KEY_USAGES, False) | {"key_cert_sign": True, "crl_sign": True}
    certificate = (
        _builder(name, name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(key, certificate)


def signed(
    identity: Identity,
    *,
    authority: Authority,
    key: ec.EllipticCurvePublicKey,
    now: dt.datetime,
) -> x509.Certificate:
    """Return an identity's certificate: every one is a client, one with hosts a server too."""
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if identity.hosts:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    issuer = authority.certificate.subject
    builder = (
        _builder(_subject(identity.name, identity.group), issuer, key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    if identity.hosts:
        names = x509.SubjectAlternativeName([_alt_name(host) for host in identity.hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def _new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str, group: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alt_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _AGE)
        .not_valid_after(now + _LIFE)
    )


def _write(folder: Path, name: str, key: Key, certificate: x509.Certificate | None = None) -> None:
    pem = serialization.Encoding.PEM
    private = serialization.PrivateFormat.TraditionalOpenSSL
    path = folder / f"{name}.key"
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(pem, private, serialization.NoEncryption()))
    if certificate:
        (folder / f"{name}.crt").write_bytes(certificate.public_bytes(pem))
