"""The certificate by which the processes of a cluster on this machine know each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any


def make_certificate(folder: Path) -> Any:
    """Return the security of a new certificate and its key, as files in a folder.

    `Security.temporary` would write both to the machine's temporary files whenever it reads them,
    and its certificate is not valid before now: a clock that is set back would stop the workers.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from distributed.security import Security

    own, name = ec.generate_private_key(ec.SECP256R1()), x509.NameAttribute
    subject = x509.Name([name(x509.NameOID.COMMON_NAME, "fairfrontier")])
    made = x509.CertificateBuilder(subject, subject, own.public_key(), x509.random_serial_number())
    now = datetime.now(UTC)
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=365))
    pem = serialization.Encoding.PEM
    certificate, key = folder / "cluster.crt", folder / "cluster.pem"
    certificate.write_bytes(made.sign(own, hashes.SHA256()).public_bytes(pem))
    key.touch(mode=0o600)
    key.write_bytes(
        own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    roles = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=str(certificate),
        **{f"tls_{role}_cert": str(certificate) for role in roles},
        **{f"tls_{role}_key": str(key) for role in roles},
    )
