"""/users: create, list, change and delete users over HTTP, with the roles that their ACLs amount to."""

from kwire.access.acl import Operation, ResourceType
from kwire.web.access import users
from tests.support.engines import Engine
from tests.support.http_access import ADMIN, SETTINGS, access_http, basic
from tests.support.node import in_uvloop

SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


@in_uvloop
async def test_a_user_is_created_listed_changed_and_deleted(engine: Engine) -> None:
    async with access_http(engine) as http:
        known = http.known_users
        made = await http.ask(
            "POST",
            "/users",
            {"name": "alice", "password": "one-secret", "role": "reader", "prefix": "orders."},
            Authorization=ADMIN,
        )
        shown = {
            "name": "alice",
            "mechanisms": SCRAM,
            "roles": [{"role": "reader", "prefix": "orders."}],
            "other_acls": 0,
        }
        assert (made.status, made.json) == (201, shown)
        assert await known.verify("alice", "one-secret")
        listed = await http.get("/users", Authorization=ADMIN)
        assert listed.json == {"users": [shown], "next": None}

        await http.allow((Operation.WRITE, ResourceType.TOPIC, "payments"), user="alice")
        assert (await http.get("/users", Authorization=ADMIN)).json["users"][0]["other_acls"] == 1

        changed = await http.ask("PUT", "/users/alice/password", {"password": "two-secret"}, Authorization=ADMIN)
        assert changed.status == 204
        assert await known.verify("alice", "two-secret")
        assert not await known.verify("alice", "one-secret")

        assert (await http.ask("DELETE", "/users/alice", Authorization=ADMIN)).status == 204
        assert "alice" not in known
        assert not [acl for acl in http.acls.acls() if acl.principal.name == "alice"]


@in_uvloop
async def test_the_acls_of_a_deleted_user_can_be_kept(engine: Engine) -> None:
    async with access_http(engine) as http:
        body = {"name": "alice", "password": "one-secret", "role": "reader"}
        assert (await http.ask("POST", "/users", body, Authorization=ADMIN)).status == 201
        assert (await http.ask("DELETE", "/users/alice?keep_acls=true", Authorization=ADMIN)).status == 204
        assert [acl for acl in http.acls.acls() if acl.principal.name == "alice"]


@in_uvloop
async def test_invalid_users_are_refused_and_leave_no_acls(engine: Engine) -> None:
    async with access_http(engine) as http:
        assert (
            await http.ask("POST", "/users", {"name": "alice", "password": "one-secret"}, Authorization=ADMIN)
        ).status == 201
        for body, status, code in (
            ({"name": "alice", "password": "two-secret", "role": "admin"}, 409, "UserExists"),
            ({"name": "ANONYMOUS", "password": "two-secret", "role": "admin"}, 400, "InvalidUser"),
            ({"name": "bert", "password": "two-secret", "role": "admin", "prefix": "x"}, 400, "InvalidUser"),
            ({"name": "bert", "password": "two-secret", "prefix": "x"}, 400, "InvalidUser"),
            ({"name": "bert", "password": "ü" * 1000, "role": "admin"}, 400, "InvalidUser"),
        ):
            refused = await http.ask("POST", "/users", body, Authorization=ADMIN)
            assert (refused.status, refused.json["error"]["code"]) == (status, code), body
        assert not [acl for acl in http.acls.acls() if acl.principal.name in ("alice", "bert")]
        for refused in (
            await http.ask("PUT", "/users/nobody/password", {"password": "x-secret"}, Authorization=ADMIN),
            await http.ask("DELETE", "/users/nobody", Authorization=ADMIN),
        ):
            assert (refused.status, refused.json["error"]["code"]) == (404, "UserNotFound")


@in_uvloop
async def test_short_passwords_are_refused(engine: Engine) -> None:
    async with access_http(engine, *SETTINGS, "kwire.password.length.min=4") as http:
        for password, status in (("abc", 400), ("ÄÖÜ", 400), ("abcd", 201)):
            body = {"name": "alice", "password": password, "role": "reader"}
            made = await http.ask("POST", "/users", body, Authorization=ADMIN)
            assert made.status == status, password
            assert [acl for acl in http.acls.acls() if acl.principal.name == "alice"] == [] or status == 201
        refused = await http.ask("PUT", "/users/alice/password", {"password": "abc"}, Authorization=ADMIN)
        assert refused.status == 400
        assert refused.json["error"]["code"] == "InvalidPassword"
        assert refused.json["error"]["message"] == "the password must have at least 4 characters"
        assert await http.known_users.verify("alice", "abcd")


@in_uvloop
async def test_users_are_listed_in_pages(engine: Engine) -> None:
    async with access_http(engine) as http:
        for name in ("c", "a", "b"):
            assert (
                await http.ask("POST", "/users", {"name": name, "password": "x-secret"}, Authorization=ADMIN)
            ).status == 201
        first = (await http.get("/users?limit=2", Authorization=ADMIN)).json
        assert ([one["name"] for one in first["users"]], first["next"]) == (["a", "b"], "b")
        last = (await http.get("/users?limit=2&after=b", Authorization=ADMIN)).json
        assert ([one["name"] for one in last["users"]], last["next"]) == (["c"], None)
        refused = await http.get(f"/users?limit={users.PAGE_USERS_MAX + 1}", Authorization=ADMIN)
        assert refused.status == 400


@in_uvloop
async def test_a_role_needs_an_authorizer(engine: Engine) -> None:
    async with access_http(engine, "kwire.http.authentication=basic") as http:
        body = {"name": "alice", "password": "one-secret", "role": "reader"}
        refused = await http.ask("POST", "/users", body, Authorization=basic("bob", "b-secret"))
        assert (refused.status, refused.json["error"]["code"]) == (409, "SecurityDisabled")
        assert "alice" not in http.known_users
