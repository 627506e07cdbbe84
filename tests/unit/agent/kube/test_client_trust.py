# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The certificate authorities of requests, which are replaced while a program runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aiohttp import web

from purelb_agent.kube.client import ApiError, Kube

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.parametrize("host", ["127.0.0.1", "::1"], ids=["v4", "v6"]),
]
PATH = "/api/v1/services"


@pytest.fixture
async def access(host, serve):
    async def handle(_request):
        return web.json_response({"items": []})

    app = web.Application()
    app.router.add_get(PATH, handle)
    return await serve(app, host=host)


@pytest.fixture
def present(access):
    """The certificate of the authority that the server has now."""
    return access.ca_file.read_text()


@pytest.fixture
def ca_file(tmp_path):
    return tmp_path / "ca.crt"


def put(file, text):
    """Replace a file as a kubelet does: a link leads to another one."""
    made = file.with_name("next")
    made.write_text(text)
    made.replace(file)


async def test_a_replaced_authority_is_trusted_by_the_next_request(
    access, present, ca_file, other_certificate
):
    put(ca_file, (other_certificate / "crt").read_text())
    async with Kube(replace(access, ca_file=ca_file)) as kube:
        with pytest.raises(ApiError, match="certificate"):
            await kube.request("GET", PATH)
        put(ca_file, present)
        assert await kube.request("GET", PATH) == {"items": []}


async def test_one_that_was_taken_away_is_trusted_no_more(
    access, present, ca_file, other_certificate
):
    put(ca_file, present)
    async with Kube(replace(access, ca_file=ca_file)) as kube:
        await kube.request("GET", PATH)
        put(ca_file, (other_certificate / "crt").read_text())
        with pytest.raises(ApiError, match="certificate"):
            await kube.request("GET", PATH)


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----", None])
async def test_a_file_that_is_of_no_use_changes_nothing(access, present, ca_file, text):
    put(ca_file, present)
    async with Kube(replace(access, ca_file=ca_file)) as kube:
        if text is None:
            ca_file.unlink()
        else:
            put(ca_file, text)
        assert await kube.request("GET", PATH) == {"items": []}
