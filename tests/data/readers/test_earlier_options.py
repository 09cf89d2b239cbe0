from types import SimpleNamespace

import pytest

from data import DataError
from data.readers.earlier_options import require_same_options

EARLIER = SimpleNamespace(lowercase=True, tag_column="upos")


def test_an_option_with_another_value_is_named_as_the_field_of_the_data():
    require_same_options(EARLIER, {"lowercase": True, "tag_column": "upos"})
    with pytest.raises(DataError, match=r"^data.lowercase is False, but True in the earlier run; set it to True$"):
        require_same_options(EARLIER, {"lowercase": False})
    with pytest.raises(DataError, match=r"^data.tags is xpos, but upos in the earlier run"):
        require_same_options(EARLIER, {"tag_column": "xpos"}, {"tag_column": "tags"})
