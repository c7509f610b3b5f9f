"""From the core's advice to the recommendation that is answered and stored."""

from collections.abc import Mapping

from api_schemas.recommendation import Advice, Recommendation


def as_recommendation(
    advice: Advice, *, identifier: str, created_at: str, labels: Mapping[str, str]
) -> Recommendation:
    """Return the advice with its id, time and labels; nothing has been validated yet."""
    return Recommendation(
        id=identifier,
        created_at=created_at,
        labels=dict(labels),
        validations=[],
        measured=None,
        **{name: getattr(advice, name) for name in advice.__struct_fields__},
    )
