import pytest

from producer.errors import CdcError, ConnectionLost, LoginRefused, RoleDiffers, SourceError
from producer.sources.dial import ConnectionArguments
from producer.sources.hosts import first_that_opens, split_host, targets

ARGUMENTS = ConnectionArguments(
    host="here", hostaddr="10.0.0.1", port=8000, dbname="d", user="u", password="secret"
)
HOSTS = targets(ARGUMENTS, ["a", "b:9000", "[::1]:7"])


def opener(said: dict[str, CdcError]) -> object:
    def attempt(at: ConnectionArguments) -> str:
        if at.host in said:
            raise said[at.host]
        return at.host

    return attempt


def test_hosts_replace_the_address_and_nothing_else() -> None:
    assert [(at.host, at.port, at.hostaddr) for at in HOSTS] == [
        ("a", 8000, ""),
        ("b", 9000, ""),
        ("::1", 7, ""),
    ]
    assert {(at.user, at.password) for at in HOSTS} == {("u", "secret")}


def test_without_hosts_the_arguments_name_the_only_one() -> None:
    assert targets(ARGUMENTS, []) == [ARGUMENTS]


@pytest.mark.parametrize("text", ["", ":5432", "a:", "a:b", "a:1:2", "[::1", "[::1]5", "a:٣"])
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="not a host"):
        split_host(text, 5)


def test_a_host_that_is_down_or_plays_another_role_is_passed_by() -> None:
    said = {"a": ConnectionLost("down"), "b": RoleDiffers("the server is a standby")}

    assert first_that_opens(HOSTS, opener(said)) == "::1"


def test_when_none_takes_us_in_each_is_quoted() -> None:
    said = {
        "a": ConnectionLost("cannot connect"),
        "b": RoleDiffers("the server is a standby"),
        "::1": ConnectionLost("the server does not answer"),
    }

    with pytest.raises(ConnectionLost, match=r"a:8000: cannot.*b:9000: the.*::1:7: the") as caught:
        first_that_opens(HOSTS, opener(said))
    assert type(caught.value) is ConnectionLost


def test_a_cluster_without_the_role_is_reported_as_such() -> None:
    said: dict[str, CdcError] = dict.fromkeys(
        ("a", "b", "::1"), RoleDiffers("the server is a standby")
    )

    with pytest.raises(RoleDiffers):
        first_that_opens(HOSTS, opener(said))


def test_a_refused_login_is_not_tried_elsewhere() -> None:
    said = {"a": ConnectionLost("down"), "b": LoginRefused("wrong password")}

    with pytest.raises(LoginRefused, match=r"wrong password.*before=a:8000: down"):
        first_that_opens(HOSTS, opener(said))


def test_the_only_host_speaks_for_itself() -> None:
    with pytest.raises(ConnectionLost, match=r"^down"):
        first_that_opens(HOSTS[:1], opener({"a": ConnectionLost("down")}))
