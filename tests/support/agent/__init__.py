# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Tools for tests of the agent: virtual time, leak checks, a fake API server, cancellation."""
