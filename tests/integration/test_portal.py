"""The page for people and its files, as they are served."""

import pytest

from tests.integration.conftest import Client

_BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize("accept", [_BROWSER, "*/*", "text/html"])
def test_people_get_the_page(api: Client, accept: str) -> None:
    """A browser gets the page at the root, without being sent elsewhere."""
    response = api.get("/", headers={"Accept": accept})

    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert response.headers["vary"] == "Accept"
    assert "<title>Setpoint</title>" in response.text


def test_programs_get_the_index(api: Client) -> None:
    """Who asks for JSON gets the addresses of everything."""
    response = api.get("/", headers={"Accept": "application/json"})

    assert response.json()["links"]["recommendations"] == "/recommendations"


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("portal.js", "text/javascript"),
        ("portal.css", "text/css"),
        ("icon.svg", "image/svg+xml"),
        ("licences.txt", "text/plain"),
    ],
)
def test_the_page_finds_its_files(api: Client, name: str, media_type: str) -> None:
    """Each file has its own media type, and a tag by which a browser keeps it."""
    response = api.get(f"/static/{name}")
    again = api.get(f"/static/{name}", headers={"If-None-Match": response.headers["etag"]})

    assert response.status_code == 200
    assert response.headers["content-type"].startswith(media_type)
    assert again.status_code == 304


@pytest.mark.parametrize("name", ["nothing.js", "..%2Fweb%2Fpackage.json", "%2e%2e", "__init__.py"])
def test_nothing_else_can_be_read(api: Client, name: str) -> None:
    """Only the built files are served, whatever the path says."""
    assert api.get(f"/static/{name}").status_code == 404


def test_the_policy_allows_the_page_its_own_files_alone(api: Client) -> None:
    """Scripts, styles and calls may come from and go to this service only."""
    policy = api.get("/").headers["content-security-policy"]

    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
