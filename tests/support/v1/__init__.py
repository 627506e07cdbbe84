# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A PureLB v1 to migrate from: as real objects in a cluster, and as a dictionary."""
