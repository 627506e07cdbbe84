# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API: requests, watches, tables of decoded objects, events.

The only package that opens connections to the API server. Decides nothing.
"""
