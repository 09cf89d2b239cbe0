import logging

import absl.logging

from jaxnlp.saving.quiet_logging import logging_unchanged


def test_libraries_leave_the_logging_of_a_users_program_alone(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # not in a fixture: pytest adds its own after them
    with logging_unchanged():
        absl.logging.vlog(1, "as Orbax does when it is imported")
        logging.getLogger("jaxnlp.runs").warning("shown as Python shows it")
    assert logging.getLogger().handlers == []
    assert capsys.readouterr().err == "shown as Python shows it\n"
    ours = logging.NullHandler()
    logging.getLogger().addHandler(ours)
    with logging_unchanged():
        assert logging.getLogger().handlers == [ours]
    assert logging.getLogger().handlers == [ours]
