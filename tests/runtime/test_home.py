import pytest

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.home import read_path


@pytest.mark.parametrize("given", ["x" * 300, "~nosuchuser/x", "\udcff.csv"])
def test_what_can_be_no_path_is_refused(given):
    with pytest.raises(ConfigError, match="is no usable path"):
        read_path(given)
