# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The certificate of the conversion webhook: created once, kept, and renewed in time."""

from __future__ import annotations

import base64
import datetime as dt

import pytest
from ansible.errors import AnsibleFilterError
from cryptography import x509

from ansible_collections.purelb.purelb.plugins.filter import conversion_certificate as made
from ansible_collections.purelb.purelb.plugins.filter.conversion_certificate import (
    conversion_certificate,
)

HOST = "purelb-conversion.purelb-system.svc"


def certificates(data, field):
    return x509.load_pem_x509_certificates(base64.b64decode(data[field]))


@pytest.fixture
def certificate_valid_for(monkeypatch):
    """Returns a function that creates a certificate valid for a number of years."""

    def make(years):
        with monkeypatch.context() as patched:
            patched.setattr(made, "_VALID", dt.timedelta(days=365 * years))
            return conversion_certificate(None, host=HOST)

    return make


@pytest.mark.parametrize("found", [None, {}], ids=str)
def test_a_missing_certificate_is_created(found):
    data = conversion_certificate(found, host=HOST)
    (own,), (authority,) = (certificates(data, field) for field in ("tls.crt", "ca.crt"))
    own.verify_directly_issued_by(authority)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOST]
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert own.not_valid_after_utc == authority.not_valid_after_utc
    assert sorted(data) == ["ca.crt", "tls.crt", "tls.key"]


def test_a_valid_certificate_is_kept():
    data = conversion_certificate(None, host=HOST)
    assert conversion_certificate(data, host=HOST) == data


@pytest.mark.parametrize(("years", "is_kept"), [(1.1, True), (0.9, False)], ids=["before", "in"])
def test_renewal_in_the_last_year_keeps_the_former_authority(certificate_valid_for, years, is_kept):
    old = certificate_valid_for(years)
    new = conversion_certificate(old, host=HOST)
    assert (new == old) is is_kept
    if not is_kept:
        authorities = certificates(new, "ca.crt")
        assert authorities[1:] == certificates(old, "ca.crt")
        certificates(new, "tls.crt")[0].verify_directly_issued_by(authorities[0])
        assert conversion_certificate(new, host=HOST) == new


def test_an_expired_authority_is_dropped(certificate_valid_for):
    old = certificate_valid_for(0)
    assert len(certificates(conversion_certificate(old, host=HOST), "ca.crt")) == 1


@pytest.mark.parametrize(
    ("field", "text"),
    [("tls.crt", ""), ("tls.key", ""), ("ca.crt", ""), ("ca.crt", "eA=="), ("tls.key", "eA==")],
)
def test_an_incomplete_secret_is_replaced(field, text):
    data = conversion_certificate(None, host=HOST)
    again = conversion_certificate({**data, field: text}, host=HOST)
    assert again["tls.crt"] != data["tls.crt"]
    assert conversion_certificate(again, host=HOST) == again


@pytest.mark.parametrize("field", ["tls.crt", "tls.key", "ca.crt"])
def test_parts_of_two_certificates_are_replaced(field):
    first, second = (conversion_certificate(None, host=HOST) for _number in range(2))
    assert conversion_certificate({**first, field: second[field]}, host=HOST) != first


def test_a_certificate_for_another_host_is_replaced():
    data = conversion_certificate(None, host="purelb-conversion.other.svc")
    assert conversion_certificate(data, host=HOST) != data


def test_a_missing_package_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setattr(made, "IMPORT_ERROR", ImportError("x"))
    with pytest.raises(AnsibleFilterError, match="cryptography: install it"):
        conversion_certificate(None, host=HOST)
