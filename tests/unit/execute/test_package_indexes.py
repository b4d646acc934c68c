from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.execute.package_indexes import Indexes, indexes, parse_pip_config, uv_env, uv_options

LISTED = """\
:env:.find-links='/env/wheels'
global.cert='/etc/ca.crt'
global.extra-index-url='https://a.example/simple\\nhttps://user:secret@b.example/simple'
global.find-links='/global/wheels'
global.index-url='https://mirror.example/simple'
install.index-url='https://install.example/simple'
list.format='columns'
WARNING: something else
"""


def test_the_environment_wins_over_the_install_section_and_that_over_the_global_one() -> None:
    assert parse_pip_config(LISTED) == {
        "cert": "/etc/ca.crt",
        "extra-index-url": "https://a.example/simple\nhttps://user:secret@b.example/simple",
        "find-links": "/env/wheels",
        "index-url": "https://install.example/simple",
    }


@given(st.dictionaries(st.text(string.ascii_lowercase, min_size=1, max_size=9), st.text(min_size=1).filter(str.strip)))
def test_what_pip_prints_is_read_back(settings: dict[str, str]) -> None:
    assert parse_pip_config("".join(f"global.{name}={value!r}\n" for name, value in settings.items())) == settings


def test_pips_settings_are_said_in_uvs_words() -> None:
    settings = {
        "find-links": "/a /b\n/c",
        "index-url": "https://mirror.example/simple",
        "extra-index-url": "https://a.example/simple https://b.example/simple",
        "cert": "/etc/ca.crt",
        "trusted-host": "a.example b.example",
        "constraint": "limits.txt",
        "proxy": "http://proxy.example:3128",
        "timeout": "180",
    }
    assert uv_env(settings, {}) == {
        "UV_FIND_LINKS": "/a,/b,/c",
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": "/etc/ca.crt",
        "UV_INSECURE_HOST": "a.example b.example",
        "UV_CONSTRAINT": "limits.txt",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "HTTP_PROXY": "http://proxy.example:3128",
        "UV_HTTP_TIMEOUT": "180",
    }


def test_doing_without_an_index_is_an_option_of_uv_not_a_variable() -> None:
    assert uv_options({"no-index": "yes"}) == ("--no-index",)
    assert uv_options({"no-index": "0"}) == uv_options({}) == ()


@pytest.mark.parametrize(
    ("settings", "environ"),
    [
        ({"find-links": "/a"}, {"UV_FIND_LINKS": "/mine"}),
        ({"index-url": "https://a.example"}, {"UV_DEFAULT_INDEX": "https://mine.example"}),
        ({"index-url": "https://a.example"}, {"UV_INDEX_URL": "https://mine.example"}),
        ({"cert": "/a"}, {"SSL_CERT_FILE": "/mine"}),
        ({"proxy": "http://a.example"}, {"https_proxy": "http://mine.example"}),
        ({"no-index": "false"}, {}),
        ({}, {}),
    ],
)
def test_what_the_user_set_for_uv_is_left_alone(settings: dict[str, str], environ: dict[str, str]) -> None:
    assert uv_env(settings, environ) == {}


def test_sources_are_looked_for_where_uv_would_look() -> None:
    settings = {"extra-index-url": "https://a.example/simple", "find-links": "/wheels"}
    assert indexes(settings, {}) == Indexes(
        urls=("https://pypi.org/simple", "https://a.example/simple"), find_links=("/wheels",)
    )
    mine = indexes(
        settings, {"UV_INDEX": "mine=https://c.example/simple", "UV_DEFAULT_INDEX": "https://d.example/simple"}
    )
    assert mine.urls == ("https://d.example/simple", "https://c.example/simple")
    assert indexes({"no-index": "1"}, {}).urls == ()
