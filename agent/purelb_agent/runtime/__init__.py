# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of both programs: arguments, tasks, work queue, clocks, log, metrics, health endpoints.

Knows nothing of Kubernetes or of addresses.
"""
