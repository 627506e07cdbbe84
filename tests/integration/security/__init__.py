# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the programs, tenants and others may write.

A package, so that its fixtures end with its tests: without this file pytest keeps those of the
scope `package` until all tests have ended.
"""
