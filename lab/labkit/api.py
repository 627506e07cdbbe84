# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""A small synchronous client of the API server, as admin or with a token; standard library only.

Objects are plain JSON. The path of an object follows from its apiVersion and kind by the API
server's discovery; no resource is known by name.
"""

import errno
import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from labkit.errors import LabError
from labkit.topology import API_PORT

Json = dict[str, Any]

_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"  # JSON is YAML
NOT_FOUND = 404
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH)


class ApiError(LabError):
    """The API server answered a request with an error."""

    def __init__(self, status: int, text: str) -> None:
        """Keep the HTTP status; the text is the server's message, if it sent one."""
        self.status = status
        # (field, message) of each invalid field.
        self.causes: list[tuple[str, str]] = []
        try:
            answer = json.loads(text)
            text = answer["message"]
            found = (answer.get("details") or {}).get("causes") or ()
            self.causes = [(cause.get("field", ""), cause["message"]) for cause in found]
        except (ValueError, KeyError, TypeError):
            text = text[:500]
        super().__init__(f"API server: {status}: {text}")


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed a moment later: 429, 5xx, or a broken connection."""
    if isinstance(error, ApiError):
        is_overload = error.status == http.client.TOO_MANY_REQUESTS
        return is_overload or error.status >= http.client.INTERNAL_SERVER_ERROR
    if isinstance(error, (ConnectionError, TimeoutError, ssl.SSLError, http.client.HTTPException)):
        return True
    return isinstance(error, OSError) and error.errno in _UNREACHABLE


class Api:
    """A client that opens a connection per call, so it works in any thread and after an outage."""

    def __init__(
        self, pki: Path, address: str, *, token: str = "", identity: str = "admin"
    ) -> None:
        """Act with a token or, without one, as an identity of the lab's folder of certificates.

        With neither the client is anonymous.
        """
        self._pki, self._address = pki, address
        self._tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif identity:
            self._tls.load_cert_chain(pki / f"{identity}.crt", pki / f"{identity}.key")
        self._resources: dict[str, dict[str, Json]] = {}

    def with_token(self, token: str) -> "Api":
        """Return a client that authenticates with a token."""
        return Api(self._pki, self._address, token=token)

    def with_identity(self, identity: str) -> "Api":
        """Return a client that authenticates as a node, or not at all if the name is empty."""
        return Api(self._pki, self._address, identity=identity)

    def call(
        self, method: str, path: str, body: Any = None, *, kind: str = "", timeout: float = 30
    ) -> Any:
        """Send a request; return the parsed JSON of the answer, or its text if it is not JSON.

        Raises ApiError for an HTTP status of 400 or more.
        """
        connection = http.client.HTTPSConnection(
            self._address, API_PORT, timeout=timeout, context=self._tls
        )
        headers = {**self._headers, "Content-Type": kind or "application/json"}
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise ApiError(answer.status, text)
        is_json = (answer.getheader("Content-Type") or "").startswith("application/json")
        return json.loads(text) if is_json else text

    def get(self, path: str, **query: str) -> Any:
        """Read an object or a list."""
        return self.call("GET", f"{path}?{urlencode(query)}" if query else path)

    def items(self, path: str, **query: str) -> list[Json]:
        """Read the objects of a list."""
        found: list[Json] = self.get(path, **query)["items"]
        return found

    def find(self, path: str) -> Any:
        """Read an object; return None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def exists(self, path: str) -> bool:
        """Whether an object exists."""
        return self.find(path) is not None

    def create(self, thing: Mapping[str, Any]) -> Json:
        """Create an object; return it as stored."""
        made: Json = self.call("POST", self.collection_of(thing), thing)
        return made

    def apply(self, thing: Mapping[str, Any], *, manager: str = "lab") -> Json:
        """Create or change an object by server-side apply; return it as stored."""
        path = f"{self.path_of(thing)}?fieldManager={manager}&force=true"
        applied: Json = self.call("PATCH", path, thing, kind=_APPLY)
        return applied

    def merge_patch(self, path: str, patch: Mapping[str, Any]) -> Json:
        """Change fields of an object (None removes one); return it as stored."""
        patched: Json = self.call("PATCH", path, patch, kind=_MERGE)
        return patched

    def delete(self, path: str, **options: Any) -> bool:
        """Delete an object, or all objects of a list; return whether it existed."""
        try:
            self.call("DELETE", path, options or None)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return True

    def wait(
        self,
        path: str,
        condition: Callable[[Any], bool] = bool,
        *,
        what: str = "",
        seconds: float = 30,
    ) -> Any:
        """Poll an object (None while it does not exist) until the condition holds; return it.

        A request that fails for a transient reason is repeated.
        """
        deadline = time.monotonic() + seconds
        seen, failure = None, ""
        while True:
            try:
                seen = self.find(path)
                if condition(seen):
                    return seen
            except (OSError, http.client.HTTPException, ApiError) as error:
                if not is_transient(error):
                    raise
                failure = f"; last failed request: {error!r}"
            if time.monotonic() > deadline:
                expected = what or f"{path} in the expected state"
                state = json.dumps(seen.get("status") if isinstance(seen, dict) else seen)[:600]
                raise LabError(f"no {expected} after {seconds:.0f} s; its status: {state}{failure}")
            time.sleep(0.05)

    def is_ready(self) -> bool:
        """Whether the API server answers that it is ready."""
        try:
            return bool(self.call("GET", "/readyz", timeout=2) == "ok")
        except (OSError, http.client.HTTPException, ApiError):
            return False

    def path_of(self, thing: Mapping[str, Any]) -> str:
        """Return the path of an object."""
        return f"{self.collection_of(thing)}/{thing['metadata']['name']}"

    def collection_of(self, thing: Mapping[str, Any]) -> str:
        """Return the path of the list that an object belongs to."""
        version: str = thing["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        resource = self._resource(root, thing["kind"])
        namespace = thing["metadata"].get("namespace", "default")
        middle = f"/namespaces/{namespace}" if resource["namespaced"] else ""
        return f"{root}{middle}/{resource['name']}"

    def _resource(self, root: str, kind: str) -> Json:
        if kind not in self._resources.get(root, {}):
            known = self.get(root)["resources"]
            main = {r["kind"]: r for r in known if "/" not in r["name"]}
            self._resources[root] = main
        if kind not in self._resources[root]:
            raise LabError(f"the API server knows no {kind} in {root}: is its CRD installed?")
        return self._resources[root][kind]
