"""Views: objects of a dynamic subclass that share the state of another object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, PrivateAttr

from flyteplugins.agents.core import SubclassViews


class Model(BaseModel):
    """A model that counts."""

    name: str
    asked: int = 0
    _secret: int = PrivateAttr(default=1)

    def ask(self) -> str:
        self.asked += 1
        self._secret += 1
        return f"{type(self).__name__} {self.name} {self.asked}"


class Slotted:
    __slots__ = ("__hidden", "shown")

    def __init__(self) -> None:
        self.__hidden = "hidden"
        self.shown = "shown"

    def ask(self) -> str:
        return self.__hidden + self.shown


def louder(kind: type[Any]) -> Mapping[str, Any]:
    def ask(self: Any) -> str:
        return str(kind.ask(self)).upper()

    return {"ask": ask}


VIEWS: SubclassViews[Any] = SubclassViews(louder)


def test_a_view_is_an_instance_of_the_class_and_has_its_name_and_other_methods() -> None:
    view = VIEWS.view(Model(name="one"))
    assert isinstance(view, Model)
    assert type(view) is not Model
    assert (type(view).__name__, type(view).__qualname__, type(view).__module__) == ("Model", "Model", __name__)
    assert view.ask() == "MODEL ONE 1"


def test_what_a_view_sets_the_object_has_too_and_the_other_way_round() -> None:
    model = Model(name="one")
    view = VIEWS.view(model)
    view.ask()
    model.ask()
    model.name = "two"
    assert (view.asked, view._secret, view.name) == (model.asked, model._secret, "two") == (2, 3, "two")
    assert type(model) is Model


def test_slots_are_part_of_the_state() -> None:
    assert VIEWS.view(Slotted()).ask() == "HIDDENSHOWN"


def test_each_class_has_one_subclass_and_a_view_has_no_view() -> None:
    first, second = VIEWS.view(Model(name="one")), VIEWS.view(Model(name="two"))
    assert type(first) is type(second) is VIEWS.subclass(Model) is VIEWS.subclass(type(first))
    assert VIEWS.view(first) is first


def test_the_original_class_is_known_and_a_plain_object_of_it_can_be_had_again() -> None:
    model = Model(name="one")
    view = VIEWS.view(model)
    assert VIEWS.original(view) is VIEWS.original(model) is Model
    plain = VIEWS.plain(view)
    assert type(plain) is Model
    assert plain.ask() == "Model one 1"
    assert model.asked == 1
    assert VIEWS.plain(model) is model
