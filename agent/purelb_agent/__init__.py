# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The two programs of the image, lbnodeagent and allocator: shells around the pure core.

Each module reaches one outside thing (the API server, the kernel, the wire, the clock) and
translates at its edge; what is decided is decided in `purelb.core`. One asyncio task owns each
mutable thing, so there are no locks.
"""

__version__ = "0.1.0"
