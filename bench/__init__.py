# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks, one module per part; `python -m bench` runs them."""
