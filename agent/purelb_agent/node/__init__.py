# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The program lbnodeagent: reads the interfaces, reconciles them with the plan, announces.

The only package that changes an interface or sends a frame. What should be there
is decided in the core.
"""
