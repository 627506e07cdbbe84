# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The Kubernetes cluster: its components, its nodes, their certificates and their faults."""
