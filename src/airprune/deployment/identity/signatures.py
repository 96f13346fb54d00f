"""Signatures of the cloud: what they are on cannot be changed by an edge that passes it on.

The cloud's certificate travels with them, and the authority in every kit vouches for it, so that no other key has to be
distributed.
"""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from airprune.deployment.identity.node import Node
from airprune.deployment.identity.peers import Role, peer_of
from airprune.errors import WorkFailed


def signature_of(node: Node, data: bytes) -> bytes:
    """Returns the signature of a node's key."""
    key = serialization.load_pem_private_key(node.key, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def is_of_cloud(node: Node, data: bytes, signature: bytes, certificate: bytes) -> bool:
    """Tells whether the cloud of a node's federation has signed this."""
    try:
        own = x509.load_pem_x509_certificate(certificate)
        own.verify_directly_issued_by(x509.load_pem_x509_certificate(node.authority))
        key, peer = own.public_key(), peer_of(certificate)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
    except (ValueError, TypeError, InvalidSignature, WorkFailed):
        return False
    return peer.role is Role.CLOUD and peer.federation == node.peer.federation
