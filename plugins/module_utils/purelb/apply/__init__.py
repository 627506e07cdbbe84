# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Applies objects to the cluster or deletes them, and waits until that has taken effect.

Every write of a module goes through here. The caller decides what an object contains.
"""
