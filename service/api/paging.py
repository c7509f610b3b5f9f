"""Pages of lists: cursors in and out, and what several lists are filtered by."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from litestar.params import QueryParameter

from service.api.problems import refuse_field
from service.store.cursor import InvalidCursor, decode_cursor

PageCursor = Annotated[
    str | None,
    QueryParameter(
        max_length=128, description="Where the page starts: `next_cursor` of the last one."
    ),
]
ModelFilter = Annotated[str | None, QueryParameter(max_length=256, description="Model id.")]
GpuFilter = Annotated[str | None, QueryParameter(max_length=256, description="GPU name or alias.")]
PageSize = Annotated[int, QueryParameter(ge=1, le=200, description="Rows of the page.")]


def position_of(cursor: str | None) -> str | None:
    """Return the id after which a page starts; None for the first one.

    Raises:
        Refusal: No page of this service handed the cursor out.
    """
    if cursor is None:
        return None
    try:
        return decode_cursor(cursor)
    except InvalidCursor:
        raise refuse_field(
            "cursor", "not a cursor of this service; leave it out to start"
        ) from None


def next_link(path: str, query: Mapping[str, Any], following: str | None) -> dict[str, str]:
    """Return the Link header of the next page; none on the last one."""
    if following is None:
        return {}
    kept = {name: value for name, value in query.items() if value is not None}
    address = f"{path}?" + urlencode({**kept, "cursor": following}, doseq=True)
    return {"Link": f'<{address}>; rel="next"'}
