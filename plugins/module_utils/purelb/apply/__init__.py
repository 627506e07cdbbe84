# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Brings objects into the cluster or removes them, and waits until they have taken effect.

Every write of a module goes through here. What an object should contain is decided by the caller.
"""
