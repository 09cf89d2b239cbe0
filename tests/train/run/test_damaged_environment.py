import pytest

from train.run.folder import RunMismatchError, read_environment, write_environment


def test_a_damaged_environment_is_refused_with_its_name_and_what_to_do(tmp_path):
    write_environment(tmp_path, pretrained=None, command="jaxnlp train é")
    content = (tmp_path / "environment.json").read_bytes()
    damaged = [content[:stop] for stop in range(0, len(content) - 2, 7)]
    for raw in (*damaged, b"[]", b"\xff", b"[" * 100_000, b'{"a":' * 300 + b"1" + b"}" * 300):
        (tmp_path / "environment.json").write_bytes(raw)
        for use in (read_environment, lambda folder: write_environment(folder, pretrained=None)):
            with pytest.raises(RunMismatchError, match=r"environment\.json.*(not JSON|an object).*restore the file"):
                use(tmp_path)
