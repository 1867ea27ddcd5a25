"""Filter, sort and page what a listing call asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from flyteidl2.common import list_pb2

T = TypeVar("T")

_F: Final = list_pb2.Filter
_COMPARE: Final[Mapping[int, Callable[[str, Sequence[str]], bool]]] = {
    _F.EQUAL: lambda value, values: value == values[0],
    _F.NOT_EQUAL: lambda value, values: value != values[0],
    _F.VALUE_IN: lambda value, values: value in values,
    _F.VALUE_NOT_IN: lambda value, values: value not in values,
    _F.CONTAINS: lambda value, values: values[0] in value,
    _F.GREATER_THAN: lambda value, values: value > values[0],
    _F.GREATER_THAN_OR_EQUAL: lambda value, values: value >= values[0],
    _F.LESS_THAN: lambda value, values: value < values[0],
    _F.LESS_THAN_OR_EQUAL: lambda value, values: value <= values[0],
}
_PAGE: Final = 100


def page(
    items: Sequence[T], request: list_pb2.ListRequest, fields: Mapping[str, Callable[[T], str | float]]
) -> tuple[list[T], str]:
    """One page of `items`.

    Args:
        items: everything, oldest first.
        request: the filters, the order, and which page.
        fields: what can be filtered and sorted by; a time is a `float`, in seconds since the epoch.

    Returns:
        The page, and the token of the next one, empty if it is the last.

    Raises:
        ConnectError: `UNIMPLEMENTED`, for a field or comparison that the plane does not know. To leave a filter out
            would list what nobody asked for.
    """
    for wish in request.filters:
        items = [item for item in items if _matches(item, wish, fields)]
    if request.HasField("sort_by"):
        key = _field(request.sort_by.key, fields)
        items = sorted(items, key=key, reverse=request.sort_by.direction == list_pb2.Sort.DESCENDING)
    start, limit = int(request.token or 0), request.limit or _PAGE
    rest = len(items) - start - limit
    return list(items[start : start + limit]), str(start + limit) if rest > 0 else ""


def _matches(item: T, wish: list_pb2.Filter, fields: Mapping[str, Callable[[T], str | float]]) -> bool:
    value, values = _field(wish.field, fields)(item), list(wish.values)
    compare = _COMPARE.get(wish.function)
    if compare is None or not values:
        raise ConnectError(
            Code.UNIMPLEMENTED, f"This plane does not filter {wish.field!r} by {_F.Function.Name(wish.function)}."
        )
    if isinstance(value, float):
        # Equal widths, so that the comparison of the texts is that of the times.
        return compare(f"{value:020.6f}", [f"{datetime.fromisoformat(text).timestamp():020.6f}" for text in values])
    return compare(value, values)


def _field(name: str, fields: Mapping[str, Callable[[T], str | float]]) -> Callable[[T], str | float]:
    try:
        return fields[name]
    except KeyError:
        raise ConnectError(
            Code.UNIMPLEMENTED, f"This plane does not filter or sort by {name!r}, only by {sorted(fields)}."
        ) from None
