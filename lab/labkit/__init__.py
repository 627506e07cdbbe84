# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The lab: a Kubernetes cluster whose nodes are network namespaces of one machine."""
