# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What every module needs: argument specs, the client of the API server, results and errors.

The only package that imports the Kubernetes client. Of PureLB's own kinds it has only the options.
"""
