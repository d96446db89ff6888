"""URLs, names and errors."""

import pickle

import psycopg
import pytest

from oncelog.client.errors import ConnectionLostError
from oncelog.spark.errors import UsageError
from oncelog.spark.jdbc.database import parse_name, parse_url, quoted, secret_names, translated


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
    assert database.secrets == {"password": "p"}


@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("", None),
        ("ssl", "verify-full"),
        ("ssl=", "verify-full"),
        ("ssl=true", "verify-full"),
        ("ssl=TRUE", "verify-full"),
        ("ApplicationName=a&ssl", "verify-full"),
        ("ssl&ApplicationName=a&", "verify-full"),
        ("ssl=false", "prefer"),
        ("ssl=False", "prefer"),
        ("sslmode=require", "require"),
        ("sslmode=Verify-Full", "verify-full"),
        ("sslmode=disable&ssl", "disable"),
        ("ssl=true&sslmode=require", "require"),
        ("sslmode=require&ssl=false", "require"),
        ("sslmode=prefer&sslmode=require", "require"),
    ],
)
def test_tls_is_asked_for_as_the_jdbc_driver_does(query: str, mode: str | None) -> None:
    """A blank `ssl` counts as true, `sslmode` before `ssl`, and capitals do not matter."""
    database = parse_url(f"jdbc:postgresql://db/shop?{query}", None, None)
    assert database.parameters.get("sslmode") == mode


@pytest.mark.parametrize(
    "query", ["ssl=1", "ssl=yes", "sslmode", "sslmode=", "sslmode=on", "ssl&sslmode=verify"]
)
def test_tls_that_is_asked_for_in_no_known_way_is_refused(query: str) -> None:
    with pytest.raises(UsageError, match="url: ssl"):
        parse_url(f"jdbc:postgresql://db/shop?{query}", None, None)


def test_what_follows_a_number_sign_in_a_password_is_read_too() -> None:
    database = parse_url("jdbc:postgresql://db/shop?password=a#b&sslmode=require", None, None)
    assert database.secrets == {"password": "a#b"}
    assert database.parameters["sslmode"] == "require"
    database = parse_url("postgresql://u:a?b#c@db?sslmode=require", None, None)
    assert database.secrets == {"password": "a?b#c"}
    assert database.parameters == {"host": "db", "user": "u", "sslmode": "require"}


def test_a_schema_of_a_jdbc_url_is_the_search_path() -> None:
    database = parse_url("jdbc:postgresql://db/shop?currentSchema=mine", None, None)
    assert database.parameters["options"] == "-csearch_path=mine"
    url = "jdbc:postgresql://db/shop?currentSchema=mine,%20yours&options=-cgeqo=off"
    options = parse_url(url, None, None).parameters["options"]
    assert options == "-cgeqo=off -csearch_path=mine,\\ yours"


def test_several_hosts_are_tried_by_libpq() -> None:
    parameters = parse_url("postgresql://one:1,two:2/shop", None, None).parameters
    assert (parameters["host"], parameters["port"]) == ("one,two", "1,2")


def test_a_password_is_in_no_repr_wherever_it_stood() -> None:
    database = parse_url("jdbc:postgresql://u:hidden@db/shop?password=hidden", None, None)
    assert "hidden" not in repr(database)
    assert "hidden" not in str(database.parameters)
    assert pickle.loads(pickle.dumps(database)).secrets == {"password": "hidden"}


def test_no_other_secret_is_in_a_repr() -> None:
    names = {name for name in secret_names() if name != "password"}
    assert "sslpassword" in names
    query = "&".join(f"{name}=hidden" for name in names)
    database = parse_url(f"jdbc:postgresql://db/shop?{query}", None, "hidden")
    assert "hidden" not in repr(database)
    assert "hidden" not in str(database.parameters)
    assert database.secrets == dict.fromkeys([*names, "password"], "hidden")


def test_a_connection_is_given_the_secrets_too() -> None:
    given: dict[str, object] = {}
    database = parse_url("jdbc:postgresql://db/shop?ssl&sslpassword=hidden", None, "other")

    def connect(**options: object) -> None:
        given.update(options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg, "connect", connect)
        database.connect()
    expected = {"sslmode": "verify-full", "sslpassword": "hidden", "password": "other"}
    assert given.items() >= expected.items()


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:mysql://db/shop",
        "jdbc:postgresql:shop",
        "db/shop",
        "jdbc:postgresql://h/d?x=1",
        "jdbc:postgresql://[::1]x/d",
        "jdbc:postgresql://[::1/d",
        "jdbc:postgresql://%zz/d",
        "jdbc:postgresql://h/d?password=a&hidden",
        "jdbc:postgresql:///d?ssl=hidden",
    ],
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
