# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What every module needs: its options, the client of the API server, and how it ends.

The only package that imports the Kubernetes client. Knows no object of PureLB but its options.
"""
