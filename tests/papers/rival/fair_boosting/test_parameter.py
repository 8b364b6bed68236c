from types import SimpleNamespace

import numpy as np
import pytest

from fairfrontier.runtime.errors import ConfigError
from papers.rival.fair_boosting.parameter import require_number, require_whole


def test_numbers_of_any_kind_pass():
    for value in (2, np.int64(3)):
        require_whole(SimpleNamespace(size=value), "size", least=2)
    for value in (0, 0.5, np.float32(0.5), np.int64(3)):
        require_number(SimpleNamespace(size=value), "size")


def test_what_cannot_be_is_refused():
    for value in (1, 2.0, True, "2", None):
        with pytest.raises(ConfigError, match="'size' of SimpleNamespace"):
            require_whole(SimpleNamespace(size=value), "size", least=2)
    for value in (-1, np.nan, np.inf, True, "2", None):
        with pytest.raises(ConfigError, match="'size' of SimpleNamespace"):
            require_number(SimpleNamespace(size=value), "size")
