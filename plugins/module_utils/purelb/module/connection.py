# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Connects to a cluster; the only file that imports the Python package kubernetes.

The package handles kubeconfigs, certificates, proxies and login plugins, and provides a connection
pool. It ignores whom a kubeconfig says to act as, which kubectl does not.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import quote

from .errors import ClusterError
from .kube import Cluster, Object

try:
    import kubernetes
    import urllib3

    IMPORT_ERROR = None
    # Untyped in the package.
    kube_config: Any = kubernetes.config
    KubeConfigMerger: Any = kubernetes.config.kube_config.KubeConfigMerger
except ImportError:
    IMPORT_ERROR = traceback.format_exc()

DEFAULT_KUBECONFIG = "~/.kube/config"


def connect(params: Dict[str, Any]) -> Cluster:
    """Returns a client for the options of `argspec.connection`."""
    configuration = kubernetes.client.Configuration()
    user: Object = {}
    if params.get("host"):
        configuration.host = params["host"]
    else:
        user = _load(params, configuration)
    _apply_options(configuration, params)
    headers = _headers(params, user)
    return Cluster(kubernetes.client.ApiClient(configuration), headers)


def _load(params: Dict[str, Any], configuration: Any) -> Object:
    """Load the kubeconfig; return its user, who may act as another one."""
    given, context = params.get("kubeconfig"), params.get("context")
    if isinstance(given, dict):
        _load_content(given, context, configuration)
        return _user(given, context)
    persists = bool(params.get("persist_config"))
    content = _load_files(given, context, configuration, persists=persists)
    return _user(content, context)


def _user(content: Object, context: Optional[str]) -> Object:
    """Returns the user of a context of a kubeconfig that was loaded without an error."""
    wanted = context or content.get("current-context")
    users = {user["name"]: user.get("user") or {} for user in content.get("users") or ()}
    for entry in content.get("contexts") or ():
        if entry["name"] == wanted:
            found: Object = users.get((entry.get("context") or {}).get("user"), {})
            return found
    return {}


def _headers(params: Dict[str, Any], user: Object) -> List[Tuple[str, str]]:
    """Returns the headers of a user with a password, and of whom to act as."""
    headers: List[Tuple[str, str]] = []
    if params.get("username"):
        basic = f"{params['username']}:{params.get('password') or ''}"
        headers.append(("Authorization", urllib3.make_headers(basic_auth=basic)["authorization"]))
    given = {
        "as": params.get("impersonate_user"),
        "as-groups": params.get("impersonate_groups"),
    }
    # Who acts as another user than the kubeconfig says has none of that one's groups.
    actor = given if given["as"] else {**user, **{k: v for k, v in given.items() if v}}
    if actor.get("as"):
        headers.append(("Impersonate-User", str(actor["as"])))
    headers += [("Impersonate-Group", str(group)) for group in actor.get("as-groups") or ()]
    if actor.get("as-uid"):
        headers.append(("Impersonate-Uid", str(actor["as-uid"])))
    for key, values in (actor.get("as-user-extra") or {}).items():
        name = f"Impersonate-Extra-{quote(key, safe='')}"
        headers += [(name, str(value)) for value in values]
    return headers


def _load_content(content: Object, context: Optional[str], configuration: Any) -> None:
    try:
        kube_config.load_kube_config_from_dict(
            content, context=context, client_configuration=configuration, persist_config=False
        )
    except (kube_config.ConfigException, AttributeError, TypeError) as error:
        contexts = content.get("contexts")
        known = [c["name"] for c in contexts if "name" in c] if isinstance(contexts, list) else []
        raise ClusterError(_bad_kubeconfig("", known, context, error)) from error


def _load_files(
    given: object, context: Optional[str], configuration: Any, *, persists: bool
) -> Object:
    """Load kubeconfigs; return them as one. In a Pod without any, load its ServiceAccount."""
    text = given or DEFAULT_KUBECONFIG
    if not isinstance(text, str) or "\n" in text:
        raise ClusterError(
            "kubeconfig is neither a path nor a dictionary: give the path of the file, or its "
            "content as a dictionary (filter from_yaml)"
        )
    paths = [Path(os.path.expandvars(part)).expanduser() for part in text.split(os.pathsep) if part]
    files = [str(path.absolute()) for path in paths]
    try:
        if any(Path(file).exists() for file in files):
            kube_config.load_kube_config(
                os.pathsep.join(files),
                context=context,
                client_configuration=configuration,
                persist_config=persists,
            )
            merged: Object = KubeConfigMerger(os.pathsep.join(files)).config.value
            lists = ("contexts", "users")
            entries = {name: [each.value for each in merged.get(name) or ()] for name in lists}
            return {**merged, **entries}
        if not given and "KUBERNETES_SERVICE_HOST" in os.environ:
            kube_config.load_incluster_config(client_configuration=configuration)
            return {}
    except kube_config.ConfigException as error:
        where = os.pathsep.join(files)
        raise ClusterError(_bad_kubeconfig(where, _contexts(where), context, error)) from error
    is_relative = not all(path.is_absolute() for path in paths)
    raise ClusterError(_no_kubeconfig(files, is_relative=is_relative))


def _apply_options(configuration: Any, params: Dict[str, Any]) -> None:
    """Apply the options that take precedence over the kubeconfig."""
    if params.get("api_key"):
        configuration.api_key = {"authorization": f"Bearer {params['api_key']}"}
    if params.get("validate_certs") is not None:
        configuration.verify_ssl = params["validate_certs"]
    for option, attribute in (
        ("ca_cert", "ssl_ca_cert"),
        ("client_cert", "cert_file"),
        ("client_key", "key_file"),
        ("proxy", "proxy"),
        ("no_proxy", "no_proxy"),
    ):
        if params.get(option):
            setattr(configuration, attribute, params[option])
    headers = {key: value for key, value in (params.get("proxy_headers") or {}).items() if value}
    if headers:
        configuration.proxy_headers = urllib3.make_headers(**headers)


def _no_kubeconfig(files: List[str], *, is_relative: bool) -> str:
    missing = f"no kubeconfig: {' and '.join(files)} does not exist. "
    if is_relative:
        return f"{missing}Modules run in the playbook's folder: give an absolute path"
    return (
        f"{missing}Set the option kubeconfig or the variable KUBECONFIG, or create "
        f"{DEFAULT_KUBECONFIG}"
    )


def _contexts(files: str) -> List[str]:
    try:
        contexts, _active = kube_config.list_kube_config_contexts(files)
    except kube_config.ConfigException:
        return []
    return [entry["name"] for entry in contexts]


def _bad_kubeconfig(
    where: str, contexts: List[str], context: Optional[str], error: Exception
) -> str:
    what = f"the kubeconfig {where}".rstrip()
    if context and contexts and context not in contexts:
        return f"{what} has no context {context}; it has: {', '.join(sorted(contexts))}"
    return f"{what} cannot be used: {error}"
