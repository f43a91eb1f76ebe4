"""The pages for access: users, keys, ACLs, quotas and the audit log, as an administrator uses them."""

import urllib.request

import pytest

from tests.console.driver import CONSOLE, Console
from tests.console.secured import BASIC, PASSWORD, SecuredServer, basic
from tests.support.http_json import HTTP_TIMEOUT_S
from tests.support.server import wait_until

pytestmark = CONSOLE

NEW_PASSWORD = "a new and different phrase"


@pytest.fixture
def admin(secured: Console, secured_server: SecuredServer) -> Console:
    secured_server.log_in(secured, "admin", "/topics")
    return secured


def test_a_user_is_created_gets_another_password_and_is_deleted(admin: Console, secured_server: SecuredServer) -> None:
    admin.click("Users")
    admin.wait_for("rita")
    admin.wait_for("operator")
    admin.screenshot("users")
    admin.click("Create user")
    admin.type("Name", "walter")
    admin.type("Password", "short")
    admin.type("Repeat the password", "short")
    admin.press("Enter")
    admin.until("document.querySelector('.field-error:not(:empty)')?.textContent === 'At least 8 characters.'")
    admin.type("Password", PASSWORD)
    admin.type("Repeat the password", "something else")
    admin.choose("Role", "writer")
    admin.type("Only names that begin with", "app.")
    admin.wait_for("kwire user create walter --role writer --prefix app.")
    admin.screenshot("user-create")
    admin.press("Enter")
    admin.wait_for("This is not the same password.")
    admin.type("Repeat the password", PASSWORD)
    admin.press("Enter")
    admin.wait_for("User walter was created.")
    admin.wait_for("writer of app.*")
    assert PASSWORD not in admin.evaluate("document.documentElement.outerHTML")
    admin.until("document.querySelector('input[type=password]') === null")
    session = secured_server.ask("GET", "/session", authorization=basic("walter"))
    assert session.body["principal"] == "User:walter"

    admin.click("Change password of walter")
    admin.type("Password", NEW_PASSWORD)
    admin.type("Repeat the password", NEW_PASSWORD)
    admin.wait_for("kwire user passwd walter")
    admin.screenshot("user-password")
    admin.press("Enter")
    admin.wait_for("The password of walter was changed.")
    assert secured_server.ask("GET", "/session", authorization=basic("walter")).status == 401
    assert secured_server.ask("GET", "/session", authorization=basic("walter", NEW_PASSWORD)).status == 200

    admin.click("Delete walter")
    admin.wait_for("kwire user delete walter")
    admin.screenshot("user-delete")
    admin.type("Type walter to confirm", "walter")
    admin.press("Enter")
    admin.wait_for("User walter was deleted.")
    admin.wait_until_gone("writer of app.*")
    assert secured_server.ask("GET", "/session", authorization=basic("walter", NEW_PASSWORD)).status == 401


def test_a_new_user_logs_in_to_the_console(admin: Console, secured_server: SecuredServer) -> None:
    admin.open("/users")
    admin.click("Create user")
    admin.type("Name", "rita")
    admin.type("Password", PASSWORD)
    admin.type("Repeat the password", PASSWORD)
    admin.expect_error("/users")
    admin.press("Enter")
    admin.wait_for("The user rita exists already")
    admin.type("Name", "oscar")
    admin.choose("Role", "operator")
    admin.press("Enter")
    admin.wait_for("User oscar was created.")
    admin.click("Log out")
    admin.until("findControl('Password') !== null")
    secured_server.log_in(admin, "oscar", "/users")
    admin.wait_for("oscar")
    admin.wait_for("you")
    assert admin.evaluate("findControl('Create user') ?? findControl('Delete oscar')") is None, "an operator only looks"


