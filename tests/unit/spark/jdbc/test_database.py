"""URLs, names and errors."""

import pickle

import psycopg
import pytest

from oncelog.client.errors import ConnectionLostError
from oncelog.spark.errors import UsageError
from oncelog.spark.jdbc.database import parse_name, parse_url, quoted, translated


def test_a_jdbc_url_gives_libpqs_parameters() -> None:
    database = parse_url("jdbc:postgresql://db:5433/shop?ssl=true&ApplicationName=a%20b", "u", "p")
    assert database.parameters == {
        "host": "db",
        "port": "5433",
        "dbname": "shop",
        "user": "u",
        "sslmode": "verify-full",
        "application_name": "a b",
    }
    assert database.password == "p"


def test_a_schema_of_a_jdbc_url_is_the_search_path() -> None:
    database = parse_url("jdbc:postgresql://db/shop?currentSchema=mine", None, None)
    assert database.parameters["options"] == "-csearch_path=mine"


def test_several_hosts_are_tried_by_libpq() -> None:
    parameters = parse_url("postgresql://one:1,two:2/shop", None, None).parameters
    assert (parameters["host"], parameters["port"]) == ("one,two", "1,2")


def test_a_password_is_in_no_repr_wherever_it_stood() -> None:
    database = parse_url("jdbc:postgresql://u:hidden@db/shop?password=hidden", None, None)
    assert "hidden" not in repr(database)
    assert "hidden" not in str(database.parameters)
    assert pickle.loads(pickle.dumps(database)).password == "hidden"


@pytest.mark.parametrize(
    "url", ["jdbc:mysql://db/shop", "jdbc:postgresql:shop", "db/shop", "jdbc:postgresql://h/d?x=1"]
)
def test_what_is_no_url_of_postgresql_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(UsageError, match="url") as refusal:
        parse_url(url.replace("//", "//u:hidden@"), None, None)
    assert "hidden" not in str(refusal.value)


def test_names_fold_as_in_sql() -> None:
    assert parse_name("Late") == ("late",)
    assert parse_name('shop."Late ""x"".y"') == ("shop", 'Late "x".y')
    assert quoted("shop", 'Late "x"') == '"shop"."Late ""x"""'


@pytest.mark.parametrize("text", ["", "a.b.c", "a b", "a.", '"a', "t; drop table t"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no table's name"):
        parse_name(text)


def test_a_mistake_in_the_data_is_not_tried_again_and_a_lost_connection_is() -> None:
    with pytest.raises(UsageError, match="out of range"), translated():
        raise psycopg.errors.NumericValueOutOfRange("out of range\nDETAIL: a row")
    with pytest.raises(ConnectionLostError, match="terminating"), translated():
        raise psycopg.errors.AdminShutdown("terminating")
