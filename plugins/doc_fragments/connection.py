# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Texts of the options in module_utils/purelb/argspec.py."""

from __future__ import annotations


class ModuleDocFragment:
    """How to reach the cluster."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path of a kubeconfig. Several can be joined with V(:).
      - Without it E(K8S_AUTH_KUBECONFIG), E(KUBECONFIG) and V(~/.kube/config) are looked at, and in
        a Pod its ServiceAccount.
    type: path
  context:
    description:
      - Context of the kubeconfig to use; its current context by default.
      - E(K8S_AUTH_CONTEXT) sets it too.
    type: str
  host:
    description:
      - URL of the API server. With it no kubeconfig is read.
      - E(K8S_AUTH_HOST) sets it too.
    type: str
  api_key:
    description:
      - Bearer token to log in with; it wins over what the kubeconfig says.
      - E(K8S_AUTH_API_KEY) sets it too.
    type: str
  ca_cert:
    description:
      - Path of the certificate authority that signed the API server's certificate.
      - E(K8S_AUTH_SSL_CA_CERT) sets it too.
    type: path
  validate_certs:
    description:
      - Whether the API server's certificate is checked. It is unless the kubeconfig says otherwise.
      - E(K8S_AUTH_VERIFY_SSL) sets it too.
    type: bool
  client_cert:
    description:
      - Path of a certificate to log in with.
      - E(K8S_AUTH_CERT_FILE) sets it too.
    type: path
  client_key:
    description:
      - Path of the key of O(client_cert).
      - E(K8S_AUTH_KEY_FILE) sets it too.
    type: path
requirements:
  - kubernetes >= 24.2.0 (the Python client, where the module runs)
"""
