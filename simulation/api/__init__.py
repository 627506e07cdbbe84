# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A model of the Kubernetes API server: objects, versions, watches, and what it refuses."""
