"""Namespaces: what PyIceberg's catalogs do, done by the plug-in as by its SQL catalog."""

from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NamespaceNotEmptyError, NoSuchNamespaceError

from tests.catalog.tables import SIMPLE


def test_a_created_namespace_is_there_with_its_properties(catalog: Catalog) -> None:
    catalog.create_namespace(("com", "department"), {"comment": "people", "location": "/some/place"})

    assert catalog.namespace_exists(("com", "department"))
    assert ("com",) in catalog.list_namespaces()
    assert catalog.load_namespace_properties("com.department") == {"comment": "people", "location": "/some/place"}


def test_a_namespace_without_properties_says_that_it_exists(catalog: Catalog) -> None:
    catalog.create_namespace("db")

    assert catalog.load_namespace_properties("db") == {"exists": "true"}


def test_a_namespace_cannot_be_created_twice(catalog: Catalog) -> None:
    catalog.create_namespace("db")

    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace("db")
    catalog.create_namespace_if_not_exists("db")
    assert catalog.list_namespaces() == [("db",)]


def test_a_namespace_and_its_child_are_two(catalog: Catalog) -> None:
    catalog.create_namespace(("db",))
    catalog.create_namespace(("db", "child"))

    assert catalog.list_namespaces("db") == [("db", "child")]


@pytest.mark.parametrize("name", ["", (), ("", ""), " ", (" ",)], ids=repr)
def test_a_namespace_needs_a_name(catalog: Catalog, name: Any) -> None:
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_namespace(name)


def test_a_namespace_exists_when_something_is_inside(catalog: Catalog) -> None:
    for name in [("db1",), ("db1", "ns1"), ("db2", "ns1"), ("db3", "ns1", "ns2")]:
        catalog.create_namespace(name)
        assert catalog.namespace_exists(name)

    assert catalog.namespace_exists("db2")
    assert catalog.namespace_exists("db3.ns1")
    assert not catalog.namespace_exists("db")
    assert not catalog.namespace_exists("db_")
    assert not catalog.namespace_exists("db%")


def test_namespaces_are_listed_level_by_level(catalog: Catalog) -> None:
    for name in ["db", "db.ns1", "db.ns1.ns2", "db.ns2", "db2.ns1", "db%"]:
        catalog.create_namespace(name)

    assert sorted(catalog.list_namespaces()) == [("db",), ("db%",), ("db2",)]
    assert sorted(catalog.list_namespaces("db")) == [("db", "ns1"), ("db", "ns2")]
    assert catalog.list_namespaces("db.ns1") == [("db", "ns1", "ns2")]
    assert catalog.list_namespaces("db.ns1.ns2") == []


def test_similar_names_are_not_mixed_up(catalog: Catalog) -> None:
    for name in ["db.ns1.ns2", "db.ns2", "db.ns1X.ns3", "db_.ns1.ns2", "db2.ns1.ns2"]:
        catalog.create_namespace(name)

    assert catalog.list_namespaces("db.ns1") == [("db", "ns1", "ns2")]
    assert catalog.list_namespaces("db_.ns1") == [("db_", "ns1", "ns2")]


def test_a_namespace_that_is_not_there_cannot_be_used(catalog: Catalog) -> None:
    with pytest.raises(NoSuchNamespaceError, match="Namespace does not exist: nowhere"):
        catalog.list_namespaces("nowhere")
    with pytest.raises(NoSuchNamespaceError, match="Namespace does not exist: nowhere"):
        catalog.list_tables("nowhere")
    with pytest.raises(NoSuchNamespaceError, match="Namespace does not exist: nowhere"):
        catalog.drop_namespace("nowhere")
    with pytest.raises(NoSuchNamespaceError, match=r"Namespace no\.where does not exists"):
        catalog.load_namespace_properties(("no", "where"))
    with pytest.raises(NoSuchNamespaceError, match=r"Namespace no\.where does not exists"):
        catalog.update_namespace_properties(("no", "where"), updates={"a": "b"})


def test_properties_are_set_and_removed_at_once(catalog: Catalog) -> None:
    catalog.create_namespace("db", {"comment": "old", "one": "1", "two": "2"})

    summary = catalog.update_namespace_properties("db", {"one", "three"}, {"comment": "new", "four": "4"})

    assert (summary.removed, sorted(summary.updated), summary.missing) == (["one"], ["comment", "four"], ["three"])
    assert catalog.load_namespace_properties("db") == {"comment": "new", "two": "2", "four": "4"}


def test_a_property_cannot_be_both_set_and_removed(catalog: Catalog) -> None:
    catalog.create_namespace("db")

    with pytest.raises(ValueError, match="overlap"):
        catalog.update_namespace_properties("db", {"a"}, {"a": "1"})


def test_only_an_empty_namespace_is_dropped(catalog: Catalog) -> None:
    catalog.create_namespace(("db", "ns"))
    catalog.create_table(("db", "ns", "t"), SIMPLE)

    with pytest.raises(NamespaceNotEmptyError, match=r"Namespace db\.ns is not empty"):
        catalog.drop_namespace(("db", "ns"))
    catalog.drop_table(("db", "ns", "t"))
    catalog.drop_namespace(("db", "ns"))
    assert not catalog.namespace_exists(("db", "ns"))
