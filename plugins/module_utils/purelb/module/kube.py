# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The client of the API server.

Requests go as plain JSON through the connection pool of the Python package kubernetes, without its
models and discovery: thousands of Services are read in little time and memory, and any release of
the package works.
"""

from __future__ import annotations

import contextlib
import copy
import json
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)
from urllib.parse import urlencode

from .errors import GONE, NOT_FOUND, ApiError, Request, refusal, unreachable

# It comes with the package kubernetes, whose absence `run` reports.
with contextlib.suppress(ImportError):
    import urllib3

FIELD_MANAGER = "purelb.purelb"
# Seconds. The first detects a dead API server; the second suffices for a page of a busy one.
CONNECT_TIMEOUT = 5
READ_TIMEOUT = 60
# Objects in a page; a page of Services is about 1 MB.
PAGE = 500

# Server-side apply requires this media type; JSON is valid YAML.
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"
# Verbs of the kinds whose objects are something in a namespace, not a view of something.
_CONTAINED = frozenset({"list", "delete"})

Object = Dict[str, Any]
T = TypeVar("T")


class Payload(NamedTuple):
    """Body of a request and its media type."""

    media_type: str
    content: Object


class Kind(NamedTuple):
    """Where the API server serves a kind: group, version, plural, and whether it is namespaced."""

    group: str
    version: str
    plural: str
    namespaced: bool

    def path(self, namespace: Optional[str], name: Optional[str] = None) -> str:
        """Returns the path of the collection, or of one object in it."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{middle}/{self.plural}" + (f"/{name}" if name else "")


