"""JUnit XML, for GitLab, Jenkins and most other pipelines.

One suite per file, one case per finding and one for each engine that passed; only what fails the
policy is a failure, so the report and the exit code agree.
"""

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from api_schemas.check import CheckReport
from api_schemas.explanation import Finding
from service.reports.rule_pages import rule_title

_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: CheckReport) -> str:
    """Return the report as testsuites."""
    suites: dict[str, list[Element]] = {}
    for finding in report.findings:
        suites.setdefault(_file(finding), []).append(_case(finding, report))
    for item in report.waived:
        case = _named(item.finding)
        SubElement(case, "skipped", message=_clean(f"waived until {item.until}: {item.reason}"))
        suites.setdefault(_file(item.finding), []).append(case)
    for engine in report.engines:
        path = engine.location.file if engine.location is not None else "setpoint"
        suites.setdefault(path, []).append(
            Element("testcase", classname=_clean(path), name=_clean(f"{engine.title}: read"))
        )
    suites.setdefault("setpoint", []).append(_verdict_case(report))
    root = Element("testsuites", name="setpoint")
    for path, cases in suites.items():
        root.append(_suite(path, cases))
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(path: str, cases: list[Element]) -> Element:
    def count(tag: str) -> str:
        return str(sum(case.find(tag) is not None for case in cases))

    suite = Element(
        "testsuite",
        name=_clean(path),
        tests=str(len(cases)),
        failures=count("failure"),
        errors=count("error"),
        skipped=count("skipped"),
    )
    suite.extend(cases)
    return suite


def _case(finding: Finding, report: CheckReport) -> Element:
    case = _named(finding)
    text = _clean(_detail(finding))
    if any(reason.startswith(f"{finding.rule}: {finding.message}") for reason in report.reasons):
        SubElement(case, "failure", type=finding.rule, message=_clean(finding.message)).text = text
    else:
        SubElement(case, "system-out").text = f"{finding.severity}: {text}"
    return case


def _verdict_case(report: CheckReport) -> Element:
    case = Element("testcase", classname="setpoint", name="verdict")
    if report.verdict == "inconclusive":
        SubElement(case, "skipped", message=_clean("; ".join(report.reasons)))
    return case


def _named(finding: Finding) -> Element:
    setting = f" [{finding.setting}]" if finding.setting else ""
    line = f":{finding.location.line}" if finding.location is not None else ""
    name = f"{finding.rule} {rule_title(finding.rule)}{setting}{line}"
    return Element("testcase", classname=_clean(_file(finding)), name=_clean(name))


def _file(finding: Finding) -> str:
    return finding.location.file if finding.location is not None else "setpoint"


def _detail(finding: Finding) -> str:
    lines = [finding.message]
    if finding.suggestion:
        lines.append(f"Suggestion: {finding.suggestion}")
    if finding.location is not None:
        place = finding.location
        lines.append(f"At {place.file}:{place.line}:{place.column}")
    lines += [f"Source: {source.title}, {source.where}" for source in finding.source]
    return "\n".join(lines)


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("?", text)
