import math

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from train.logs.event_file import EventFile


def events(folder):
    """The events of a folder's files, by name, parsed and checked by another implementation."""
    found = []
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        while content:
            size = int.from_bytes(content[:8], "little")
            record, content = content[: size + 16], content[size + 16 :]
            assert int.from_bytes(record[8:12], "little") == masked_crc32c(record[:8])
            assert int.from_bytes(record[-4:], "little") == masked_crc32c(record[12:-4])
            found.append(Event.FromString(record[12:-4]))
    return found


@pytest.mark.parametrize(("value", "read"), [(1.5, 1.5), (7, 7.0), (-0.0, 0.0), (1e39, math.inf), (math.nan, math.nan)])
@pytest.mark.parametrize("step", [0, 127, 128, 10**12], ids=str)
def test_scalars_are_read_back(tmp_path, value, read, step):
    file = EventFile(tmp_path / "new" / "folder", first_step=1)
    file.add_scalar("validation/f1 é", value, step)
    file.close()
    _, _, event = events(tmp_path / "new" / "folder")
    (found,) = event.summary.value
    assert (event.step, found.tag, event.wall_time > 1e9) == (step, "validation/f1 é", True)
    assert found.simple_value == pytest.approx(read, nan_ok=True)


@pytest.mark.parametrize(("text", "read"), [("a\n\nb", "a\n\nb"), ("海" * 300, "海" * 300), ("\udc80", "?")], ids=len)
def test_texts_are_read_back(tmp_path, text, read):
    file = EventFile(tmp_path, first_step=1)
    file.add_text("samples", text, 3)
    file.close()
    (found,) = events(tmp_path)[-1].summary.value
    assert (found.tag, found.metadata.plugin_data.plugin_name) == ("samples/text_summary", "text")
    assert ([each.decode() for each in found.tensor.string_val], found.tensor.dtype) == ([read], 7)
    assert [each.size for each in found.tensor.tensor_shape.dim] == [1]


def test_a_file_starts_with_its_version_and_hides_later_steps_of_earlier_files(tmp_path):
    EventFile(tmp_path, first_step=5).close()
    version, start = events(tmp_path)
    assert version.file_version == "brain.Event:2"
    assert (start.step, start.session_log.status) == (5, 1)


def test_an_event_is_on_disk_before_the_file_is_closed(tmp_path):
    file = EventFile(tmp_path, first_step=1)
    file.add_scalar("train/loss", 2.0, 1)
    assert events(tmp_path)[-1].summary.value[0].simple_value == 2.0
    file.close()
