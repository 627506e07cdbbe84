# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes JSON to records and back, and whether a configuration is valid.

Knows shapes, not decisions: what an object means for a node or a Service is decided elsewhere.
"""
