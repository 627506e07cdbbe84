# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A cluster on simulated time: the real programs above models of everything outside of them."""
