"""Who waits for a folder says for whom, and not without end."""

from __future__ import annotations

import os
import re

import pytest

from fairfrontier.runtime import lock
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.lock import lock_folder
from fairfrontier.runtime.writer import holding, sharing


def test_a_folder_that_is_used_is_waited_for_aloud_and_not_forever(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(lock, "QUIET", 0.0)
    monkeypatch.setattr(lock, "PATIENCE", 0.2)
    handle = lock_folder(tmp_path, wait=False)
    for use in (holding, sharing):
        caplog.clear()
        with pytest.raises(StoreError, match=f"{tmp_path} is still used by"), use(tmp_path):
            pass
        [said] = caplog.messages
        # A process that waits for itself is not named: a step of another thread goes on.
        assert re.search(
            rf"(another step of this run|another process), which uses {tmp_path}", said
        )
    os.close(handle)
    with holding(tmp_path):
        pass
