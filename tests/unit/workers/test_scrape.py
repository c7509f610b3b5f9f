"""vLLM's metrics before, during and after a load."""

from pathlib import Path

from workers.scrape import read_metrics, summarise

RECORDED = Path(__file__).parents[2] / "fakes" / "recorded" / "metrics-0.32.0.txt"


def _text(preemptions: float, *, running: int = 0, usage: float = 0.0) -> str:
    return (
        f'vllm:num_preemptions_total{{engine="0"}} {preemptions}\n'
        f'vllm:num_requests_running{{engine="0"}} {running}\n'
        f'vllm:kv_cache_usage_perc{{engine="0"}} {usage}\n'
    )


def test_recorded_metrics_are_read() -> None:
    """Counters, gauges and the pool's size come out of a real server's text."""
    text = RECORDED.read_text()

    scrape = read_metrics(text)

    assert scrape.counters["preemptions"] == _recorded("num_preemptions_total", text) > 0
    assert scrape.counters["prefix_hits"] == _recorded("prefix_cache_hits_total", text)
    assert scrape.counters["requests"] == _recorded("request_success_total", text) > 0
    assert scrape.gauges["running"] == 0
    assert scrape.cache_config["kv_cache_size_tokens"] == "1024"


def _recorded(series: str, text: str) -> float:
    """Return the sum over the lines of a series."""
    lines = [line for line in text.splitlines() if line.startswith(f"vllm:{series}{{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_a_load_is_the_rise_of_counters_and_the_peak_of_gauges() -> None:
    """What happened before does not count, and the highest reading within does."""
    readings = [
        read_metrics(_text(5)),
        read_metrics(_text(6, running=9, usage=0.7)),
        read_metrics(_text(9, running=2)),
    ]

    found = summarise(readings[0], readings[1:2], readings[2])

    assert (found.preemptions, found.running_peak, found.kv_cache_usage_peak) == (4, 9, 0.7)
    assert found.counters_were_reset is False


def test_a_restart_within_a_load_is_seen_and_counted_on() -> None:
    """A counter that falls was set to zero: what it shows afterwards is added."""
    readings = [read_metrics(_text(value)) for value in (5, 7, 1, 3)]

    found = summarise(readings[0], readings[1:3], readings[3])

    assert found.counters_were_reset is True
    assert found.preemptions == 2 + 1 + 2


def test_what_a_release_does_not_expose_is_unknown() -> None:
    """A missing counter is not zero."""
    empty = read_metrics("vllm:num_requests_running 1\n")

    found = summarise(empty, [], empty)

    assert found.preemptions is None
    assert found.prefix_cache_hit_ratio is None
    assert found.running_peak == 1


def test_old_names_are_read_as_the_new_ones() -> None:
    """Until 0.10 the usage gauge was named after the GPU."""
    scrape = read_metrics('vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n')

    assert scrape.gauges["kv_cache_usage"] == 0.5


def test_engines_of_one_server_are_taken_together() -> None:
    """Counters and requests add up; usage is averaged, since each engine has a pool."""
    text = "".join(
        f'vllm:num_preemptions_total{{engine="{n}"}} {n + 1}\n'
        f'vllm:kv_cache_usage_perc{{engine="{n}"}} {0.2 + n / 5}\n'
        for n in range(2)
    )

    scrape = read_metrics(text)

    assert scrape.counters["preemptions"] == 3
    assert abs(scrape.gauges["kv_cache_usage"] - 0.3) < 1e-9
