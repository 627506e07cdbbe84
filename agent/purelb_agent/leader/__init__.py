# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which allocator leads: the lock, and a client of the API that only the leader can write with."""
