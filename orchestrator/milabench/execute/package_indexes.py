"""Where packages come from: the user's pip settings, as uv's options and as ours, and whether indexes answer, and rightly."""

from __future__ import annotations

import ast
import http.client
import re
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from milabench.redaction import learn, mask, values_in

PYPI = "https://pypi.org/simple"
PROBE_S = 3.0
LISTING_BYTES = 1_000_000
# pip's settings that are values for uv, and those that are lists of words.
_VALUES_OF_UV = {"UV_DEFAULT_INDEX": "index-url", "SSL_CERT_FILE": "cert", "SSL_CLIENT_CERT": "client-cert"}
_LISTS_OF_UV = {"UV_INDEX": "extra-index-url", "UV_INSECURE_HOST": "trusted-host", "UV_CONSTRAINT": "constraint"}
_SECTIONS = ("global", "install", ":env:")


def parse_pip_config(text: str) -> dict[str, str]:
    """Return the settings that `pip config list` prints.

    The environment wins over settings of `pip install`, those over global ones. Names are pip's option names
    (`find-links`). Lines that are not settings are passed over.
    """
    settings: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in text.splitlines():
        key, is_setting, value = line.strip().partition("=")
        section, _, name = key.rpartition(".")
        if is_setting and section in settings:
            settings[section][name.replace("_", "-")] = _unquoted(value)
    return {name: value for section in _SECTIONS for name, value in settings[section].items() if value.strip()}


def pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings on this machine: from its files and its environment variables (about half a second).

    Where there is no pip at all, only the environment variables count. Credentials of indexes are known as secrets then.
    """
    settings = _pip_settings(environ)
    learn(values_in(settings))
    return settings


def _pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    # The user's own pip second: an environment that uv made has none, and both read the same files.
    commands = [[sys.executable, "-m", "pip"]]
    if program := shutil.which("pip", path=environ.get("PATH")):
        commands.append([program])
    for command in commands:
        try:
            answer = subprocess.run(
                [*command, "config", "list"], env=dict(environ), capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if answer.returncode == 0:
            return parse_pip_config(answer.stdout)
    names = {
        name.removeprefix("PIP_").lower().replace("_", "-"): v for name, v in environ.items() if name[:4] == "PIP_"
    }
    return {name: value for name, value in names.items() if value.strip()}


def uv_env(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that give uv pip's settings. A variable that the user has set is left alone.

    uv's default of the first index that knows a package would let an old extra index win over the main index, so pip's
    rule, the best match of all indexes, is set with extra indexes.
    """
    variables = {ours: " ".join(_words(settings.get(name))) for ours, name in _LISTS_OF_UV.items()}
    variables |= {ours: settings.get(name, "") for ours, name in _VALUES_OF_UV.items()}
    variables["UV_FIND_LINKS"] = ",".join(_words(settings.get("find-links")))
    if variables["UV_INDEX"]:
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    timeout = settings.get("timeout", settings.get("default-timeout", ""))
    if re.fullmatch(r"[0-9.]+", timeout):
        variables["UV_HTTP_TIMEOUT"] = str(int(float(timeout)))
    if (proxy := settings.get("proxy")) and not {"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} & set(environ):
        variables["HTTPS_PROXY"] = variables["HTTP_PROXY"] = proxy
    equals = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}
    return {
        name: value
        for name, value in variables.items()
        if value and not environ.get(name) and not environ.get(equals.get(name, name))
    }


def uv_options(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options for settings that uv reads from no variable, for `uv pip install`, `sync`, `compile` and `uv build`."""
    return ("--no-index",) if _is_true(settings.get("no-index")) else ()


def pip_env(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that give pip itself these settings."""
    return {f"PIP_{name.upper().replace('-', '_')}": value for name, value in settings.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexes:
    """Where to look for a file, best first: pages of the simple repository API, and folders or pages of links."""

    urls: tuple[str, ...] = (PYPI,)
    find_links: tuple[str, ...] = ()
    cert: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    proxy: str | None = None
    is_offline: bool = False


def indexes(settings: Mapping[str, str], environ: Mapping[str, str]) -> Indexes:
    """Return the indexes that uv would use under these pip settings and this environment."""
    env = {**environ, **uv_env(settings, environ)}
    main = env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL") or PYPI
    named = (*_words(env.get("UV_INDEX")), *_words(env.get("UV_EXTRA_INDEX_URL")))
    extra = tuple(re.sub(r"^[A-Za-z0-9_.-]+=(?=\w+:|/)", "", url) for url in named)
    return Indexes(
        urls=() if uv_options(settings) else (main, *extra),
        find_links=tuple(link for link in env.get("UV_FIND_LINKS", "").split(",") if link.strip()),
        cert=env.get("SSL_CERT_FILE"),
        trusted_hosts=_words(env.get("UV_INSECURE_HOST")),
        proxy=settings.get("proxy"),
        is_offline=_is_true(env.get("UV_OFFLINE")),
    )


def excludes_others(settings: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Return whether the user's settings say where packages come from, so that no index of a requirement file is to be asked.

    An extra index or a folder of files in addition to the ordinary index excludes nothing.
    """
    named = settings.get("index-url") or any(environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"))
    closed = any(
        _is_true(value) for value in (settings.get("no-index"), *map(environ.get, ("UV_NO_INDEX", "UV_OFFLINE")))
    )
    return bool(named) or closed


def url_responds(url: str, environ: Mapping[str, str]) -> bool:
    """Return whether a server answers under this URL in time, with any status. Uses the user's proxy and certificates."""
    try:
        opener_of(environ).open(urllib.request.Request(url, method="HEAD"), timeout=PROBE_S).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


def opener_of(environ: Mapping[str, str]) -> urllib.request.OpenerDirector:
    """Return an opener of URLs with the user's proxy and certificates. Raises OSError when the latter cannot be read."""
    proxies = {
        scheme: value
        for scheme in ("http", "https")
        if (
            value := environ.get(f"{scheme}_proxy")
            or environ.get(f"{scheme.upper()}_PROXY")
            or environ.get("ALL_PROXY")
        )
    }
    # urllib, not the client of sources: this file also runs on other machines, where only `packaging` comes with it.
    context = ssl.create_default_context(cafile=environ.get("SSL_CERT_FILE"))
    return urllib.request.build_opener(
        urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context)
    )


def refusal(url: str, environ: Mapping[str, str]) -> str:
    """Return the error in an index's answer to the question for a package. Empty where no error is seen."""
    kinds = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
    try:
        request = urllib.request.Request(url, headers={"Accept": kinds})
        with opener_of(environ).open(request, timeout=PROBE_S) as answer:
            is_page, text = answer.headers.get_content_type() == "text/html", answer.read(LISTING_BYTES)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.NOT_FOUND:
            return ""
        return (
            f"{mask(url)}: the server answers {error.code} {error.reason}. Check the proxy or the index of `pip config`"
        )
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    if is_page and not re.search(rb"<a\b[^>]*>[^<]*\.(?:whl|zip|tar\.\w+|tgz)\s*<", text):
        return f"{mask(url)}: the answer is a web page that lists no files, perhaps of a proxy that wants a login"
    return ""


def _unquoted(value: str) -> str:
    try:
        read = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    return read if isinstance(read, str) else str(read)


def _words(value: str | None) -> tuple[str, ...]:
    return tuple((value or "").split())


def _is_true(value: str | Sequence[str] | None) -> bool:
    return str(value or "").strip().lower() in ("1", "true", "yes", "on", "y", "t")
