"""The page at `/`, without and in a browser; requests of foreign pages; the description of the API."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Page, expect
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from endive.catalog import KVCatalog
from endive.catalog.model.grants import Grantee, Privilege
from endive.server import Limits, RunningServer, scans
from endive.server.access import OWNER, Principal, Tokens, hashed
from endive.server.application import ROUTES, Application
from endive.server.http import Request, Response
from endive.server.page import FILES
from tests.server.calls import SCHEMA, VERSION

expect.set_options(timeout=60_000)  # other tests run at the same time

HOSTILE = "<img src=x onerror=alert(1)>"


def get(application: Application, path: str, method: str = "GET", **headers: str) -> Response:
    return application.answer(
        Request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
    )


@pytest.mark.parametrize("path", FILES)
def test_the_page_is_the_same_for_everybody_and_runs_only_its_own_code(catalog: KVCatalog, path: str) -> None:
    found = get(Application({"lake": catalog}, Tokens({})), f"/{path}")

    assert found.status == 200
    assert "script-src 'self'" in found.headers["content-security-policy"]
    assert b"innerHTML" not in found.body
    assert b"http://" not in found.body.replace(b"http://www.w3.org/2000/svg", b"")
    assert get(Application({"lake": catalog}), f"/{path}", "POST").status == 405


def test_the_api_is_described_from_the_routes(catalog: KVCatalog) -> None:
    found = json.loads(get(Application({"lake": catalog}), "/openapi.json").body)

    described = {f"{method.upper()} {path}" for path, methods in found["paths"].items() for method in methods}
    assert described == {route.endpoint for route in ROUTES}
    assert all(one["summary"] for methods in found["paths"].values() for one in methods.values())


def test_warehouses_are_those_of_the_caller(catalog: KVCatalog) -> None:
    application = Application({"lake": catalog}, Tokens({hashed("ada"): Principal("ada")}))

    assert get(application, "/page/warehouses").status == 401
    assert json.loads(get(application, "/page/warehouses", authorization="Bearer ada").body) == {"warehouses": []}
    catalog.grants.grant(Grantee("user", "ada"), [Privilege.READ])
    assert json.loads(get(application, "/page/warehouses", authorization="Bearer ada").body) == {"warehouses": ["lake"]}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:8181"}, 200),
        ({"host": "localhost:8181", "origin": "http://localhost:8181"}, 200),
        ({"host": "[::1]:8181"}, 200),
        ({"host": "evil.example:8181"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "127.0.0.1:8181", "origin": "https://evil.example"}, 403),
        ({"host": "127.0.0.1:8181", "origin": "http://127.0.0.1:9"}, 403),
        ({"host": "127.0.0.1:8181", "origin": "null"}, 403),
    ],
)
def test_foreign_pages_cannot_use_a_server_without_authentication(
    catalog: KVCatalog, headers: dict[str, str], status: int
) -> None:
    assert get(Application({"lake": catalog}), "/v1/config", **headers).status == status


def test_with_tokens_any_host_name_is_fine_but_no_foreign_page(catalog: KVCatalog) -> None:
    application = Application({"lake": catalog}, Tokens({hashed("t"): OWNER}))

    assert get(application, "/v1/config", host="lake.example", authorization="Bearer t").status == 200
    foreign = get(application, "/v1/config", host="lake.example", origin="https://x.example", authorization="Bearer t")
    assert foreign.status == 403


# In a browser.


@pytest.fixture
def server(catalog: KVCatalog) -> Iterator[RunningServer]:
    """A server with partitioned data, a branch, a tag, a view, and names that are HTML."""
    tokens = Tokens({hashed("owner"): OWNER, hashed("ada"): Principal("ada")})
    with RunningServer(Application({"lake": catalog}, tokens), Limits(threads=8), "owner").start() as running:
        client = load_catalog("lake", type="rest", **running.client_properties)
        client.create_namespace("sales")
        client.create_namespace("hidden")
        columns = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType(), doc=HOSTILE))
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
        table = client.create_table("sales.orders", columns, partition_spec=spec, properties={"note": HOSTILE})
        for number in range(3):
            table.append(pa.table({"id": [number, 2], "region": ["north", "south"]}))
        first = table.snapshots()[0].snapshot_id
        table.manage_snapshots().create_branch(first, "audit").create_tag(first, "v1").commit()
        table.append(pa.table({"id": [9], "region": ["west"]}), branch="audit")
        catalog.create_view("sales.recent", SCHEMA, {**VERSION, "default-namespace": ["sales"]})
        catalog.grants.grant(Grantee("user", "ada"), [Privilege.READ], catalog.grants.place(table="sales.orders"))
        yield running


@pytest.fixture
def visit(chromium: Browser, server: RunningServer) -> Iterator[Any]:
    contexts = []
    complaints: list[str] = []

    def opened(token: str, **options: Any) -> Page:
        context = chromium.new_context(viewport={"width": 1200, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(f"{server.url}/")
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.slow
def test_a_table_is_found_and_shown_by_keyboard_alone(visit: Any) -> None:
    page: Page = visit("owner")
    page.wait_for_selector("html[data-ready]")
    sales = page.get_by_role("button", name="sales", exact=True)
    sales.focus()
    page.keyboard.press("ArrowRight")
    orders = page.get_by_role("button", name="orders", exact=True)
    expect(orders).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(orders).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="sales.orders")).to_be_visible()
    page.get_by_role("tab", name="Overview").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("cell", name="region", exact=True)).to_be_visible()
    expect(page.get_by_role("cell", name=HOSTILE)).to_be_visible()
    expect(page.get_by_text("identity(region)")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("img", name="4 snapshots")).to_be_visible()
    assert page.locator("svg circle").count() == 4
    assert page.locator("svg .edge").count() == 3
    expect(page.locator("svg .ref").get_by_text("v1 (tag)")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("2 partitions by size")).to_be_visible()
    expect(page.get_by_role("cell", name="region=north", exact=True)).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("cell", name=HOSTILE)).to_be_visible()
    expect(page.locator("#live")).to_contain_text("commits/s", timeout=15_000)
    page.get_by_role("button", name="recent (view)").click()
    expect(page.get_by_text("select * from events")).to_be_visible()
    page.get_by_role("button", name="API").click()
    expect(page.get_by_text("/v1/{prefix}/transactions/commit")).to_be_visible()


@pytest.mark.slow
def test_a_listing_of_files_that_is_cut_says_so(
    visit: Any, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "FILES_PER_PAGE", 1)
    client = load_catalog("lake", type="rest", **server.client_properties)
    table = client.load_table("sales.orders")
    table.append(pa.table({"id": list(range(30)), "region": [f"region {number}" for number in range(30)]}))

    page: Page = visit("owner")
    page.wait_for_selector("html[data-ready]")
    page.get_by_role("button", name="sales", exact=True).click()
    page.get_by_role("button", name="orders", exact=True).click()
    page.get_by_role("tab", name="Files").click()

    expect(page.get_by_text("The table has more files. Only the first 21 are counted here.")).to_be_visible()
    expect(page.get_by_text("21 files, the largest first")).to_be_visible()


@pytest.mark.slow
def test_a_caller_sees_its_own_tables_only(visit: Any) -> None:
    page: Page = visit("ada")
    page.wait_for_selector("html[data-ready]")
    page.get_by_role("button", name="sales", exact=True).click()

    expect(page.get_by_role("button", name="orders", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="recent (view)")).to_have_count(0)
    expect(page.get_by_role("button", name="hidden")).to_have_count(0)


@pytest.mark.slow
def test_a_wrong_token_is_refused_and_colours_follow_the_system(visit: Any) -> None:
    page: Page = visit("wrong", color_scheme="dark")
    expect(page.get_by_role("alert")).to_contain_text("not known")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert (dark, light) == ("rgb(20, 24, 26)", "rgb(251, 251, 249)")
