# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The conversion webhook: reviews over TLS on the loopback interface."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import time
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from prometheus_client import CollectorRegistry

from ansible_collections.purelb.purelb.plugins.filter.conversion_certificate import (
    conversion_certificate,
)
from purelb_agent.allocator import conversion
from purelb_agent.allocator.conversion import Conversion, ReviewError, answer
from purelb_agent.allocator.metrics import ConversionMetrics
from purelb_agent.runtime import log

pytestmark = pytest.mark.real_time

HOST = "purelb-conversion.purelb-system.svc"
V4 = {"pool": "10.0.0.1-10.0.0.9", "subnet": "10.0.0.0/24"}
HEAD = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
ENCRYPTED = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
YEARS = 365 * 24 * 3600


def group(name="a", *, version="v1", **spec):
    meta = {"name": name, "namespace": "ns"}
    return {
        "apiVersion": f"purelb.io/{version}",
        "kind": "ServiceGroup",
        "metadata": meta,
        "spec": spec or {"local": {"v4pool": V4}},
    }


def review(*objects, to="purelb.io/v2", uid="u"):
    return {**HEAD, "request": {"uid": uid, "desiredAPIVersion": to, "objects": list(objects)}}


class TestAnswer:
    def test_objects_are_converted_in_their_order(self):
        reply = answer(review(group("a"), group("b", version="v2"), group("c")))
        assert {k: reply[k] for k in HEAD} == HEAD
        response = reply["response"]
        assert response["uid"] == "u"
        assert response["result"] == {"status": "Success"}
        assert [one["metadata"]["name"] for one in response["convertedObjects"]] == ["a", "b", "c"]
        assert {one["apiVersion"] for one in response["convertedObjects"]} == {"purelb.io/v2"}

    def test_empty_list_succeeds(self):
        assert answer(review())["response"]["result"] == {"status": "Success"}

    def test_one_invalid_object_fails_the_list_with_name_field_and_remedy(self):
        response = answer(review(group("a"), group("b", local=5), "x"))["response"]
        assert response["convertedObjects"] == []
        assert response["result"] == {
            "status": "Failure",
            "message": "ServiceGroup ns/b: spec.local: must be an object; "
            "request.objects[2]: must be an object",
        }

    def test_message_names_the_first_five_of_many_invalid_objects(self):
        response = answer(review(*(group(f"g{n}", local=5) for n in range(50))))["response"]
        assert response["result"]["message"].count("must be an object") == 5

    @pytest.mark.parametrize("to", ["apps/v1", "purelb.io/v3", ""])
    def test_unknown_version_is_refused(self, to):
        result = answer(review(group(), to=to))["response"]["result"]
        assert result["status"] == "Failure"
        assert "ServiceGroup ns/a: apiVersion: cannot become" in result["message"]

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            (5, "send a ConversionReview"),
            ({}, "send a ConversionReview"),
            ({**HEAD, "apiVersion": "apiextensions.k8s.io/v1beta1"}, "send a ConversionReview"),
            (HEAD, "request: must be an object"),
            ({**HEAD, "request": {}}, "request.uid: must be a str"),
            ({**HEAD, "request": {"uid": "u"}}, "request.desiredAPIVersion: must be a str"),
            (
                {**HEAD, "request": {"uid": "u", "desiredAPIVersion": "purelb.io/v2"}},
                "request.objects: must be a list",
            ),
        ],
        ids=str,
    )
    def test_request_that_is_no_review_is_refused(self, body, words):
        with pytest.raises(ReviewError, match=words.replace(".", r"\.")):
            answer(body)


@pytest.fixture
def folder(tmp_path):
    """As a kubelet mounts a Secret: links to links to files of one version."""
    (tmp_path / "..data").symlink_to("..first")
    return tmp_path


def put(folder, version, data):
    made = folder / version
    made.mkdir()
    for name, text in data.items():
        (made / name).write_bytes(base64.b64decode(text))
        with suppress(FileExistsError):
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..new").symlink_to(version)
    (folder / "..new").replace(folder / "..data")


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(conversion, "LOOK_SECONDS", 0.02)


@pytest.fixture
def told(monkeypatch):
    """Warnings in the log."""
    warnings = []

    def warning(event, **fields):
        warnings.append((event, fields))

    monkeypatch.setattr(log, "warning", warning)
    return warnings


@asynccontextmanager
async def serving(folder, port):
    registry = CollectorRegistry()
    server = Conversion(ConversionMetrics(registry), folder=folder, port=port)
    work = asyncio.create_task(server.run())
    try:
        yield registry
        assert not work.done()
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def post(port, data, *, bundle, address="127.0.0.1", path="/convert"):
    trust = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        host = f"[{address}]" if ":" in address else address
        url = f"https://{host}:{port}{path}"
        async with session.post(url, data=data, server_hostname=HOST) as reply:
            return reply.status, await reply.text()


async def until(look, seconds=5):
    end = time.monotonic() + seconds
    while True:
        try:
            return await look()
        except (aiohttp.ClientError, AssertionError):
            assert time.monotonic() < end
            await asyncio.sleep(0.02)


