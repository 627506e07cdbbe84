# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Machines that have nothing but what a target installs, for the gate and for `make test-fresh`."""
