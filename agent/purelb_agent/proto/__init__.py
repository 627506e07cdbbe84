# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the allocator says to a sidecar. ipam.proto is written, the rest generated from it:

python -m grpc_tools.protoc -I agent --python_out=agent --pyi_out=agent --grpc_python_out=agent \
    agent/purelb_agent/proto/ipam.proto
"""
