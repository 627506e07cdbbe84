# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Random schedules of faults: drawn, run on a cluster at work, judged, and shrunk."""
