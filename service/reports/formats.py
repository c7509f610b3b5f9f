"""All formats by name, with their media types."""

from collections.abc import Callable
from typing import NamedTuple

from api_schemas.check import CheckReport
from service.reports.github import render_github
from service.reports.gitlab import render_gitlab
from service.reports.json_report import render_json
from service.reports.junit import render_junit
from service.reports.markdown import render_markdown
from service.reports.sarif import render_sarif
from service.reports.text import render_text


class Format(NamedTuple):
    """How a report is written."""

    media_type: str
    render: Callable[[CheckReport], str]


FORMATS: dict[str, Format] = {
    "text": Format("text/plain", render_text),
    "json": Format("application/json", render_json),
    "sarif": Format("application/sarif+json", render_sarif),
    "junit": Format("application/xml", render_junit),
    "markdown": Format("text/markdown", render_markdown),
    "github": Format("text/vnd.github.workflow-commands", render_github),
    "gitlab": Format("application/vnd.gitlab.code-quality+json", render_gitlab),
}
