# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Creates and renews the certificate of the conversion webhook."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any, Callable, Dict, List, Mapping, Optional

from ansible.errors import AnsibleFilterError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    IMPORT_ERROR: Optional[ImportError] = None
except ImportError as missing:
    IMPORT_ERROR = missing

# Valid for years, as roles are run rarely; a run in the last year renews it.
_VALID = dt.timedelta(days=5 * 365)
_RENEWED = dt.timedelta(days=365)
# Tolerance for clocks that are slow.
_CLOCK_SKEW = dt.timedelta(hours=1)
_END_OF_CERTIFICATE = b"-----END CERTIFICATE-----\n"


def conversion_certificate(found: Optional[Mapping[str, str]], *, host: str) -> Dict[str, str]:
    """Returns the `data` of the Secret: the existing one if still valid, otherwise a new one."""
    if IMPORT_ERROR is not None:
        raise AnsibleFilterError(
            "the certificate for the API version v1 requires the Python package cryptography: "
            "install it for the Python of Ansible, or set purelb_install_v1_api to false"
        ) from IMPORT_ERROR
    now = dt.datetime.now(tz=dt.timezone.utc)
    authorities = _authorities(found or {}, now)
    if found and _is_valid(found, authorities, host, now):
        return dict(found)
    return _new_certificate(host, authorities, now)


def _decoded(found: Mapping[str, str], field: str) -> bytes:
    return base64.b64decode(found.get(field) or "")


def _authorities(found: Mapping[str, str], now: dt.datetime) -> List[Any]:
    """Returns the authorities that have not expired, that of the present certificate first."""
    try:
        texts = _decoded(found, "ca.crt").split(_END_OF_CERTIFICATE)
        read = [
            x509.load_pem_x509_certificate(text + _END_OF_CERTIFICATE)
            for text in texts
            if text.strip()
        ]
    except ValueError:
        return []
    return [authority for authority in read if _end(authority) > now]


def _end(certificate: Any) -> dt.datetime:
    if hasattr(certificate, "not_valid_after_utc"):
        end: dt.datetime = certificate.not_valid_after_utc
        return end
    # Before cryptography 42, which deprecates this property.
    before: dt.datetime = certificate.not_valid_after
    return before.replace(tzinfo=dt.timezone.utc)


def _is_valid(
    found: Mapping[str, str], authorities: List[Any], host: str, now: dt.datetime
) -> bool:
    try:
        own = x509.load_pem_x509_certificate(_decoded(found, "tls.crt"))
        key = serialization.load_pem_private_key(_decoded(found, "tls.key"), None)
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        authority = authorities[0]
    except (ValueError, TypeError, IndexError, x509.ExtensionNotFound):
        return False
    return bool(
        own.issuer == authority.subject
        and min(_end(own), _end(authority)) - now > _RENEWED
        and host in names.get_values_for_type(x509.DNSName)
        and key.public_key() == own.public_key()
    )


def _new_certificate(host: str, former: List[Any], now: dt.datetime) -> Dict[str, str]:
    """Returns a new authority and a certificate signed by it; the authority's key is discarded.

    Former authorities stay in the bundle until they expire, so that the API server accepts Pods
    that still use the previous certificate.
    """
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _number in range(2))
    # A unique name for each authority, so that verification selects the right one.
    issuer = _name(f"purelb-conversion {x509.random_serial_number():x}")
    authority = _signed(
        _builder(issuer, authority_key, issuer, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True),
        authority_key,
    )
    own = _signed(
        _builder(_name("purelb-conversion"), key, issuer, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False),
        authority_key,
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    bundle = b"".join(each.public_bytes(pem) for each in (authority, *former))
    parts = {"ca.crt": bundle, "tls.crt": own.public_bytes(pem), "tls.key": private}
    return {field: base64.b64encode(part).decode() for field, part in parts.items()}


def _name(text: str) -> Any:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: Any, key: Any, issuer: Any, now: dt.datetime) -> Any:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALID)
    )


def _usage(*, signs: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: Any, key: Any) -> Any:
    return builder.sign(key, hashes.SHA256())


class FilterModule:
    """The filter plugin."""

    def filters(self) -> Dict[str, Callable[..., Dict[str, str]]]:
        """Returns the filters by name."""
        return {"conversion_certificate": conversion_certificate}
