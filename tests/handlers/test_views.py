"""Handlers reach topics, groups and transactions only through the views, which check the client's rights."""

import ast
from collections.abc import Iterator
from pathlib import Path

HANDLERS = Path(__file__).resolve().parents[2] / "kwire" / "handlers"
VIEWS = "shared/views.py"

RESOURCES = {"topics", "groups", "transactions", "transaction_admission"}

# What a handler may use of these services without a view, because it names no resource of the client.
ALLOWED = {
    "topics": {
        "check_configs": "checks settings, without a topic",
        "create_partitions": "takes a topic that a view found",
        "delete": "takes a topic that a view found",
        "deletion_count": "a number",
        "lanes": "threads for disk work",
        "leader_epoch": "a number, the same for all partitions",
        "offline_partitions": "compared with partitions that a view found",
    },
    "groups": {},
    "transactions": {},
    "transaction_admission": {},
}
# Modules that pass a whole service on, and why that is safe.
PASSED_ON = {
    "shared/config_alterations.py": "ConfigChanges calls back to authorize each change before it looks the topic up",
    "produce/transactions.py": "`admit_request` in admission.py has authorized the transactional id",
}


def uses_of_services(tree: ast.AST) -> Iterator[str]:
    """Yield `topics.get` for each `services.topics.get`, and `topics` if the service is used in another way."""
    taken = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_resource(node.value):
            assert isinstance(node.value, ast.Attribute)
            taken.add(node.value)
            yield f"{node.value.attr}.{node.attr}"
    for node in ast.walk(tree):
        if _is_resource(node) and node not in taken:
            assert isinstance(node, ast.Attribute)
            yield node.attr


def _is_resource(node: ast.AST) -> bool:
    """Whether an expression is `services.topics`, `context.services.groups` or the like."""
    if not isinstance(node, ast.Attribute) or node.attr not in RESOURCES:
        return False
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name.strip("_") == "services"


def modules() -> dict[str, ast.Module]:
    found = {path.relative_to(HANDLERS).as_posix(): path for path in sorted(HANDLERS.rglob("*.py"))}
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in found.items()}


def forbidden_uses(tree: ast.AST) -> list[str]:
    allowed = {f"{service}.{name}" for service, names in ALLOWED.items() for name in names}
    return [use for use in uses_of_services(tree) if use not in allowed]


def test_handlers_look_resources_up_through_views_only() -> None:
    found = {name: forbidden_uses(tree) for name, tree in modules().items() if name != VIEWS}
    offenders = {name: uses for name, uses in found.items() if uses}
    assert set(offenders) == set(PASSED_ON), offenders


def test_only_needed_uses_are_allowed() -> None:
    used = {use for name, tree in modules().items() if name != VIEWS for use in uses_of_services(tree)}
    assert {f"{service}.{name}" for service, names in ALLOWED.items() for name in names} <= used


def test_the_check_finds_what_it_forbids() -> None:
    forbidden = (
        "context.services.topics.get(name)",
        "services.topics.catalogue.find(name)",
        "topics = self._context.services.topics",
        "answer_of(context.services.groups, command)",
        "services.transactions.submit(command)",
        "services.transaction_admission.admit(request)",
        "self._services.topics.get_by_id(topic_id)",
    )
    for code in forbidden:
        assert forbidden_uses(ast.parse(code)), code
    for code in ("context.topics.get(operation, name)", "services.topics.leader_epoch", "context.cluster.topics(one)"):
        assert not forbidden_uses(ast.parse(code)), code
