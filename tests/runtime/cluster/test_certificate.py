from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificate

from fairfrontier.runtime.cluster.open import make_certificate


def test_a_clock_that_is_set_back_leaves_a_certificate_valid(tmp_path):
    security = make_certificate(tmp_path)
    made = load_pem_x509_certificate(Path(security.tls_ca_file).read_bytes())
    now = datetime.now(UTC)
    assert made.not_valid_before_utc < now - timedelta(hours=23)
    assert made.not_valid_after_utc > now + timedelta(days=364)
    assert Path(security.tls_worker_key).stat().st_mode & 0o777 == 0o600