def test_a_key_is_created_used_limited_rotated_and_revoked(admin: Console, secured_server: SecuredServer) -> None:
    admin.click("Keys")
    admin.wait_for(secured_server.key_id)
    admin.click("Create key")
    admin.type("Scope", "bolt corp")
    admin.click("Create key")
    admin.wait_for("A scope has letters, digits")
    admin.type("Scope", "bolt")
    admin.type("Description", "the shop of Bolt")
    admin.choose("Expires", "after 90 days")
    admin.type("Events", "1000")
    admin.wait_for("kwire key create --scope bolt --max-events 1000 --expires-in 7776000 --description")
    admin.screenshot("key-create")
    admin.press("Enter")
    admin.wait_for("Copy the secret now: it is not shown again.")
    admin.screenshot("key-secret")
    token = admin.evaluate("document.querySelector('dialog pre[aria-label=Token]').textContent")
    admin.click("Close")
    admin.until("document.querySelector('dialog') === null")
    assert token.split(".")[1] not in admin.evaluate("document.documentElement.outerHTML")
    event = {"event_type": "message", "data": "hello"}
    published = secured_server.ask("POST", "/rooms/lobby/events", event, f"Bearer {token}")
    assert published.status == 201, published

    admin.wait_for("the shop of Bolt")
    admin.screenshot("keys")
    admin.click(token.split(".")[0])
    admin.wait_for("of at most 1,000")
    admin.wait_for("No aliases")
    admin.until("document.querySelector('.figure-value').textContent === '1'")
    admin.click("Change limits")
    admin.type("Events", "")
    admin.type("Subscriptions", "5")
    admin.wait_for("--max-events none --max-subscriptions 5")
    admin.screenshot("key-limits")
    admin.press("Enter")
    admin.wait_for("The limits were changed.")
    admin.wait_for("of at most 5")
    admin.click("Create alias")
    admin.type("Description", "the warehouse of Bolt")
    admin.press("Enter")
    admin.wait_for("The alias was created")
    admin.press("Escape")
    admin.wait_for("the warehouse of Bolt")
    admin.screenshot("key")

    admin.click("Rotate")
    admin.choose("The old secret stays valid", "not at all")
    admin.screenshot("key-rotate")
    admin.click("Rotate")
    admin.wait_for("The key has a new secret")
    rotated = admin.evaluate("document.querySelector('dialog pre[aria-label=Token]').textContent")
    admin.press("Escape")
    assert secured_server.ask("GET", "/rooms", authorization=f"Bearer {token}").status == 401
    assert secured_server.ask("GET", "/rooms", authorization=f"Bearer {rotated}").status == 200
    admin.click("Revoke")
    admin.wait_for("and its 1 alias are refused")
    admin.type(f"Type {token.split('.')[0]} to confirm", token.split(".")[0])
    admin.screenshot("key-revoke")
    admin.press("Enter")
    admin.wait_for("The key was revoked.")
    admin.until("location.pathname === '/console/keys'")
    assert secured_server.ask("GET", "/rooms", authorization=f"Bearer {rotated}").status == 401


def test_acls_are_created_filtered_previewed_and_deleted(admin: Console, secured_server: SecuredServer) -> None:
    admin.click("ACLs")
    admin.wait_for("User:rita")
    admin.screenshot("acls")
    admin.click("Create ACL")
    admin.type("Principal", "User:app")
    admin.type("Name", "shop.")
    admin.click("All names that begin with this")
    admin.click("Create")
    admin.wait_for("Choose at least one operation.")
    admin.click("read")
    admin.click("write")
    admin.wait_for("kwire acl add --principal User:app --allow read,write --topic shop. --prefixed")
    admin.screenshot("acl-create")
    admin.click("Create")
    admin.wait_for("2 ACLs were created.")
    assert acl_count(secured_server, "User:app") == 2

    admin.choose("Resource", "topic")
    admin.type("Applies to the name", "shop.orders")
    admin.wait_for("kwire acl list --topic shop.orders")
    admin.wait_for("User:app")
    admin.type("Principal", "User:app")
    admin.wait_for("kwire acl list --principal User:app --topic shop.orders")
    admin.wait_for("2 ACLs")
    assert admin.path == "/console/acls?type=topic&name=shop.orders&principal=User%3Aapp"
    admin.screenshot("acls-filtered")
    admin.click("Delete: allow User:app to read topic shop.*")
    admin.wait_for("kwire acl delete --principal User:app --allow read --topic shop. --prefixed --host")
    admin.screenshot("acl-delete")
    admin.click("Delete")
    admin.wait_for("The ACL was deleted.")
    assert acl_count(secured_server, "User:app") == 1

    admin.open("/acls")
    admin.click("Delete several")
    admin.wait_for("Choose a principal or a resource.")
    admin.type("Principal", "User:app")
    admin.wait_for("kwire acl delete --principal User:app")
    admin.wait_for("Delete 1 ACL")
    admin.screenshot("acls-delete")
    admin.click("Delete 1 ACL")
    admin.wait_for("1 ACL was deleted.")
    assert acl_count(secured_server, "User:app") == 0


