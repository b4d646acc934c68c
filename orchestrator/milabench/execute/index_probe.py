"""Checks whether package indexes answer, and whether their answers are right."""

from __future__ import annotations

import http.client
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping

from milabench.redaction import mask

PROBE_S = 3.0
LISTING_BYTES = 1_000_000


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
