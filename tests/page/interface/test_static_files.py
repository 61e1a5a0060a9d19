"""The page's files, and no others."""

import pytest


def test_files_have_their_content_types(client):
    index, script = client.get("/"), client.get("/page/panels/x.js")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.text == "export default 2;\n"


def test_a_cached_file_gets_304(client):
    first = client.get("/page/main.js")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/page/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "../secret.js",
        "%2e%2e/secret.js",
        "..%2fsecret.js",
        "panels/../../secret.js",
        "panels/%2e%2e/%2e%2e/secret.js",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "panels",
        "",
        "main.js%00.js",
        "missing.js",
        "a" * 3000 + ".js",
        "..\\secret.js",
    ],
)
def test_nothing_outside_the_folder_is_served(client, path):
    answer = client.get(f"/page/{path}")
    assert answer.status_code == 404
    assert "secret\n" not in answer.text


def test_a_link_out_of_the_folder_is_not_followed(client, page):
    link = page / "link.js"
    link.symlink_to(page.parent / "secret.js")
    assert client.get("/page/link.js").status_code == 404
