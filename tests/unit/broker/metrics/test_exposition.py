"""Prometheus' text, judged by prometheus-client."""

from prometheus_client.parser import text_string_to_metric_families

from oncelog.broker.metrics.exposition import lines
from oncelog.broker.metrics.metric import Distribution, Metric, MetricType, Parts, Sample
from oncelog.cli.metrics import parse


def metric(kind: MetricType, *samples: Sample, labels: tuple[str, ...] = ("topic",)) -> Metric:
    return Metric(
        "kafka_a_b", kind, "ms", "", 'Says "x\\y"\nin two lines.', lambda _: samples, labels
    )


def text_of(given: Metric) -> str:
    parts: Parts = None  # type: ignore[assignment]  # these metrics read nothing
    return "".join(lines([given], parts))


def test_labels_may_hold_anything() -> None:
    nasty = 'a"b\\c\nd,e="f"}'
    text = text_of(metric(MetricType.GAUGE, Sample((nasty,), 1.5)))
    (family,) = text_string_to_metric_families(text)
    assert family.documentation == 'Says "x\\y"\nin two lines.'
    (sample,) = family.samples
    assert (sample.labels, sample.value) == ({"topic": nasty}, 1.5)
    (value,) = parse(text)
    assert (value.labels, value.value) == ({"topic": nasty}, 1.5)


def test_a_label_without_a_value_is_left_out() -> None:
    assert "kafka_a_b 3\n" in text_of(metric(MetricType.COUNTER, Sample(("",), 3)))


def test_a_truth_is_written_as_a_number() -> None:
    assert text_of(metric(MetricType.GAUGE, Sample(("t",), True))).endswith('{topic="t"} 1\n')


def test_a_histogram_has_its_buckets_sum_and_count() -> None:
    value = Distribution([(0.5, 1), (2.0, 3)], 4, 12.5)
    text = text_of(metric(MetricType.HISTOGRAM, Sample(("t",), value)))
    (family,) = text_string_to_metric_families(text)
    assert family.type == "histogram"
    assert [(s.name, s.labels.get("le"), s.value) for s in family.samples] == [
        ("kafka_a_b_bucket", "0.5", 1),
        ("kafka_a_b_bucket", "2.0", 3),
        ("kafka_a_b_bucket", "+Inf", 4),
        ("kafka_a_b_sum", None, 12.5),
        ("kafka_a_b_count", None, 4),
    ]
