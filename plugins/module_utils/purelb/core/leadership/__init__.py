# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which of several replicas leads, by a lock that they share, and how locks are read.

Told what was seen and when; never reads the lock or a clock.
"""
