# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The certificate of the conversion: made once, kept, and renewed in time."""

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
def with_left(monkeypatch):
    """A certificate with so many years left."""

    def make(years):
        with monkeypatch.context() as patched:
            patched.setattr(made, "_VALID", dt.timedelta(days=365 * years))
            return conversion_certificate(None, host=HOST)

    return make


@pytest.mark.parametrize("found", [None, {}], ids=str)
def test_one_is_made_where_there_is_none(found):
    data = conversion_certificate(found, host=HOST)
    (own,), (authority,) = (certificates(data, field) for field in ("tls.crt", "ca.crt"))
    own.verify_directly_issued_by(authority)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOST]
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert own.not_valid_after_utc == authority.not_valid_after_utc
    assert sorted(data) == ["ca.crt", "tls.crt", "tls.key"]


def test_one_that_is_good_is_kept():
    data = conversion_certificate(None, host=HOST)
    assert conversion_certificate(data, host=HOST) == data


@pytest.mark.parametrize(("years", "is_kept"), [(1.1, True), (0.9, False)], ids=["before", "in"])
def test_it_is_renewed_in_its_last_year_and_the_former_authority_stays(with_left, years, is_kept):
    old = with_left(years)
    new = conversion_certificate(old, host=HOST)
    assert (new == old) is is_kept
    if not is_kept:
        authorities = certificates(new, "ca.crt")
        assert authorities[1:] == certificates(old, "ca.crt")
        certificates(new, "tls.crt")[0].verify_directly_issued_by(authorities[0])
        assert conversion_certificate(new, host=HOST) == new


def test_an_authority_that_has_ended_goes(with_left):
    old = with_left(0)
    assert len(certificates(conversion_certificate(old, host=HOST), "ca.crt")) == 1


@pytest.mark.parametrize(
    ("field", "text"),
    [("tls.crt", ""), ("tls.key", ""), ("ca.crt", ""), ("ca.crt", "eA=="), ("tls.key", "eA==")],
)
def test_one_that_lacks_a_part_is_made_anew(field, text):
    data = conversion_certificate(None, host=HOST)
    again = conversion_certificate({**data, field: text}, host=HOST)
    assert again["tls.crt"] != data["tls.crt"]
    assert conversion_certificate(again, host=HOST) == again


@pytest.mark.parametrize("field", ["tls.crt", "tls.key", "ca.crt"])
def test_parts_of_two_do_not_fit(field):
    one, other = (conversion_certificate(None, host=HOST) for _number in range(2))
    assert conversion_certificate({**one, field: other[field]}, host=HOST) != one


def test_one_for_another_host_is_made_anew():
    data = conversion_certificate(None, host="purelb-conversion.other.svc")
    assert conversion_certificate(data, host=HOST) != data


def test_without_the_package_the_message_names_it(monkeypatch):
    monkeypatch.setattr(made, "IMPORT_ERROR", ImportError("x"))
    with pytest.raises(AnsibleFilterError, match="cryptography: install it"):
        conversion_certificate(None, host=HOST)
