from jaxnlp.metric_kind import MetricKind, singular


def test_the_unit_is_read_in_words():
    assert MetricKind("tokens", "nats").per == "nats per token"
    assert MetricKind("entities", "nats").per == "nats per entity"
    assert MetricKind("questions").per == ""
    assert MetricKind("sentences", "points").per == "points"
    assert MetricKind("tokens", "choices").per == ""
    assert singular("examples") == "example"
