"""Real certificates, made for a test."""

import datetime
import subprocess
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID


class Authority:
    """Certifies, as a certificate authority does."""

    def __init__(self, folder: Path, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(_pem(self._made(self._name, self._key, is_authority=True)))

    def certify(self, certificate: Path, key: Path, *, days: int = 30) -> int:
        """Write a new pair; returns the certificate's serial number."""
        private = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        made = self._made(name, private, days=days)
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        _replace(key, private.private_bytes(serialization.Encoding.PEM, form, plain))
        _replace(certificate, _pem(made))
        return made.serial_number

    def keystore(self, path: Path, password: str) -> None:
        """A new pair as Java reads it (PKCS 12)."""
        certificate, key = path.with_suffix(".cert"), path.with_suffix(".key")
        self.certify(certificate, key)
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        chain = [x509.load_pem_x509_certificate(self.path.read_bytes())]
        own = x509.load_pem_x509_certificate(certificate.read_bytes())
        hidden = serialization.BestAvailableEncryption(password.encode())
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"server", private, own, chain, hidden))

    def truststore(self, path: Path, password: str) -> None:
        """Whom Java trusts: those whom this one has certified."""
        words = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(self.path), "-storetype", "PKCS12"]
        command = ["keytool", *words, "-keystore", str(path), "-storepass", password]
        subprocess.run(command, check=True, capture_output=True)

    def _made(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False, days: int = 30
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if is_authority:
            usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        else:
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            builder = builder.add_extension(issuer, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _replace(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.rename(path)
