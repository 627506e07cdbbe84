# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated time: one timeline, the clocks of machines, and processes with event loops."""