class TestServing:
    @pytest.mark.parametrize("address", ["127.0.0.1", "::1"], ids=["v4", "v6"])
    async def test_review_over_tls_returns_the_objects(self, folder, port, address):
        data = conversion_certificate(None, host=HOST)
        put(folder, "..first", data)
        async with serving(folder, port) as registry:
            asked = json.dumps(review(group("a"), group("b")))
            status, text = await until(
                lambda: post(port, asked, bundle=data["ca.crt"], address=address)
            )
            assert status == 200
            assert len(json.loads(text)["response"]["convertedObjects"]) == 2
            count = registry.get_sample_value(
                "purelb_conversion_objects_total", {"outcome": "converted"}
            )
            assert count == 2
            end = registry.get_sample_value("purelb_conversion_certificate_end_seconds")
            assert 4 * YEARS < end - time.time() < 6 * YEARS

    async def test_invalid_requests_get_an_error_and_the_next_is_served(self, folder, port):
        data = conversion_certificate(None, host=HOST)
        put(folder, "..first", data)
        deep = "[" * 5000 + "]" * 5000
        nested = json.dumps(review(group()))
        nested = nested.replace('"10.0.0.0/24"', '{"a":' * 600 + "1" + "}" * 600)
        async with serving(folder, port) as registry:
            await until(lambda: post(port, "{}", bundle=data["ca.crt"]))
            for sent in (b"", b"\xff\xfe", b"{", b"5", b"{}", deep.encode(), nested.encode()):
                status, _text = await post(port, sent, bundle=data["ca.crt"])
                assert status in (200, 400), sent[:20]
            assert (await post(port, b"", bundle=data["ca.crt"], path="/"))[0] == 404
            status, text = await post(
                port, json.dumps(review(group(local=5))), bundle=data["ca.crt"]
            )
            assert (status, json.loads(text)["response"]["result"]["status"]) == (200, "Failure")
            refused = {"outcome": "refused"}
            assert registry.get_sample_value("purelb_conversion_objects_total", refused) == 1

    async def test_list_of_thousands_is_converted(self, folder, port):
        data = conversion_certificate(None, host=HOST)
        put(folder, "..first", data)
        asked = json.dumps(review(*(group(f"g{n}", local=V4) for n in range(5000))))
        assert len(asked) > 2**20 / 2
        async with serving(folder, port):
            await until(lambda: post(port, "{}", bundle=data["ca.crt"]))
            _status, text = await post(port, asked, bundle=data["ca.crt"])
            assert len(json.loads(text)["response"]["convertedObjects"]) == 5000


class TestCertificates:
    async def test_server_starts_once_there_is_a_certificate(self, folder, port, told):
        data = conversion_certificate(None, host=HOST)
        async with serving(folder, port):
            with pytest.raises(aiohttp.ClientConnectorError):
                await post(port, "{}", bundle=data["ca.crt"])
            await asyncio.sleep(0.1)
            put(folder, "..first", data)
            assert (await until(lambda: post(port, "{}", bundle=data["ca.crt"])))[0] == 400
        assert [event for event, _fields in told] == ["conversionCertificate"]

    async def test_new_certificate_is_loaded_while_serving(self, folder, port):
        first, second = (conversion_certificate(None, host=HOST) for _number in range(2))
        put(folder, "..first", first)
        async with serving(folder, port):
            await until(lambda: post(port, "{}", bundle=first["ca.crt"]))
            put(folder, "..second", second)
            await until(lambda: post(port, "{}", bundle=second["ca.crt"]))
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await post(port, "{}", bundle=first["ca.crt"])

    @pytest.mark.parametrize("field", ["tls.crt", "tls.key"])
    @pytest.mark.parametrize("how", ["another's", "garbage", "encrypted", "empty"])
    async def test_unusable_certificate_is_logged_once_and_the_old_one_kept(
        self, folder, port, field, how, told
    ):
        good, other = (conversion_certificate(None, host=HOST) for _number in range(2))
        key = load_pem_private_key(base64.b64decode(good["tls.key"]), None)
        bad = {
            "another's": other[field],
            "garbage": base64.b64encode(b"garbage").decode(),
            "encrypted": base64.b64encode(key.private_bytes(*ENCRYPTED)).decode(),
            "empty": "",
        }
        put(folder, "..first", good)
        async with serving(folder, port):
            await until(lambda: post(port, "{}", bundle=good["ca.crt"]))
            put(folder, "..second", {**good, field: bad[how]})
            await asyncio.sleep(0.1)
            assert len(told) == 1
            assert (await post(port, "{}", bundle=good["ca.crt"]))[0] == 400

    async def test_certificate_without_authority_file_is_served(self, folder, port):
        data = conversion_certificate(None, host=HOST)
        put(folder, "..first", {k: text for k, text in data.items() if k != "ca.crt"})
        async with serving(folder, port):
            assert (await until(lambda: post(port, "{}", bundle=data["ca.crt"])))[0] == 400

    async def test_taken_port_is_a_setting_error(self, folder, port):
        put(folder, "..first", conversion_certificate(None, host=HOST))
        with socket.create_server(("127.0.0.1", port)):
            server = Conversion(ConversionMetrics(CollectorRegistry()), folder=folder, port=port)
            with pytest.raises(conversion.SettingError, match=f"port {port} cannot be opened"):
                await server.run()
