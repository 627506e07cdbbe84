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
  ca_cert:
    description:
      - Path of the certificate authority that signed the API server's certificate.
      - E(K8S_AUTH_SSL_CA_CERT) is the default.
    type: path
  validate_certs:
    description:
      - Whether to verify the API server's certificate. By default it is, unless the kubeconfig
        disables it.
      - E(K8S_AUTH_VERIFY_SSL) is the default.
    type: bool
  client_cert:
    description:
      - Path of a client certificate.
      - E(K8S_AUTH_CERT_FILE) is the default.
    type: path
  client_key:
    description:
      - Path of the key of O(client_cert).
      - E(K8S_AUTH_KEY_FILE) is the default.
    type: path
requirements:
  - kubernetes >= 24.2.0 (the Python client, where the module runs)
"""
