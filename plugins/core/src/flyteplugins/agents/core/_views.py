"""Objects of a dynamic subclass that share the state of another object.

Some SDKs ask a model what it is (`isinstance`, its name, what it overrides) and call its private methods, so a wrapper would lose
half of it. A view is the same object to them, down to what it counts in its attributes, and differs in a few methods.
"""

from __future__ import annotations

import threading
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

__all__ = ["SubclassViews"]

T = TypeVar("T")


class SubclassViews(Generic[T]):
    """Makes views, with one dynamic subclass for each class.

    Args:
        overrides: Called once for each class; returns the methods that its views have in place of the class's own. They reach
            the originals through the class that they are given, as `kind.method(self, ...)`.
    """

    def __init__(self, overrides: Callable[[type[T]], Mapping[str, Any]]) -> None:
        self._overrides = overrides
        self._lock = threading.Lock()
        self._subclasses: weakref.WeakKeyDictionary[type[T], type[T]] = weakref.WeakKeyDictionary()
        self._originals: weakref.WeakKeyDictionary[type[T], type[T]] = weakref.WeakKeyDictionary()

    def subclass(self, kind: type[T]) -> type[T]:
        """The dynamic subclass of a class: named like it, since SDKs and their serialization go by the name.

        Args:
            kind: The class.
        """
        with self._lock:
            if kind in self._originals:
                return kind
            found = self._subclasses.get(kind)
            if found is None:
                namespace = {
                    "__module__": kind.__module__,
                    "__qualname__": kind.__qualname__,
                    "__doc__": kind.__doc__,
                    **self._overrides(kind),
                }
                found = cast(
                    "type[T]", types.new_class(kind.__name__, (kind,), exec_body=lambda ns: ns.update(namespace))
                )
                self._subclasses[kind] = found
                self._originals[found] = kind
            return found

    def original(self, instance: T) -> type[T]:
        """The class that an object has without its view.

        Args:
            instance: An object, or a view of one.
        """
        return self._originals.get(type(instance), type(instance))

    def view(self, instance: T) -> T:
        """A view of an object: another object, of the dynamic subclass, with the same state.

        What either sets on itself the other has too.

        Args:
            instance: An object. A view is returned as it is.
        """
        kind = self.subclass(type(instance))
        return instance if type(instance) is kind else _with_state_of(instance, kind)

    def plain(self, view: T) -> T:
        """The opposite of `view`: an object of the original class, with the same state.

        Args:
            view: A view. Any other object is returned as it is.
        """
        kind = self.original(view)
        return view if type(view) is kind else _with_state_of(view, kind)


def _with_state_of(instance: T, kind: type[T]) -> T:
    other = object.__new__(kind)
    if hasattr(instance, "__dict__"):
        object.__setattr__(other, "__dict__", instance.__dict__)
    for base in type(instance).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{base.__name__.lstrip('_')}{slot}" if slot.startswith("__") and not slot.endswith("__") else slot
            if name not in ("__dict__", "__weakref__") and hasattr(instance, name):
                object.__setattr__(other, name, object.__getattribute__(instance, name))
    return other
