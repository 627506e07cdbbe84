# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Conversion of Kubernetes JSON to records and back, and validation of PureLB's objects.

It knows the shape of objects; it never decides what an object means for a node or a Service.
"""
