# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Conversion of Kubernetes JSON to records and back, and validation of PureLB's objects.

Only the form of objects; what an object means for a node or a Service is decided elsewhere.
"""
