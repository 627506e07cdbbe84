# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What both programs are made of: arguments, tasks, clocks, log, metrics and health endpoints.

Knows nothing of Kubernetes or of addresses.
"""
