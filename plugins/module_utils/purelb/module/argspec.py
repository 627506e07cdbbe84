# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Argument specs in small parts that modules join with `merge`.

Each part is documented in plugins/doc_fragments under the same name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence, Tuple

from ansible.module_utils.basic import env_fallback

from ..core import names


@dataclass(frozen=True)
class ArgumentSpec:
    """Options and the rules between them, as AnsibleModule takes them."""

    options: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    mutually_exclusive: Tuple[Tuple[str, ...], ...] = ()
    required_together: Tuple[Tuple[str, ...], ...] = ()
    required_if: Tuple[Tuple[Any, ...], ...] = ()

    def merge(self, other: ArgumentSpec) -> ArgumentSpec:
        """Returns both parts in one; ValueError if both define an option."""
        twice = self.options.keys() & other.options.keys()
        if twice:
            raise ValueError(f"options defined twice: {', '.join(sorted(twice))}")
        return ArgumentSpec(
            {**self.options, **other.options},
            self.mutually_exclusive + other.mutually_exclusive,
            self.required_together + other.required_together,
            self.required_if + other.required_if,
        )

    def arguments(self) -> Dict[str, Any]:
        """Returns keyword arguments for AnsibleModule."""
        return {
            "argument_spec": self.options,
            "mutually_exclusive": _lists(self.mutually_exclusive),
            "required_together": _lists(self.required_together),
            "required_if": _lists(self.required_if),
        }


def connection() -> ArgumentSpec:
    """Returns the options of the connection to the cluster (fragment `connection`)."""
    return ArgumentSpec(
        {
            # `secrets` says what of it is none.
            "kubeconfig": {
                **_option("raw", "K8S_AUTH_KUBECONFIG", "KUBECONFIG"),
                "no_log": True,
            },
            "context": _option("str", "K8S_AUTH_CONTEXT"),
            "host": _option("str", "K8S_AUTH_HOST"),
            "api_key": {**_option("str", "K8S_AUTH_API_KEY"), "no_log": True},
            "username": _option("str", "K8S_AUTH_USERNAME"),
            "password": {**_option("str", "K8S_AUTH_PASSWORD"), "no_log": True},
            "ca_cert": _option("path", "K8S_AUTH_SSL_CA_CERT", aliases=["ssl_ca_cert"]),
            "validate_certs": _option("bool", "K8S_AUTH_VERIFY_SSL", aliases=["verify_ssl"]),
            "client_cert": _option("path", "K8S_AUTH_CERT_FILE", aliases=["cert_file"]),
            # The path is no secret, and the content of the file is never logged.
            "client_key": {
                **_option("path", "K8S_AUTH_KEY_FILE", aliases=["key_file"]),
                "no_log": False,
            },
            # It may have a password.
            "proxy": {**_option("str", "K8S_AUTH_PROXY"), "no_log": True},
            "no_proxy": _option("str", "K8S_AUTH_NO_PROXY"),
            "proxy_headers": {"type": "dict", "options": _proxy_headers(), "apply_defaults": True},
            "persist_config": _option("bool", "K8S_AUTH_PERSIST_CONFIG"),
            "impersonate_user": _option("str", "K8S_AUTH_IMPERSONATE_USER"),
            "impersonate_groups": {
                **_option("list", "K8S_AUTH_IMPERSONATE_GROUPS"),
                "elements": "str",
            },
        },
        required_together=(("client_cert", "client_key"),),
    )


def namespace() -> ArgumentSpec:
    """Returns the option for the namespace of PureLB (fragment `namespace`)."""
    return ArgumentSpec({"namespace": {"type": "str", "default": names.DEFAULT_NAMESPACE}})


def leader_locks() -> ArgumentSpec:
    """Returns the option for the leader locks to read; without any, that of the allocator."""
    lock: Dict[str, Dict[str, Any]] = {
        "kind": {"type": "str", "choices": ["Lease", "Endpoints", "ConfigMap"], "default": "Lease"},
        "namespace": {"type": "str"},
        "name": {"type": "str", "required": True},
    }
    spec = {"type": "list", "elements": "dict", "options": lock}
    return ArgumentSpec({"leader_locks": spec})


def conversion() -> ArgumentSpec:
    """Returns the options of a conversion from v1 (fragment `conversion`)."""
    return ArgumentSpec(
        {
            "namespace": {"type": "str", "default": names.OLD_NAMESPACE},
            "target_namespace": {"type": "str", "default": names.DEFAULT_NAMESPACE},
            "node_subnets": {"type": "list", "elements": "str", "default": []},
            "decisions": {"type": "dict", "default": {}},
        }
    )


def presence() -> ArgumentSpec:
    """Returns `state` and `force_conflicts` (fragment `presence`)."""
    return ArgumentSpec(
        {
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "force_conflicts": {"type": "bool", "default": False},
        }
    )


def metadata() -> ArgumentSpec:
    """Returns name, labels and annotations of an object (fragment `metadata`)."""
    return ArgumentSpec(
        {
            "name": {"type": "str", "required": True},
            "labels": {"type": "dict"},
            "annotations": {"type": "dict"},
        }
    )


def _proxy_headers() -> Dict[str, Dict[str, Any]]:
    return {
        "proxy_basic_auth": {
            **_option("str", "K8S_AUTH_PROXY_HEADERS_PROXY_BASIC_AUTH"),
            "no_log": True,
        },
        "basic_auth": {**_option("str", "K8S_AUTH_PROXY_HEADERS_BASIC_AUTH"), "no_log": True},
        "user_agent": _option("str", "K8S_AUTH_PROXY_HEADERS_USER_AGENT"),
    }


def _option(kind: str, *variables: str, aliases: Sequence[str] = ()) -> Dict[str, Any]:
    option: Dict[str, Any] = {"type": kind, "fallback": (env_fallback, list(variables))}
    return {**option, "aliases": list(aliases)} if aliases else option


def _lists(rules: Tuple[Tuple[Any, ...], ...]) -> List[List[Any]]:
    return [list(rule) for rule in rules]
