# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the options in module_utils/purelb/module/argspec.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The connection to the cluster."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path of a kubeconfig, or several separated by V(:), or the content of one as a dictionary.
      - A relative path is from the folder of the playbook, as modules run there.
      - The defaults are E(K8S_AUTH_KUBECONFIG), E(KUBECONFIG), V(~/.kube/config), and in a Pod its
        ServiceAccount.
    type: raw
  context:
    description:
      - Context of the kubeconfig to use; its current context by default.
      - E(K8S_AUTH_CONTEXT) is the default.
    type: str
  host:
    description:
      - URL of the API server. If set, no kubeconfig is read.
      - E(K8S_AUTH_HOST) is the default.
    type: str
  api_key:
    description:
      - Bearer token; takes precedence over the kubeconfig.
      - E(K8S_AUTH_API_KEY) is the default.
    type: str
  username:
    description:
      - Name of a user with a password, for an API server behind a proxy that asks for one.
        Kubernetes itself has no passwords.
      - E(K8S_AUTH_USERNAME) is the default.
    type: str
  password:
    description:
      - Password of O(username).
      - E(K8S_AUTH_PASSWORD) is the default.
    type: str
  ca_cert:
    description:
      - Path of the certificate authority that signed the API server's certificate.
      - E(K8S_AUTH_SSL_CA_CERT) is the default.
    type: path
    aliases: [ssl_ca_cert]
  validate_certs:
    description:
      - Whether to verify the API server's certificate. By default it is, unless the kubeconfig
        disables it.
      - E(K8S_AUTH_VERIFY_SSL) is the default.
    type: bool
    aliases: [verify_ssl]
  client_cert:
    description:
      - Path of a client certificate.
      - E(K8S_AUTH_CERT_FILE) is the default.
    type: path
    aliases: [cert_file]
  client_key:
    description:
      - Path of the key of O(client_cert).
      - E(K8S_AUTH_KEY_FILE) is the default.
    type: path
    aliases: [key_file]
  proxy:
    description:
      - URL of a proxy to the API server.
      - E(K8S_AUTH_PROXY) is the default, then C(proxy-url) of the kubeconfig, then E(HTTPS_PROXY).
    type: str
  no_proxy:
    description:
      - Hosts that are reached without O(proxy), separated by commas.
      - E(K8S_AUTH_NO_PROXY) is the default, then E(NO_PROXY).
    type: str
  proxy_headers:
    description:
      - Headers for the proxy.
    type: dict
    suboptions:
      proxy_basic_auth:
        description:
          - Name and password for the proxy, separated by a colon.
          - E(K8S_AUTH_PROXY_HEADERS_PROXY_BASIC_AUTH) is the default.
        type: str
      basic_auth:
        description:
          - Name and password for the header C(Authorization), separated by a colon.
          - E(K8S_AUTH_PROXY_HEADERS_BASIC_AUTH) is the default.
        type: str
      user_agent:
        description:
          - The header C(User-Agent).
          - E(K8S_AUTH_PROXY_HEADERS_USER_AGENT) is the default.
        type: str
  persist_config:
    description:
      - Whether to write renewed logins of the kubeconfig's user to its file. Not with a dictionary.
      - E(K8S_AUTH_PERSIST_CONFIG) is the default.
    type: bool
  impersonate_user:
    description:
      - User to act as, as with C(kubectl --as). By default the one that C(as) of the kubeconfig's
        user names.
      - E(K8S_AUTH_IMPERSONATE_USER) is the default.
    type: str
  impersonate_groups:
    description:
      - Groups to act as.
      - E(K8S_AUTH_IMPERSONATE_GROUPS), separated by commas, is the default.
    type: list
    elements: str
requirements:
  - kubernetes >= 24.2.0 (the Python client, where the module runs)
"""
