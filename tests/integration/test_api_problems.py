"""Every mistake at the edge is an RFC 9457 problem."""

import gzip
import json

import pytest
from httpx import Response

from service.problems import PROBLEMS
from tests.integration.conftest import Client

_JSON = {"Content-Type": "application/json"}
_SHAPE = {"type", "title", "status", "detail", "instance", "code", "errors", "request_id"}


def _assert_problem(response: Response, *, code: str) -> dict[str, object]:
    """Check the common members and headers of a problem, and return it."""
    problem: dict[str, object] = response.json()
    status, title = PROBLEMS[code]  # type: ignore[index]
    assert response.headers["content-type"] == "application/problem+json"
    assert set(problem) == _SHAPE
    assert problem["code"] == code
    assert problem["type"] == f"/problems/{code}"
    assert (problem["status"], response.status_code, problem["title"]) == (status, status, title)
    assert problem["request_id"] == response.headers["x-request-id"]
    return problem


@pytest.mark.parametrize("code", sorted(PROBLEMS))
def test_problem_types_resolve(api: Client, code: str) -> None:
    """The `type` of every problem is an address that explains it."""
    page = api.get(f"/problems/{code}")

    assert page.status_code == 200
    assert page.json() == {
        "code": code,
        "status": PROBLEMS[code].status,
        "title": PROBLEMS[code].title,
    }


@pytest.mark.parametrize(
    "path", ["/nope", "/recommendations/x/y", "/problems/x", "/gpus/none", "/%00"]
)
def test_unknown_paths_are_not_found(api: Client, path: str) -> None:
    """Nothing at a path is a problem like any other."""
    _assert_problem(api.get(path), code="not-found")


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/gpus"), ("DELETE", "/estimates"), ("BREW", "/")]
)
def test_a_wrong_method_says_which_are_allowed(api: Client, method: str, path: str) -> None:
    """405 carries an Allow header."""
    response = api.request(method, path)

    _assert_problem(response, code="method-not-allowed")
    assert response.headers["allow"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"model": NaN}'])
def test_malformed_bodies_are_invalid_requests(api: Client, body: bytes) -> None:
    """A body that is no JSON object answers 400."""
    _assert_problem(api.post("/estimates", content=body, headers=_JSON), code="invalid-request")


def test_a_wrong_field_is_pointed_at(api: Client) -> None:
    """The problem names the field with a JSON pointer and says what is allowed."""
    body = {
        "model": {"id": "a/b"},
        "hardware": {"gpu": "L4"},
        "slo": {"targets": [{"metric": "ttfft", "limit_ms": 200}]},
    }

    problem = _assert_problem(api.post("/recommendations", json=body), code="invalid-request")

    (error,) = problem["errors"]  # type: ignore[misc]
    assert error["pointer"] == "/slo/targets/0/metric"
    assert "allowed: e2el, itl, tpot, ttft" in error["message"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "x"])
def test_other_media_types_are_refused(api: Client, content_type: str) -> None:
    """A body that is not JSON by its own word is not guessed at."""
    response = api.post("/estimates", content=b"{}", headers={"Content-Type": content_type})

    _assert_problem(response, code="unsupported-media-type")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "identity, br"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": 'application/json; charset="ISO-8859-1"'},
    ],
)
def test_encoded_bodies_are_refused_as_such(api: Client, headers: dict[str, str]) -> None:
    """A compressed body, or one in another charset than UTF-8, is not read as malformed JSON."""
    response = api.post("/estimates", content=gzip.compress(b"{}"), headers=_JSON | headers)

    _assert_problem(response, code="unsupported-media-type")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Encoding": "identity"},
        {"Content-Type": "application/json; charset=UTF-8"},
        {"Content-Type": 'application/json;charset="utf-8"'},
    ],
)
def test_plain_bodies_are_read_whatever_their_headers_add(
    api: Client, headers: dict[str, str]
) -> None:
    """Saying that the body is plain UTF-8 changes nothing."""
    body = b'{"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": "L4"}}'

    assert api.post("/estimates", content=body, headers=_JSON | headers).status_code == 200


