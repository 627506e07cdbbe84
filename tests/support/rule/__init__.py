# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The rule of right in a small world with time and faults, explored schedule by schedule."""
