# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API for the programs: requests, watches, the store of objects, events.

The only package that opens connections to the API server. Decides nothing.
"""