def acl_count(server: SecuredServer, principal: str) -> int:
    any_acl = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "host_filter": None}
    found = server.kafka(
        "DescribeAcls", {**any_acl, "principal_filter": principal, "operation": 1, "permission_type": 1}
    )
    return sum(len(one["acls"]) for one in found["resources"])


def test_quotas_are_set_changed_and_removed(admin: Console, secured_server: SecuredServer) -> None:
    admin.click("Quotas")
    admin.wait_for("No quotas")
    admin.click("Set quotas")
    admin.type("User", "rita")
    admin.type("Publish", "1048576")
    admin.type("Request time", "50")
    admin.wait_for("kwire quota set user=rita --config producer_byte_rate=1048576 --config request_percentage=50")
    admin.screenshot("quota-set")
    admin.press("Enter")
    admin.wait_for("The quotas of user rita were saved.")
    admin.wait_for("Publish 1 MiB/s")
    assert quotas(secured_server) == {"producer_byte_rate": 1048576, "request_percentage": 50}

    admin.click("Set quotas")
    admin.choose("For", "an IP address")
    admin.type("Connections", "20")
    admin.wait_for("kwire quota set ip --config connection_creation_rate=20")
    admin.press("Enter")
    admin.wait_for("all other addresses")
    admin.screenshot("quotas")

    admin.click("Edit the quotas of user rita")
    admin.type("Publish", "")
    admin.wait_for("kwire quota delete user=rita --config producer_byte_rate")
    admin.press("Enter")
    admin.until("!document.querySelector('table.data').innerText.includes('Publish')")
    assert quotas(secured_server) == {"request_percentage": 50}
    for name in ("user rita", "all other addresses"):
        admin.click(f"Remove the quotas of {name}")
        admin.wait_for("kwire quota delete")
        admin.click("Remove")
        admin.wait_for(f"The quotas of {name} were removed.")
    admin.wait_for("No quotas")


def quotas(server: SecuredServer) -> dict[str, float]:
    component = {"entity_type": "user", "match_type": 0, "match": "rita"}
    (entry,) = server.kafka("DescribeClientQuotas", {"components": [component], "strict": True})["entries"]
    return {one["key"]: one["value"] for one in entry["values"]}


def audit_entries(server: SecuredServer, text: str) -> str:
    """The newest entry of the audit log that contains the text, as a line of JSON."""
    url = f"{server.process.http_url}/topics/kwire-audit/records?from=newest&value={text}&limit=1"
    request = urllib.request.Request(url, headers={"Authorization": BASIC})
    with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:
        return str(answer.read().decode())


@pytest.mark.only_server("a bridge has no audit topic")
def test_the_audit_log_shows_changes_and_continues_live(admin: Console, secured_server: SecuredServer) -> None:
    created = secured_server.ask("POST", "/users", {"name": "ulla", "password": PASSWORD})
    assert created.status == 201, created
    # Entries are written a little later than their requests are answered, and the page is not live yet.
    wait_until(lambda: "user.created" in audit_entries(secured_server, "ulla"), "the entry about ulla")
    admin.open("/audit?type=user.")
    admin.wait_for("user.created")
    admin.wait_for("user ulla")
    admin.screenshot("audit")
    admin.type("Principal contains", "LocalUser")
    admin.wait_until_gone("user ulla")
    admin.wait_for("user rita")
    admin.click("Live")
    admin.until("document.querySelector('.badge.good')?.textContent === 'connected'")
    admin.choose("Entries about", "everything")
    admin.type("Principal contains", "")
    admin.type("Entry contains", "ulla")
    admin.wait_for("user.created")
    assert secured_server.ask("DELETE", "/users/ulla").status == 204
    admin.wait_for("user.deleted")
    admin.screenshot("audit-live")
    admin.click("user.deleted by User:admin")
    admin.wait_for("mechanisms")
    admin.screenshot("audit-entry")


@pytest.mark.only_server("a bridge has no audit topic")
def test_a_server_without_logins_says_what_is_off(console: Console) -> None:
    console.open("/users")
    console.wait_for("This server has no authorizer")
    console.wait_for("No users yet")
    console.screenshot("users-open")
    console.open("/acls")
    console.wait_for("This server has no ACLs")
    console.screenshot("acls-open")
    console.open("/audit")
    # Other tests may have changed something on this server.
    console.until("/No entries yet|User:ANONYMOUS/.test(document.body.innerText)")
    console.screenshot("audit-open")