def test_what_cannot_be_made_is_not_acceptable(api: Client) -> None:
    """An Accept header that rules out everything answers 406 and says what there is."""
    problem = _assert_problem(
        api.get("/gpus", headers={"Accept": "application/xml"}), code="not-acceptable"
    )

    assert "application/json" in str(problem["detail"])


@pytest.mark.parametrize("chunked", [True, False])
def test_a_large_body_is_refused(api: Client, chunked: bool) -> None:  # noqa: FBT001
    """A body past the limit answers 413, whether its length was announced or not."""
    pieces = [b"[" + b" " * 150_000, b" " * 150_000 + b"]"]
    content = iter(pieces) if chunked else b"".join(pieces)

    _assert_problem(api.post("/estimates", content=content, headers=_JSON), code="too-large")


def test_a_deep_body_is_refused(api: Client) -> None:
    """Nesting past the limit answers 413 instead of exhausting the stack."""
    body = b'{"model":{"id":"a","config":{"x":' + b"[" * 60_000 + b"]" * 60_000 + b"}}}"

    _assert_problem(api.post("/estimates", content=body, headers=_JSON), code="too-large")


def test_unknown_parameters_are_refused_with_the_known_ones(api: Client) -> None:
    """A misspelt filter is an error, not an unfiltered list."""
    problem = _assert_problem(api.get("/recommendations?modle=x"), code="invalid-request")

    (error,) = problem["errors"]  # type: ignore[misc]
    assert error["pointer"] == "modle"
    assert "cursor, gpu, label, limit, model" in error["message"]


def test_a_repeated_parameter_is_refused_unless_it_is_a_list(api: Client) -> None:
    """Two values where one is taken are an error; a list takes several."""
    problem = _assert_problem(api.get("/recommendations?gpu=L4&gpu=T4"), code="invalid-request")

    assert [error["pointer"] for error in problem["errors"]] == ["gpu"]  # type: ignore[attr-defined]
    assert api.get("/recommendations?label=a&label=b").status_code == 200


@pytest.mark.parametrize("limit", ["null", "0", "201", "-1", "x", "", "1e9"])
def test_parameters_out_of_range_are_named(api: Client, limit: str) -> None:
    """A refused parameter is named in errors."""
    problem = _assert_problem(api.get(f"/recommendations?limit={limit}"), code="invalid-request")

    assert [error["pointer"] for error in problem["errors"]] == ["limit"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("cursor", ["x", "%00", "MTp4"])
def test_a_made_up_cursor_is_refused(api: Client, cursor: str) -> None:
    """Only cursors that a page handed out are taken."""
    _assert_problem(api.get(f"/recommendations?cursor={cursor}"), code="invalid-request")


def test_the_request_id_is_the_callers_when_it_is_well_formed(api: Client) -> None:
    """A caller's id is kept, also in the problem; a dangerous one is replaced."""
    kept = api.get("/nope", headers={"X-Request-Id": "ci-42.retry:1"})
    replaced = api.get("/nope", headers={"X-Request-Id": "<script>"})

    assert _assert_problem(kept, code="not-found")["request_id"] == "ci-42.retry:1"
    assert len(str(_assert_problem(replaced, code="not-found")["request_id"])) == 32


def test_a_fault_of_ours_tells_nothing(
    api: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unforeseen exception answers 500 without detail; the log has it with the request id."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret path /etc/x")

    monkeypatch.setattr("service.api.gpus.all_gpus", fail)

    response = api.get("/gpus", headers={"X-Request-Id": "find-me"})

    _assert_problem(response, code="internal-error")
    assert "secret" not in response.text
    logged = capsys.readouterr()
    assert "find-me" in logged.out + logged.err
    assert "secret path" in logged.out + logged.err


@pytest.mark.parametrize("path", ["/", "/nope", "/gpus"])
def test_every_answer_carries_security_headers(api: Client, path: str) -> None:
    """No sniffing, no framing, no referrer, no caching unless a route says so, no CORS."""
    headers = api.get(path, headers={"Origin": "https://elsewhere.example"}).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert "content-security-policy" in headers
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


def test_problems_are_json_for_any_caller(api: Client) -> None:
    """A problem is sent even to callers who accept something else."""
    response = api.get("/nope", headers={"Accept": "text/html"})

    assert json.loads(response.text)["code"] == "not-found"
