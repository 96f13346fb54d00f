"""Mutual TLS for gRPC: both ends show a certificate of the federation's authority."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airprune.deployment.identity.node import Node

if TYPE_CHECKING:
    import grpc


def server_credentials(node: Node) -> grpc.ServerCredentials:
    """For a node that listens; whoever dials it without a certificate gets no further than the handshake."""
    import grpc

    return grpc.ssl_server_credentials(
        [(node.key, node.certificate)], root_certificates=node.authority, require_client_auth=True
    )


def channel_credentials(node: Node) -> grpc.ChannelCredentials:
    """For a node that dials; also give the option grpc.ssl_target_name_override = `Parent.server_name`."""
    import grpc

    return grpc.ssl_channel_credentials(
        root_certificates=node.authority, private_key=node.key, certificate_chain=node.certificate
    )
