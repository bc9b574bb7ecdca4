"""A private certificate authority, and the master's certificate by it. Keys are ECDSA P-256."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 20 * 365
CLOCKS_APART = timedelta(days=2)
"""How long before its creation a certificate is already valid: not all clocks agree, and one may be set back."""

RENEWED_BELOW = 1 / 3
"""With less than this share of its days left, a certificate is renewed."""


class AuthorityUnusable(ValueError):
    """A stored key or certificate is damaged; the text says which."""


class Authority:
    """The key and the certificate that vouches for itself."""

    def __init__(self, pem: bytes) -> None:
        """From `pem` (as the attribute). Raises AuthorityUnusable."""
        self.pem = pem
        try:
            key = serialization.load_pem_private_key(pem, None)
            self._certificate = x509.load_pem_x509_certificate(pem)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise AuthorityUnusable(f"it does not contain a valid key and certificate ({error})") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise AuthorityUnusable("its key is of a different kind from those that `windrow setup` makes")
        if key.public_key() != self._certificate.public_key():
            raise AuthorityUnusable("its key does not match its certificate")
        self._key = key

    @classmethod
    def make(cls) -> Authority:
        """A new one."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Windrow private authority")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCKS_APART)
            .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(_key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM))

    @property
    def certificate_pem(self) -> bytes:
        """What clients and agents need to know the master."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, names: list[str], days: float) -> bytes:
        """A new key and the certificate of a server with these names (hosts or IP addresses), as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Windrow master")]))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCKS_APART)
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM)

    def why_renew(self, pem: bytes, names: list[str]) -> str:
        """Why a server's key and certificate should be replaced; "" while they need not."""
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            key = serialization.load_pem_private_key(pem, None)
            certificate.verify_directly_issued_by(self._certificate)
            alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature, x509.ExtensionNotFound):
            return "it was not issued by this authority"
        if key.public_key() != certificate.public_key():
            return "its key does not match it"
        missing = [name for name in names if _general_name(name) not in alternative]
        if missing:
            return f"it lacks {', '.join(missing)}"
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if end - datetime.now(UTC) < (end - begin) * RENEWED_BELOW:
            return f"it is valid until {end:%Y-%m-%d} only"
        return ""


def names_of(pem: bytes) -> list[str]:
    """The hosts and IP addresses that a server's certificate names; none where it cannot be read."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return []
    return [*alternative.get_values_for_type(x509.DNSName), *map(str, alternative.get_values_for_type(x509.IPAddress))]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