class Cluster:
    """A client of one API server; methods raise ApiError, or ClusterError if it is unreachable."""

    def __init__(self, client: Any, headers: Sequence[Tuple[str, str]] = ()) -> None:
        self._pool = client.rest_client.pool_manager
        self._configuration = client.configuration
        self._kinds: Dict[str, Dict[str, Kind]] = {}
        # A name may occur several times.
        given = {name for name, _value in headers}
        ours = [("Accept", JSON), ("User-Agent", FIELD_MANAGER)]
        self._headers = [pair for pair in ours if pair[0] not in given] + list(headers)
        self.host: str = client.configuration.host

    def impersonate(self, user: str) -> Cluster:
        """Returns a client with the same connections that acts as another user."""
        other = copy.copy(self)
        # Instead of the one that this client acts as.
        own = [pair for pair in self._headers if not pair[0].startswith("Impersonate-")]
        other._headers = [*own, ("Impersonate-User", user)]  # noqa: SLF001 - its own class
        return other

    def user(self) -> str:
        """Returns the name of the user that the API server takes this client for."""
        kind = Kind("authentication.k8s.io", "v1", "selfsubjectreviews", namespaced=False)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        review = self.create(kind, {**body, "metadata": {}}, dry_run=False)
        return str(review["status"]["userInfo"]["username"])

    def kind(self, api_version: str, kind: str) -> Optional[Kind]:
        """Returns where a kind is served, or None. Only positive answers are cached."""
        if kind not in self._kinds.get(api_version, {}):
            self._kinds[api_version] = self._discover(api_version)
        return self._kinds[api_version].get(kind)

    def namespaced_kinds(self) -> Dict[str, Kind]:
        """Returns every kind whose objects a namespace can contain and a user can delete.

        By the name of the kind, with its group unless that is the core's; each in one version.
        """
        groups = self._send(Request("get", "", "/apis"), "GET", "/apis").get("groups", ())
        versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]
        return {
            f"{name}.{kind.group}".rstrip("."): kind
            for version in versions
            for name, kind in self._discover(version, with_verbs=_CONTAINED).items()
            if kind.namespaced
        }

    def get(self, kind: Kind, *, namespace: Optional[str], name: str) -> Optional[Object]:
        """Returns an object, or None if it does not exist."""
        request = Request("get", kind.group, kind.plural, namespace, name)
        try:
            return self._send(request, "GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def items(
        self, kind: Kind, *, namespace: Optional[str] = None, **query: str
    ) -> Iterator[Object]:
        """Yields every object of a kind; only one page is in memory."""
        request = Request("list", kind.group, kind.plural, namespace)
        pages: Dict[str, Any] = {**query, "limit": PAGE}
        while True:
            page = self._send(request, "GET", kind.path(namespace), pages)
            yield from page.get("items") or ()
            token = page.get("metadata", {}).get("continue")
            if not token:
                return
            pages["continue"] = token

    def read_all(
        self,
        kind: Kind,
        *,
        namespace: Optional[str] = None,
        convert: Callable[[Object], T],
        **query: str,
    ) -> List[T]:
        """Returns every object of a kind, converted; starts over once if the list expired."""
        try:
            return [convert(obj) for obj in self.items(kind, namespace=namespace, **query)]
        except ApiError as error:
            if error.status != GONE:
                raise
            return [convert(obj) for obj in self.items(kind, namespace=namespace, **query)]

    def apply(self, kind: Kind, body: Object, *, dry_run: bool, force: bool) -> Object:
        """Server-side apply: create the object or set the given fields; returns the new state."""
        namespace, name = body["metadata"].get("namespace"), body["metadata"]["name"]
        query = {
            "fieldManager": FIELD_MANAGER,
            "force": str(force).lower(),
            **_dry(dry_run=dry_run),
        }
        request = Request("patch", kind.group, kind.plural, namespace, name)
        path = kind.path(namespace, name)
        return self._send(request, "PATCH", path, query, Payload(APPLY, body))

    def create(self, kind: Kind, body: Object, *, dry_run: bool) -> Object:
        """Create an object and return it; one of the same name is an error."""
        namespace = body["metadata"].get("namespace")
        request = Request("create", kind.group, kind.plural, namespace)
        path, query = kind.path(namespace), {"fieldManager": FIELD_MANAGER, **_dry(dry_run=dry_run)}
        return self._send(request, "POST", path, query, Payload(JSON, body))

    def patch(
        self,
        kind: Kind,
        *,
        namespace: Optional[str],
        name: str,
        patch: Object,
        part: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Merge a patch into an object, or into a subresource (`part`, such as `status`).

        With an empty patch the server rewrites the object in its present storage version.
        """
        resource = f"{kind.plural}/{part}" if part else kind.plural
        request = Request("patch", kind.group, resource, namespace, name)
        path = kind.path(namespace, name) + (f"/{part}" if part else "")
        query = {"fieldManager": FIELD_MANAGER, **_dry(dry_run=dry_run)}
        return self._send(request, "PATCH", path, query, Payload(MERGE, patch))

    def delete(
        self,
        kind: Kind,
        *,
        namespace: Optional[str],
        name: str,
        dry_run: bool,
        with_owned: bool = True,
    ) -> None:
        """Delete an object if it exists; `with_owned`: in the foreground, after what it owns."""
        request = Request("delete", kind.group, kind.plural, namespace, name)
        policy = "Foreground" if with_owned else "Background"
        query = {"propagationPolicy": policy, **_dry(dry_run=dry_run)}
        try:
            self._send(request, "DELETE", kind.path(namespace, name), query)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def _discover(
        self, api_version: str, with_verbs: FrozenSet[str] = frozenset()
    ) -> Dict[str, Kind]:
        group, _slash, version = api_version.rpartition("/")
        path = f"/apis/{api_version}" if group else f"/api/{version}"
        try:
            found = self._send(Request("get", group, path), "GET", path)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return {}
            raise
        return {
            entry["kind"]: Kind(group, version, entry["name"], entry["namespaced"])
            for entry in found.get("resources", ())
            if "/" not in entry["name"] and with_verbs <= set(entry.get("verbs") or ())
        }

    def _send(
        self,
        request: Request,
        method: str,
        path: str,
        query: Optional[Dict[str, Any]] = None,
        payload: Optional[Payload] = None,
    ) -> Object:
        url = self.host.rstrip("/") + path + ("?" + urlencode(query) if query else "")
        headers = urllib3.HTTPHeaderDict()
        for name, value in self._headers:
            headers.add(name, value)
        if payload is not None:
            headers["Content-Type"] = payload.media_type
        for setting in self._configuration.auth_settings().values():
            headers.setdefault(setting["key"], setting["value"])
        try:
            answer = self._pool.request(
                method,
                url,
                headers=headers,
                body=None if payload is None else json.dumps(payload.content).encode(),
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=READ_TIMEOUT),
                retries=urllib3.Retry(total=2, redirect=0, backoff_factor=0.2),
            )
        except urllib3.exceptions.HTTPError as error:
            cause = str(getattr(error, "reason", None) or error)
            raise unreachable(self.host, cause=cause) from error
        if answer.status not in range(200, 300):
            raise refusal(request, host=self.host, status=answer.status, body=answer.data)
        parsed: Object = json.loads(answer.data)
        return parsed


def _dry(*, dry_run: bool) -> Dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}
