# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The network of the lab: namespaces, links, addresses, static routes."""
